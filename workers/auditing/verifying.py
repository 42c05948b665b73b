"""`audit verify`: the chains against themselves (`db.audit`), against anchors and against the journal."""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from db import anchors, audit, exports
from db.anchors import Head
from db.audit import Progress, Verdict
from db.connect import transaction
from db.snapshot import Snapshot
from workers import journal
from workers.auditing import anchors as making
from workers.auditing import exports as exporting
from workers.auditing import files, keys
from workers.runtime import Runtime

AT_ONCE = 5_000  # heads looked up in one statement


def verify(
    runtime: Runtime,
    progress: Progress = lambda _: None,
    *,
    places: Iterable[Path] = (),
    trusted: Iterable[Path] = (),
    with_journal: bool = False,
) -> Verdict:
    """Check that nothing was rewritten, not even by somebody who computed the hashes anew.

    Args:
        runtime: the database, the directories of keys, anchors and journal.
        progress: told the number of events read so far, now and then.
        places: further directories that hold anchors.
        trusted: further public keys, or directories of them, that are believed.
        with_journal: compare every line of the journal with history, too.

    Returns:
        The verdict; each problem names the instance and the event, or the anchor.

    Raises:
        DBAPIError: the database is away.
        KeyFault: a public key cannot be read.
    """
    verdict = audit.verify(runtime.database, progress)
    believed = keys.believed(runtime.settings.signing_directory, *trusted)
    sound = _anchors(runtime, verdict, believed)
    for place in (making.directory(runtime), *places):
        _on_file(runtime, verdict, place, believed, sound)
    _exports(runtime, verdict)
    if with_journal:
        for path in journal.files(runtime.settings.state_directory):
            _compare(runtime, verdict, _journaled(verdict, path), f"the journal {path.name}")
    return verdict


def _anchors(runtime: Runtime, verdict: Verdict, believed: Mapping[str, Ed25519PublicKey]) -> dict[int, str]:
    """Check the anchors in the database and what they saw; number -> body of those whose heads are as signed."""
    sound: dict[int, str] = {}
    before, expected = making.FIRST, 1
    with transaction(runtime.database) as connection:
        instances, transitions = anchors.totals(connection)
        for row in anchors.listed(connection):
            name, body = f"anchor {row['number']}", _read(row["body"])
            verdict.anchors += 1
            if row["number"] != expected:
                verdict.note(name, None, f"gap: anchor {expected} is missing")
            elif body.get("previous") != before:
                verdict.note(name, None, "does not follow the anchor before it")
            for says in _signature(believed, row["body"], bytes(row["signature"])):
                verdict.note(name, None, says)
            if _digest(anchors.heads(connection, row["number"])) == (body.get("heads_sha256"), body.get("heads")):
                sound[row["number"]] = row["body"]
            else:
                verdict.note(name, None, "changed: its heads are not those that were signed")
            if instances < body.get("instances", 0) or transitions < body.get("transitions", 0):
                says = f"saw {body['instances']} instances and {body['transitions']} events; fewer are left"
                verdict.note(name, None, says)
            before, expected = making.hash_of(row), row["number"] + 1
    with Snapshot(runtime.database) as snapshot:
        for lost in anchors.missing(snapshot):
            _lost(verdict, lost.workflow_id, lost.seq, lost.gone, f"anchor {lost.number}")
    return sound


def _on_file(
    runtime: Runtime, verdict: Verdict, place: Path, believed: Mapping[str, Ed25519PublicKey], sound: Mapping[int, str]
) -> None:
    """Check anchors on file against those in the database; where these differ, history against the file's heads."""
    for path in making.filed(place):
        text = path.read_text()
        body = _read(text)
        number = body.get("number", 0)
        if sound.get(number) == text:
            continue
        says = list(_signature(believed, text, path.with_suffix(".sig").read_bytes()))
        if says:
            verdict.note(str(path), None, says[0])
            continue
        packed = path.with_suffix(".heads.gz")
        if not packed.exists() or _digest(_filed(packed)) != (body["heads_sha256"], body["heads"]):
            verdict.note(str(path), None, "changed: its heads on file are not those that were signed")
            continue
        verdict.note(f"anchor {number}", None, f"the database does not have it as it is on file ({path})")
        _compare(runtime, verdict, _filed(packed), f"anchor {number} on file")


def _exports(runtime: Runtime, verdict: Verdict) -> None:
    """Check that the manifests on file are those the database knows."""
    with transaction(runtime.database) as connection:
        known = exports.manifests(connection)
    for path in sorted(exporting.directory(runtime).glob(f"export-*/{exporting.MANIFEST}")):
        number = int(path.parent.name.split(".")[0].removeprefix("export-"))
        if number in known and files.sha256_of(path) != known[number]:
            verdict.note(
                str(path),
                None,
                "changed: it is not the manifest that was written",
            )


def _compare(runtime: Runtime, verdict: Verdict, heads: Iterator[Head], name: str) -> None:
    """Note the heads that history does not tell."""
    while batch := list(islice(heads, AT_ONCE)):
        with transaction(runtime.database) as connection:
            for workflow_id, seq, gone in anchors.missing_of(connection, batch):
                _lost(verdict, workflow_id, seq, gone, name)


def _lost(verdict: Verdict, workflow_id: UUID, seq: int, gone: bool, name: str) -> None:
    event = f"event {seq}" if seq else "its birth"
    says = f"{name} saw {event}, which is gone" if gone else f"{name} saw another {event} than there is now"
    verdict.note(workflow_id, seq, f"{'cut' if gone else 'forged'}: {says}")


def _signature(believed: Mapping[str, Ed25519PublicKey], body: str, signature: bytes) -> Iterator[str]:
    name = str(_read(body).get("key"))
    signed = keys.signed(believed, name, body.encode(), signature)
    if signed is None:
        yield f"signed by the key {name}, which is not believed: if you know it, put its public half beside the others"
    elif not signed:
        yield "changed: its signature is not that of its content"


def _digest(heads: Iterable[Head]) -> tuple[str, int]:
    digest, count = sha256(), 0
    for head in heads:
        digest.update(head.line())
        count += 1
    return digest.hexdigest(), count


def _filed(packed: Path) -> Iterator[Head]:
    with gzip.open(packed, "rt", encoding="ascii") as lines:
        for line in lines:
            workflow_id, seq, hashed = line.split()
            yield Head(UUID(workflow_id), int(seq), bytes.fromhex(hashed))


def _journaled(verdict: Verdict, path: Path) -> Iterator[Head]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
                context = event["context"]
                yield Head(UUID(context["workflow_id"]), context["seq"], bytes.fromhex(event["hash"]))
            except (ValueError, KeyError, TypeError):
                verdict.note(f"{path}:{number}", None, "no event; `interlock audit validate` says more")


def _read(body: str) -> dict[str, Any]:
    try:
        read = json.loads(body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
