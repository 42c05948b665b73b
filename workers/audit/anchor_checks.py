"""Checks anchors, in the database and on file: are they as signed, and does history still have what they recorded?"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection, Engine, RowMapping

from interlock.db.audit import anchors
from interlock.db.audit.snapshot import Snapshot
from interlock.db.audit.verify import Verdict
from interlock.db.connection import transaction
from interlock.workers.audit import chain_heads, signing_keys
from interlock.workers.audit.anchors import FIRST, digest_of, filed, hash_of
from interlock.workflows.input.json_text import read

TrustedKeys = Mapping[str, Ed25519PublicKey]

UNREADABLE = (OSError, ValueError, TypeError, EOFError, zlib.error)  # errors that a manipulated file can raise


@dataclass(slots=True)
class InDatabase:
    """The state of a walk along the database's anchors. `sound`: number -> body of those that are as signed."""

    sound: dict[int, str] = field(default_factory=dict)
    before: str = FIRST
    expected: int = 1


def check_database(database: Engine, verdict: Verdict, keys: TrustedKeys) -> Mapping[int, str]:
    """Check the anchors in the database, and history against them.

    Args:
        database: where they are.
        verdict: collects the problems, and counts the anchors.
        keys: the trusted public keys.

    Returns:
        Number -> body of the anchors whose heads are as signed.
    """
    walk = InDatabase()
    with transaction(database) as connection:
        totals = anchors.totals(connection)
        for row in anchors.listed(connection):
            for message in _wrong(connection, row, walk, keys, totals):
                verdict.note(f"anchor {row['number']}", None, message)
            verdict.anchors += 1
            walk.before, walk.expected = hash_of(row), row["number"] + 1
    with Snapshot(database) as snapshot:
        for lost in anchors.missing(snapshot):
            chain_heads.note_lost(verdict, lost.workflow_id, lost.seq, lost.gone, f"anchor {lost.number}")
    return walk.sound


def _wrong(
    connection: Connection, row: RowMapping, walk: InDatabase, keys: TrustedKeys, totals: tuple[int, int]
) -> Iterator[str]:
    body = _read(row["body"])
    if row["number"] != walk.expected:
        yield f"gap: anchor {walk.expected} is missing"
    elif body.get("previous") != walk.before:
        yield "does not follow the anchor before it"
    yield from _signature(keys, row["body"], bytes(row["signature"]))
    if digest_of(anchors.heads(connection, row["number"])) == (body.get("heads_sha256"), body.get("heads")):
        walk.sound[row["number"]] = row["body"]
    else:
        yield "changed: its heads are not those that were signed"
    saw = _count(body, "instances"), _count(body, "transitions")
    if totals[0] < saw[0] or totals[1] < saw[1]:
        yield f"saw {saw[0]} instances and {saw[1]} events; fewer are left"


def _count(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    return value if type(value) is int else 0  # manipulated: its signature shows that


def check_files(database: Engine, verdict: Verdict, place: Path, keys: TrustedKeys, sound: Mapping[int, str]) -> None:
    """Check that anchors on file are whole and signed; if the database has another or none, history against them."""
    for path in filed(place):
        try:
            _check_file(database, verdict, path, keys, sound)
        except UNREADABLE as error:
            verdict.note(str(path), None, f"damaged: it, or what belongs to it, cannot be read ({error})")


def _check_file(database: Engine, verdict: Verdict, path: Path, keys: TrustedKeys, sound: Mapping[int, str]) -> None:
    text, packed = path.read_text(), path.with_suffix(".heads.gz")
    body = _read(text)
    message = next(_signature(keys, text, path.with_suffix(".sig").read_bytes()), None)
    if message is None and _unpacked_sha256(packed) != body.get("heads_sha256"):
        message = "changed: its heads on file are not those that were signed"
    if message is not None:
        verdict.note(str(path), None, message)
    elif sound.get(number := body.get("number", 0)) != text:
        name = f"anchor {number}"
        verdict.note(name, None, f"the database does not have it as it is on file ({path})")
        with gzip.open(packed, "rt", encoding="ascii") as lines:
            chain_heads.compare(database, verdict, chain_heads.parsed(lines), f"{name} on file")


def _signature(keys: TrustedKeys, body: str, signature: bytes) -> Iterator[str]:
    name = str(_read(body).get("key"))
    signed = signing_keys.signed(keys, name, body.encode(), signature)
    if signed is None:
        yield f"signed by the key {name}, which is not trusted: if it is yours, put its public key beside the others"
    elif not signed:
        yield "changed: its signature is not that of its content"


def _unpacked_sha256(packed: Path) -> str:
    with gzip.GzipFile(packed) as unpacked:
        return hashlib.file_digest(unpacked, "sha256").hexdigest()


def _read(body: str) -> dict[str, Any]:
    try:
        found = read(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
