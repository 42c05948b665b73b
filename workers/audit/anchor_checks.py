"""Anchors, in the database and on file: are they what was signed, and does history still tell what they saw."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection, Engine, RowMapping

from db import anchors
from db.anchors import Head
from db.audit import Verdict
from db.connect import transaction
from db.snapshot import Snapshot
from workers.auditing import anchors as making
from workers.auditing import heads, keys

Believed = Mapping[str, Ed25519PublicKey]

UNREADABLE = (OSError, ValueError, TypeError, EOFError, zlib.error)  # what a file raises that somebody was at


@dataclass(slots=True)
class InDatabase:
    """What a walk along the database's anchors remembers; `sound` is number -> body of those that are as signed."""

    sound: dict[int, str] = field(default_factory=dict)
    before: str = making.FIRST
    expected: int = 1


def check_database(database: Engine, verdict: Verdict, believed: Believed) -> Mapping[int, str]:
    """Check the anchors in the database and what they saw.

    Args:
        database: where they are.
        verdict: gets the problems, and counts them.
        believed: the public keys.

    Returns:
        Number -> body of those whose heads are as they were signed.
    """
    walk = InDatabase()
    with transaction(database) as connection:
        totals = anchors.totals(connection)
        for row in anchors.listed(connection):
            for says in _wrong(connection, row, walk, believed, totals):
                verdict.note(f"anchor {row['number']}", None, says)
            verdict.anchors += 1
            walk.before, walk.expected = making.hash_of(row), row["number"] + 1
    with Snapshot(database) as snapshot:
        for lost in anchors.missing(snapshot):
            heads.note_lost(verdict, lost.workflow_id, lost.seq, lost.gone, f"anchor {lost.number}")
    return walk.sound


def _wrong(
    connection: Connection, row: RowMapping, walk: InDatabase, believed: Believed, totals: tuple[int, int]
) -> Iterator[str]:
    body = _read(row["body"])
    if row["number"] != walk.expected:
        yield f"gap: anchor {walk.expected} is missing"
    elif body.get("previous") != walk.before:
        yield "does not follow the anchor before it"
    yield from _signature(believed, row["body"], bytes(row["signature"]))
    if _digest(anchors.heads(connection, row["number"])) == (body.get("heads_sha256"), body.get("heads")):
        walk.sound[row["number"]] = row["body"]
    else:
        yield "changed: its heads are not those that were signed"
    if totals[0] < body.get("instances", 0) or totals[1] < body.get("transitions", 0):
        yield f"saw {body['instances']} instances and {body['transitions']} events; fewer are left"


def check_files(database: Engine, verdict: Verdict, place: Path, believed: Believed, sound: Mapping[int, str]) -> None:
    """Check the anchors on file: whole and signed; where the database has another or none, history against theirs."""
    for path in making.filed(place):
        try:
            _check_file(database, verdict, path, believed, sound)
        except UNREADABLE as error:
            verdict.note(str(path), None, f"damaged: it, or what belongs to it, cannot be read ({error})")


def _check_file(database: Engine, verdict: Verdict, path: Path, believed: Believed, sound: Mapping[int, str]) -> None:
    text, packed = path.read_text(), path.with_suffix(".heads.gz")
    body = _read(text)
    says = next(_signature(believed, text, path.with_suffix(".sig").read_bytes()), None)
    if says is None and _unpacked_sha256(packed) != body["heads_sha256"]:
        says = "changed: its heads on file are not those that were signed"
    if says is not None:
        verdict.note(str(path), None, says)
    elif sound.get(body["number"]) != text:
        name = f"anchor {body['number']}"
        verdict.note(name, None, f"the database does not have it as it is on file ({path})")
        with gzip.open(packed, "rt", encoding="ascii") as lines:
            heads.compare(database, verdict, heads.parsed(lines), f"{name} on file")


def _signature(believed: Believed, body: str, signature: bytes) -> Iterator[str]:
    name = str(_read(body).get("key"))
    signed = keys.signed(believed, name, body.encode(), signature)
    if signed is None:
        yield f"signed by the key {name}, which is not believed: if you know it, put its public half beside the others"
    elif not signed:
        yield "changed: its signature is not that of its content"


def _digest(seen: Iterable[Head]) -> tuple[str, int]:
    digest, count = sha256(), 0
    for head in seen:
        digest.update(head.line())
        count += 1
    return digest.hexdigest(), count


def _unpacked_sha256(packed: Path) -> str:
    with gzip.GzipFile(packed) as unpacked:
        return hashlib.file_digest(unpacked, "sha256").hexdigest()


def _read(body: str) -> dict[str, Any]:
    try:
        read = json.loads(body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
