"""Makes anchors: signs the heads of all chains that changed, as an entry of the tree of all anchors, and files them.

An anchor's record is that entry; what is signed is a checkpoint of the tree (RFC 6962) that ends with it.
"""

import gzip
import json
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, RowMapping

from interlock.db.audit import anchors, exports, schema_state
from interlock.db.audit.anchors import Head
from interlock.db.connection import transaction
from interlock.workers.audit import signed_checkpoints, signing_keys
from interlock.workers.runtime import Runtime
from interlock.workers.system import write_once
from interlock.workflows.audit import merkle
from interlock.workflows.audit.checkpoints import Proof, parsed_proof, witness_request
from interlock.workflows.audit.events import timestamp
from interlock.workflows.audit.merkle import Edge
from interlock.workflows.errors import BadInput, InterlockError

NAME = re.compile(r"anchor-\d+\.json")
RECORD, PROOF, HEADS = ".json", ".tlog-proof", ".heads.gz"


class AnchorFault(InterlockError):
    """The newest anchor in the database is damaged, so none can follow it: `interlock audit verify` says which."""


def anchor(runtime: Runtime) -> int:
    """Make an anchor of all that changed since the last one, and file the anchors that are not filed yet.

    Returns:
        The number of heads; 0 if nothing changed, and then no anchor is made.

    Raises:
        KeyFault, AnchorFault: there is no key to sign with; or the newest anchor is damaged.
        DBAPIError, OSError: the database is unreachable, or the directory cannot be written. The next anchor covers
            what this one missed.
    """
    with transaction(runtime.database) as connection:
        anchors.lock(connection)
        count = _sign(connection, runtime.settings.signing_directory)
    file_all(runtime)
    return count


def due(runtime: Runtime) -> bool:
    """Whether the last anchor is older than the settings allow."""
    with transaction(runtime.database) as connection:
        last = anchors.newest(connection)
    return last is None or last["age_seconds"] >= runtime.settings.anchor_seconds


def _sign(connection: Connection, directory: Path) -> int:
    last = anchors.newest(connection)
    number = last["number"] + 1 if last else 1
    count = anchors.gather(connection, number)
    if count == 0:
        return 0
    signer = signing_keys.signer(directory, may_make=last is None)
    digest, _ = digest_of(anchors.heads(connection, number))
    instances, transitions = anchors.totals(connection)
    made_at = connection.exec_driver_sql("SELECT now()").scalar_one()
    record = json.dumps(
        {
            "number": number,
            "made_at": timestamp(made_at),
            "heads": count,
            "heads_sha256": digest,
            "instances": instances,
            "transitions": transitions,
            "schema_sha256": schema_state.digest(schema_state.present(connection)),
            "export": exports.named(exports.newest(connection)),
        },
        indent=1,
    )
    path = edge_after(last)
    root = merkle.root((merkle.leaf_hash(record.encode()), *path))
    proof = Proof(number - 1, path, signed_checkpoints.signed(signer, number, root))
    anchors.add(connection, number, made_at, record, str(proof))
    return count


def edge_after(row: Any) -> Edge:
    """The right edge of the tree that ends with an anchor; of the empty tree for None. Raises `AnchorFault`."""
    if row is None:
        return merkle.EMPTY
    try:
        proof = parsed_proof(row["proof"])
    except ValueError as error:
        raise AnchorFault(
            f"anchor {row['number']} in the database is damaged: {error}; interlock audit verify"
        ) from error
    if proof.entry != row["number"] - 1 or not merkle.is_last(row["number"], proof.path):
        raise AnchorFault(
            f"anchor {row['number']} in the database has another place in the tree; interlock audit verify"
        )
    return merkle.appended(proof.path, proof.entry, merkle.leaf_hash(row["record"].encode()))


def checkpoint(runtime: Runtime, old: int | None = None) -> str | None:
    """The newest anchor's signed checkpoint, or the request that asks a witness to cosign it (c2sp.org/tlog-witness).

    Args:
        runtime: the database.
        old: the number of the anchor that the witness cosigned last, 0: none; None: only the checkpoint.

    Returns:
        The text; None if there is no anchor.

    Raises:
        BadInput: there is no anchor of that number.
        AnchorFault: the newest anchor is damaged.
    """
    with transaction(runtime.database) as connection:
        rows = anchors.listed(connection)
    if not rows:
        return None
    edge_after(rows[-1])
    note = parsed_proof(rows[-1]["proof"]).note
    if old is None:
        return str(note)
    if old > len(rows):
        raise BadInput(f"no anchor {old}, the newest is {len(rows)}: give the one that the witness saw last, or 0")
    leaves = [merkle.leaf_hash(row["record"].encode()) for row in rows]
    return witness_request(old, merkle.consistency(leaves, old), note)


def last(connection: Connection) -> dict[str, Any] | None:
    """The newest anchor, in the form of an export's manifest."""
    row = anchors.newest(connection)
    return {"record": row["record"], "proof": row["proof"]} if row else None


def digest_of(heads: Iterable[Head]) -> tuple[str, int]:
    """The SHA-256 (hex) of an anchor's heads, and their number."""
    digest, count = sha256(), 0
    for head in heads:
        digest.update(head.line())
        count += 1
    return digest.hexdigest(), count


def directory(runtime: Runtime) -> Path:
    """The directory where anchors are filed."""
    return runtime.settings.audit_directory / "anchors"


def filed(place: Path) -> list[Path]:
    """The records of the anchors on file, in order."""
    return sorted((path for path in place.glob("anchor-*.json") if NAME.fullmatch(path.name)), key=number)


def number(path: Path) -> int:
    """The number of an anchor on file."""
    return int(path.stem.removeprefix("anchor-"))


def file_all(runtime: Runtime) -> None:
    """File all anchors after the last one on file. No file is ever overwritten."""
    place = directory(runtime)
    place.mkdir(parents=True, exist_ok=True)
    last = max(map(number, filed(place)), default=0)
    with transaction(runtime.database) as connection:
        for row in anchors.listed(connection, after=last):
            file(connection, place, row)


def file(connection: Connection, place: Path, row: RowMapping) -> None:
    """Write an anchor's record, proof and heads into a directory. Raises `OSError`: then its record is not there."""
    stem = f"anchor-{row['number']:06}"
    with (
        write_once.put(place / (stem + HEADS)) as opened,
        gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed,
    ):
        for head in anchors.heads(connection, row["number"]):
            packed.write(head.line())
    with write_once.put(place / (stem + PROOF)) as opened:
        opened.write(row["proof"].encode())
    with write_once.put(place / (stem + RECORD)) as opened:  # last: if this file exists, the others do
        opened.write(row["record"].encode())
