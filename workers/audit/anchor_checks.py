"""Checks anchors, in the database and on file: are they as signed, and does history still have what they recorded?"""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping

from interlock.db.audit import anchors, schema_state
from interlock.db.audit.snapshot import Snapshot
from interlock.db.audit.verify import Verdict
from interlock.db.connection import transaction
from interlock.workers.audit import chain_heads
from interlock.workers.audit.anchors import HEADS, PROOF, AnchorFault, digest_of, edge_after
from interlock.workers.audit.signed_checkpoints import TrustedKeys, proof_of
from interlock.workflows.audit.checkpoints import Proof
from interlock.workflows.audit.events import timestamp
from interlock.workflows.audit.merkle import EMPTY, Edge
from interlock.workflows.input.json_text import read

Signed = tuple[str, str]  # an anchor's record, and the text of its checkpoint

UNREADABLE = (OSError, ValueError, TypeError, EOFError, zlib.error)  # errors that a manipulated file can raise


@dataclass(slots=True)
class InDatabase:
    """The state of a walk along the database's anchors.

    Attributes:
        sound: number -> record and checkpoint of those whose heads are as signed.
        edge: the right edge of the tree that ends with the last anchor; None: it is damaged.
        expected: the number of the next anchor.
    """

    sound: dict[int, Signed] = field(default_factory=dict)
    edge: Edge | None = EMPTY
    expected: int = 1


def check_database(database: Engine, verdict: Verdict, keys: TrustedKeys) -> Mapping[int, Signed]:
    """Check the anchors in the database: signatures, numbers, that each follows the one before, and its heads.

    Args:
        database: where they are.
        verdict: collects the problems, and counts the anchors.
        keys: the trusted public keys.

    Returns:
        Number -> record and checkpoint of the anchors whose heads are as signed.
    """
    walk = InDatabase()
    with transaction(database) as connection:
        rows = anchors.listed(connection)
        totals = anchors.totals(connection)  # read after the anchors: never less than they saw
        schemas = schema_state.recorded_digests(connection)
        for row in rows:
            for message in (*_wrong(connection, row, walk, keys, totals), *_schema(row, schemas)):
                verdict.note(f"anchor {row['number']}", None, message)
            verdict.anchors += 1
    return walk.sound


def check_heads(database: Engine, verdict: Verdict) -> None:
    """Check history against the heads that the database's anchors recorded."""
    with Snapshot(database) as snapshot:
        for lost in anchors.missing(snapshot):
            chain_heads.note_lost(verdict, lost.workflow_id, lost.seq, lost.gone, f"anchor {lost.number}")


def _wrong(
    connection: Connection, row: RowMapping, walk: InDatabase, keys: TrustedKeys, totals: tuple[int, int]
) -> Iterator[str]:
    record, number = _read(row["record"]), row["number"]
    proof, faults = proof_of(row["record"], row["proof"], keys)
    yield from faults
    yield from _follows(row, proof, walk)
    if record.get("number") != number:
        yield f"changed: its record is that of anchor {record.get('number')}"
    if record.get("made_at") != timestamp(row["made_at"]):  # from when on the journal and exports are read
        yield f"changed: its record was made at {record.get('made_at')}"
    if digest_of(anchors.heads(connection, number)) != (record.get("heads_sha256"), record.get("heads")):
        yield "changed: its heads are not those that were signed"
    elif proof:
        walk.sound[number] = (row["record"], proof.note.text)
    saw = _count(record, "instances"), _count(record, "transitions")
    if totals[0] < saw[0] or totals[1] < saw[1]:
        yield f"saw {saw[0]} instances and {saw[1]} events; fewer are left"


def _follows(row: RowMapping, proof: Proof | None, walk: InDatabase) -> Iterator[str]:
    """Check an anchor's place: the tree before it is the one that ends with the anchor before."""
    if row["number"] != walk.expected:
        yield f"gap: anchor {walk.expected} is missing"
    elif proof and walk.edge is not None and (proof.entry, proof.path) != (row["number"] - 1, walk.edge):
        yield "does not follow the anchor before it"
    try:
        walk.edge = edge_after(row)
    except AnchorFault:
        walk.edge = None
    walk.expected = row["number"] + 1


def _schema(row: RowMapping, recorded: frozenset[str]) -> Iterator[str]:
    if _read(row["record"]).get("schema_sha256") not in recorded:
        yield "signed while the schema was as no migration left it, or what migrations recorded was changed since"


def _count(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    return value if type(value) is int else 0  # manipulated: its signature shows that


def exports_named(sound: Mapping[int, Signed]) -> Mapping[int, tuple[int, str]]:
    """Number -> number and manifest's SHA-256 of the export that an anchor's record names."""
    named: dict[int, tuple[int, str]] = {}
    for number, (record, _) in sound.items():
        match _read(record).get("export"):
            case {"number": int(export), "manifest": str(manifest)}:
                named[number] = export, manifest
    return named


def check_files(
    database: Engine, verdict: Verdict, paths: Iterable[Path], keys: TrustedKeys, sound: Mapping[int, Signed]
) -> None:
    """Check that anchors on file are whole and signed; if the database has another or none, history against them."""
    for path in paths:
        try:
            _check_file(database, verdict, path, keys, sound)
        except UNREADABLE as error:
            verdict.note(str(path), None, f"damaged: it, or what belongs to it, cannot be read ({error})")


def _check_file(database: Engine, verdict: Verdict, path: Path, keys: TrustedKeys, sound: Mapping[int, Signed]) -> None:
    text, packed = path.read_text(), path.with_suffix(HEADS)
    record = _read(text)
    proof, faults = proof_of(text, path.with_suffix(PROOF).read_text(), keys)
    message = next(iter(faults), None)
    if message is None and _unpacked_sha256(packed) != record.get("heads_sha256"):
        message = "changed: its heads on file are not those that were signed"
    if proof is None or message is not None:
        verdict.note(str(path), None, message or "damaged")
    elif sound.get(number := proof.entry + 1) != (text, proof.note.text):
        name = f"anchor {number}"
        verdict.note(name, None, f"the database does not have it as it is on file ({path})")
        with gzip.open(packed, "rt", encoding="ascii") as lines:
            chain_heads.compare(database, verdict, chain_heads.parsed(lines), f"{name} on file")


def _unpacked_sha256(packed: Path) -> str:
    with gzip.GzipFile(packed) as unpacked:
        return hashlib.file_digest(unpacked, "sha256").hexdigest()


def _read(text: str) -> dict[str, Any]:
    try:
        found = read(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
