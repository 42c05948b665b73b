"""Exports: history behind the last export as packed, read-only files with a signed manifest, each once.

An export gets its name when all of it is on the disk; then the database's cursor moves. Killed between the two, the
next one finds it there and takes it over as it is.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from db import exports, history
from db.connect import transaction
from workers.auditing import anchors, files, keys
from workers.relay import BATCH, Place
from workers.runtime import Runtime
from workflows.errors import InterlockError
from workflows.events import line, timestamp

CURSOR = "export"
PART = 100_000  # events of one export: some ten seconds
EVENTS, MANIFEST, SIGNATURE = "events.jsonl.gz", "manifest.json", "manifest.sig"


class ExportFault(InterlockError):
    """An export that is on file is not what the database expects there. Look at it; nothing is overwritten."""


class Exported(NamedTuple):
    """What one export holds."""

    directory: Path
    events: int


class Next(NamedTuple):
    """The export to come: its number, where it begins, the hash of the manifest before it."""

    number: int
    after: Place
    previous: str


def export(runtime: Runtime, progress: Callable[[int], None] = lambda _: None) -> Exported | None:
    """Export up to `PART` events behind the last export; None where there is nothing, or another process exports.

    Raises:
        KeyFault, ExportFault: no key to sign with; something else lies where it would be written.
        DBAPIError, OSError: the database is away, the disk is full; the next one makes up for it.
    """
    anchors.anchor(runtime)
    place = directory(runtime)
    place.mkdir(parents=True, exist_ok=True)
    with transaction(runtime.database) as reading:
        reading.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        if not exports.alone(reading):
            return None
        last = exports.newest(reading)
        coming = Next(
            last["number"] + 1 if last else 1,
            history.cursor_seen(reading, CURSOR),
            last["manifest"] if last else anchors.FIRST,
        )
        found = next(place.glob(f"export-{coming.number:06}.*"), None) or _write(reading, runtime, coming, progress)
        return _enter(runtime, found, coming) if found else None


def export_all(runtime: Runtime, progress: Callable[[int], None] = lambda _: None) -> list[Exported]:
    """Export until nothing is left."""
    done: list[Exported] = []
    while (one := export(runtime, lambda written: progress(written + sum(each.events for each in done)))) is not None:
        done.append(one)
        if one.events < PART:
            break
    return done


def due(runtime: Runtime) -> bool:
    """Whether the last export is older than the settings want, or was full."""
    with transaction(runtime.database) as connection:
        last = exports.newest(connection)
    return last is None or last["age_seconds"] >= runtime.settings.export_seconds or last["events"] >= PART


def directory(runtime: Runtime) -> Path:
    """Where exports are filed, a directory each."""
    return runtime.settings.audit_directory / "exports"


def _write(reading: Connection, runtime: Runtime, coming: Next, progress: Callable[[int], None]) -> Path | None:
    now: datetime = reading.execute(text("SELECT now()")).scalar_one()
    draft = directory(runtime) / f".draft-{coming.number:06}"
    files.remove(draft)
    draft.mkdir()
    written = _events(reading, draft / EVENTS, coming.after, progress)
    if written is None:
        files.remove(draft)
        return None
    last_anchor = anchors.last(reading)
    signer = keys.signer(runtime.settings.signing_directory, may_make=last_anchor is None)
    manifest = {
        "number": coming.number,
        "made_at": timestamp(now),
        "behind": {"xid": coming.after[0], "position": coming.after[1]},
        **written,
        "files": [_described(draft / EVENTS, written["events"])],
        "previous": coming.previous,
        "anchor": last_anchor,
        "key": signer.name,
    }
    body = json.dumps(manifest, indent=1).encode()
    for name, content in ((SIGNATURE, signer.sign(body)), (MANIFEST, body)):
        with files.put(draft / name) as opened:
            opened.write(content)
    named = draft.with_name(f"export-{coming.number:06}.{timestamp(now)[:10]}")
    draft.rename(named)
    files.flush_directory(named.parent)
    return named


def _events(reading: Connection, path: Path, after: Place, progress: Callable[[int], None]) -> dict[str, Any] | None:
    """Write the events; how many, the first's and the last's time, and the last's place. None where there are none."""
    events = history.batch(reading, after, limit=BATCH, archived=True)
    if not events:
        return None
    count, first = 0, events[0]["created_at"]
    with files.put(path) as opened, gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed:
        while events:
            packed.write("".join(f"{line(dict(event))}\n" for event in events).encode())
            count, last = count + len(events), events[-1]
            progress(count)
            full = len(events) < BATCH or count >= PART
            events = () if full else history.batch(reading, (last["xid"], last["position"]), limit=BATCH, archived=True)
    return {
        "upto": {"xid": last["xid"], "position": last["position"]},
        "events": count,
        "first": timestamp(first),
        "last": timestamp(last["created_at"]),
    }


def _described(path: Path, events: int) -> dict[str, Any]:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": files.sha256_of(path), "events": events}


def _enter(runtime: Runtime, found: Path, coming: Next) -> Exported:
    """Tell the database of an export that is on file; it may be one of a process that was killed before it could."""
    try:
        body = (found / MANIFEST).read_bytes()
        manifest: Mapping[str, Any] = json.loads(body)
        behind = manifest["behind"]["xid"], manifest["behind"]["position"]
        upto = manifest["upto"]["xid"], manifest["upto"]["position"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportFault(f"{found} is no export of ours ({error}); move it elsewhere") from error
    if behind != coming.after:
        raise ExportFault(
            f"{found} begins behind {behind}, but the database has exported up to {coming.after}: it was restored from"
            " a backup, or the directory is another database's. Move its exports elsewhere"
        )
    found.chmod(0o550)
    with transaction(runtime.database) as writing:
        if history.cursor(writing, CURSOR) != coming.after:
            raise ExportFault(f"another process has exported what lies behind {coming.after} in the meantime")
        exports.add(writing, coming.number, manifest["made_at"], manifest["events"], sha256(body).hexdigest())
        history.advance(writing, CURSOR, upto)
    return Exported(found, manifest["events"])
