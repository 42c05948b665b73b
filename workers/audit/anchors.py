"""Makes anchors: signs the heads of all chains that changed, with the hash of the anchor before, and files them."""

import gzip
import json
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from interlock.db.audit import anchors
from interlock.db.audit.anchors import Head
from interlock.db.connection import transaction
from interlock.workers.audit import signing_keys
from interlock.workers.runtime import Runtime
from interlock.workers.system import write_once
from interlock.workflows.audit.events import timestamp

NAME = re.compile(r"anchor-\d+\.json")
FIRST = "0" * 64  # the first anchor's value for the hash of the one before


def anchor(runtime: Runtime) -> int:
    """Make an anchor of all that changed since the last one, and file the anchors that are not filed yet.

    Returns:
        The number of heads; 0 if nothing changed, and then no anchor is made.

    Raises:
        KeyFault: there is no key to sign with.
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
    body = json.dumps(
        {
            "number": number,
            "made_at": timestamp(made_at),
            "heads": count,
            "heads_sha256": digest,
            "instances": instances,
            "transitions": transitions,
            "previous": hash_of(last) if last else FIRST,
            "key": signer.name,
        },
        indent=1,
    )
    anchors.add(connection, number, made_at, body, signer.sign(body.encode()))
    return count


def last(connection: Connection) -> dict[str, Any] | None:
    """The newest anchor, in the form of an export's manifest."""
    row = anchors.newest(connection)
    return {"body": row["body"], "signature": bytes(row["signature"]).hex()} if row else None


def digest_of(heads: Iterable[Head]) -> tuple[str, int]:
    """The SHA-256 (hex) of an anchor's heads, and their number."""
    digest, count = sha256(), 0
    for head in heads:
        digest.update(head.line())
        count += 1
    return digest.hexdigest(), count


def hash_of(row: Any) -> str:
    """The value that the next anchor records of this one: SHA-256 (hex) over its body and signature."""
    return sha256(row["body"].encode() + bytes(row["signature"])).hexdigest()


def directory(runtime: Runtime) -> Path:
    """The directory where anchors are filed."""
    return runtime.settings.audit_directory / "anchors"


def filed(place: Path) -> list[Path]:
    """The bodies of the anchors on file, in order."""
    return sorted((path for path in place.glob("anchor-*.json") if NAME.fullmatch(path.name)), key=_number)


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("anchor-"))


def file_all(runtime: Runtime) -> None:
    """File all anchors after the last one on file: body, signature, heads. No file is ever overwritten."""
    place = directory(runtime)
    place.mkdir(parents=True, exist_ok=True)
    last = max(map(_number, filed(place)), default=0)
    with transaction(runtime.database) as connection:
        for row in anchors.listed(connection, after=last):
            stem = f"anchor-{row['number']:06}"
            with (
                write_once.put(place / f"{stem}.heads.gz") as opened,
                gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed,
            ):
                for head in anchors.heads(connection, row["number"]):
                    packed.write(head.line())
            with write_once.put(place / f"{stem}.sig") as opened:
                opened.write(bytes(row["signature"]))
            with write_once.put(place / f"{stem}.json") as opened:  # last: if this file exists, the others do
                opened.write(row["body"].encode())
