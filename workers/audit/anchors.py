"""Make anchors: sign the heads of all chains that changed, with the hash of the anchor before, and file it."""

import gzip
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from db import anchors
from db.connect import transaction
from workers.auditing import files, keys
from workers.runtime import Runtime
from workflows.events import timestamp

NAME = re.compile(r"anchor-\d+\.json")
FIRST = "0" * 64  # what the first anchor has for the hash of the one before


def anchor(runtime: Runtime) -> int:
    """Make an anchor of all that changed since the last one, and file what is not filed yet; how many heads.

    Nothing changed, no anchor: 0.

    Raises:
        KeyFault: there is no key to sign with.
        DBAPIError, OSError: the database is away, or the directory cannot be written; the next one makes up for it.
    """
    with transaction(runtime.database) as connection:
        anchors.lock(connection)
        count = _sign(connection, runtime.settings.signing_directory)
    file_all(runtime)
    return count


def due(runtime: Runtime) -> bool:
    """Whether the last anchor is older than the settings want."""
    with transaction(runtime.database) as connection:
        last = anchors.newest(connection)
    return last is None or last["age_seconds"] >= runtime.settings.anchor_seconds


def _sign(connection: Connection, directory: Path) -> int:
    last = anchors.newest(connection)
    number = last["number"] + 1 if last else 1
    count = anchors.gather(connection, number)
    if count == 0:
        return 0
    signer = keys.signer(directory, may_make=last is None)
    digest = sha256()
    for head in anchors.heads(connection, number):
        digest.update(head.line())
    instances, transitions = anchors.totals(connection)
    made_at = connection.exec_driver_sql("SELECT now()").scalar_one()
    body = json.dumps(
        {
            "number": number,
            "made_at": timestamp(made_at),
            "heads": count,
            "heads_sha256": digest.hexdigest(),
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
    """The newest anchor as an export's manifest holds it."""
    row = anchors.newest(connection)
    return {"body": row["body"], "signature": bytes(row["signature"]).hex()} if row else None


def hash_of(row: Any) -> str:
    """What the next anchor says of this one: SHA-256 (hex) over its body and signature."""
    return sha256(row["body"].encode() + bytes(row["signature"])).hexdigest()


def directory(runtime: Runtime) -> Path:
    """Where anchors are filed."""
    return runtime.settings.audit_directory / "anchors"


def filed(place: Path) -> list[Path]:
    """The bodies of the anchors on file, in order."""
    return sorted((path for path in place.glob("anchor-*.json") if NAME.fullmatch(path.name)), key=_number)


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("anchor-"))


def file_all(runtime: Runtime) -> None:
    """File the anchors behind the last one that is on file: body, signature, heads; nothing is ever overwritten."""
    place = directory(runtime)
    place.mkdir(parents=True, exist_ok=True)
    last = max(map(_number, filed(place)), default=0)
    with transaction(runtime.database) as connection:
        for row in anchors.listed(connection, after=last):
            stem = f"anchor-{row['number']:06}"
            with files.put(place / f"{stem}.heads.gz") as opened, gzip.GzipFile("", "wb", 6, opened, mtime=0) as packed:
                for head in anchors.heads(connection, row["number"]):
                    packed.write(head.line())
            with files.put(place / f"{stem}.sig") as opened:
                opened.write(bytes(row["signature"]))
            with files.put(place / f"{stem}.json") as opened:  # last: where it is, the others are
                opened.write(row["body"].encode())
