"""Exports: history since the last export as packed, read-only files with a signed manifest, each event once.

An export gets its name when all of it is on disk; then the database's cursor moves. If the process is killed between
the two, the next export finds it and takes it over unchanged.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from interlock.db.audit import exports
from interlock.db.connection import one_snapshot, transaction, try_lock
from interlock.db.core import history
from interlock.workers.audit import anchors, signing_keys
from interlock.workers.relay.relay import BATCH, Place
from interlock.workers.runtime import Runtime
from interlock.workers.system import write_once
from interlock.workers.system.safe_remove import remove
from interlock.workflows.audit.events import line, timestamp
from interlock.workflows.errors import InterlockError
from interlock.workflows.input.json_text import read

CURSOR = "export"
PART = 100_000  # events per export: about ten seconds of work
FIRST = "0" * 64  # the first manifest's value for the hash of the one before
EVENTS, MANIFEST, SIGNATURE = "events.jsonl.gz", "manifest.json", "manifest.sig"


class ExportFault(InterlockError):
    """An export on file is not what the database expects there. Look at it; nothing is overwritten."""


class Exported(NamedTuple):
    """The content of one export."""

    directory: Path
    events: int


class Next(NamedTuple):
    """The next export: its number, the place after which it begins, and the hash of the manifest before it."""

    number: int
    after: Place
    previous: str


def export(runtime: Runtime, progress: Callable[[int], None] = lambda _: None) -> Exported | None:
    """Export up to `PART` events since the last export; None if there are none, or another process exports.

    Raises:
        KeyFault, ExportFault: there is no key to sign with; or something else is where the export would be written.
        DBAPIError, OSError: the database is unreachable, or the disk is full. The next export covers these events.
    """
    anchors.anchor(runtime)
    place = directory(runtime)
    place.mkdir(parents=True, exist_ok=True)
    with transaction(runtime.database) as reading:
        one_snapshot(reading)
        if not try_lock(reading, exports.EXPORT_LOCK):
            return None
        last = exports.newest(reading)
        coming = Next(
            last["number"] + 1 if last else 1,
            history.read_cursor(reading, CURSOR),
            last["manifest"] if last else FIRST,
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
    """Whether the last export is older than the settings allow, or was full."""
    with transaction(runtime.database) as connection:
        last = exports.newest(connection)
    return last is None or last["age_seconds"] >= runtime.settings.export_seconds or last["events"] >= PART


def directory(runtime: Runtime) -> Path:
    """The parent directory of all exports, a directory each."""
    return runtime.settings.audit_directory / "exports"


def _write(reading: Connection, runtime: Runtime, coming: Next, progress: Callable[[int], None]) -> Path | None:
    now: datetime = reading.execute(text("SELECT now()")).scalar_one()
    draft = directory(runtime) / f".draft-{coming.number:06}"
    remove(draft)
    draft.mkdir()
    written = _events(reading, draft / EVENTS, coming.after, progress)
    if written is None:
        remove(draft)
        return None
    last_anchor = anchors.last(reading)
    signer = signing_keys.signer(runtime.settings.signing_directory, may_make=last_anchor is None)
    size, digest = (draft / EVENTS).stat().st_size, write_once.sha256_of(draft / EVENTS)
    manifest = {
        "number": coming.number,
        "made_at": timestamp(now),
        "behind": {"xid": coming.after[0], "position": coming.after[1]},
        **written,
        "files": [{"name": EVENTS, "bytes": size, "sha256": digest, "events": written["events"]}],
        "previous": coming.previous,
        "anchor": last_anchor,
        "key": signer.name,
    }
    body = json.dumps(manifest, indent=1).encode()
    for name, content in ((SIGNATURE, signer.sign(body)), (MANIFEST, body)):
        with write_once.put(draft / name) as opened:
            opened.write(content)
    named = draft.with_name(f"export-{coming.number:06}.{timestamp(now)[:10]}")
    draft.rename(named)
    write_once.flush_directory(named.parent)
    return named


def _events(reading: Connection, path: Path, after: Place, progress: Callable[[int], None]) -> dict[str, Any] | None:
    """Write the events. Returns their number, the first and last time, and the last place; None if there are none."""
    events = history.batch(reading, after, limit=BATCH, archived=True)
    if not events:
        return None
    count, first = 0, events[0]["created_at"]
    with write_once.put(path) as opened, gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed:
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


def _enter(runtime: Runtime, found: Path, coming: Next) -> Exported:
    """Record in the database an export on file, which may come from a process that was killed before it could."""
    try:
        body = (found / MANIFEST).read_bytes()
        manifest: Mapping[str, Any] = read(body)
        behind = manifest["behind"]["xid"], manifest["behind"]["position"]
        upto = manifest["upto"]["xid"], manifest["upto"]["position"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportFault(
            f"{found} is not an export: {MANIFEST} is unreadable or incomplete ({error!r}). Move it elsewhere"
        ) from error
    if behind != coming.after:
        raise ExportFault(
            f"{found} begins after {behind}, but the database has exported up to {coming.after}: it was restored from"
            " a backup, or the directory is another database's. Move its exports elsewhere"
        )
    found.chmod(0o550)
    with transaction(runtime.database) as writing:
        if history.cursor(writing, CURSOR) != coming.after:
            raise ExportFault(f"another process has exported the events after {coming.after} in the meantime")
        exports.add(writing, coming.number, manifest["made_at"], manifest["events"], sha256(body).hexdigest())
        history.advance(writing, CURSOR, upto)
    return Exported(found, manifest["events"])
