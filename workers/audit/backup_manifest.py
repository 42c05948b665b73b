"""A backup's `manifest.json`: written last and signed, with the checksum of every other file.

It is signed with the key that signs anchors. A restore trusts only public keys that it had before: the keys inside the
backup prove nothing.
"""

import errno
import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import TypeAdapter

from interlock.workers.audit.signing_keys import Signer, signed
from interlock.workers.system.safe_walk import plain_file
from interlock.workflows.errors import Refused

NAME = "manifest.json"
FORMAT = 2
CHUNK = 1 << 20
LARGEST = 1 << 20  # maximum bytes of a manifest; ours have about 2,000
PURPOSE = b"interlock backup manifest\n"  # part of the signed text, so that no anchor's or export's signature fits
BASE, LOG, CONTENTS, KEYS = "base.tar.gz", "pg_wal.tar.gz", "backup_manifest", "keys"
PUBLIC_KEY = re.compile(rf"{KEYS}/[0-9a-f]{{16}}\.pub")

TrustedKeys = Mapping[str, Ed25519PublicKey]
"""Fingerprint -> public key of those whose backups are believed."""


class BackupUnusable(Refused):
    """A backup is incomplete, or this installation cannot restore it. Use another; nothing was changed."""


class UnknownKey(BackupUnusable):
    """A backup was signed with a key that is not trusted: another installation's, or one whose public key was lost."""


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        taken_at: when it was completed, ISO, by the database's clock.
        postgres: PostgreSQL's major version.
        schema: the database schema's name (`INTERLOCK_SCHEMA`).
        revision: its revision.
        database, role: the database and role that it contains.
        events_before, events_after: the number of events when the backup began and when it was completed; the backup
            contains at least the former.
        anchor: the number of the newest anchor at its beginning; None if there was none.
        files: name -> SHA-256.
        sizes: name -> bytes.
        unpacked: total bytes of the contents of the packed files.
    """

    taken_at: str
    postgres: int
    schema: str
    revision: str
    database: str
    role: str
    events_before: int
    events_after: int
    anchor: int | None
    files: dict[str, str]
    sizes: dict[str, int]
    unpacked: int
    format: int = FORMAT

    def write(self, directory: Path, signer: Signer) -> None:
        """Write the manifest with its own checksum and signature."""
        body = asdict(self)
        signature = b64encode(signer.sign(PURPOSE + _canonical(body))).decode()
        body |= {"checksum": _own(body), "signed_by": signer.name, "signature": signature}
        (directory / NAME).write_text(json.dumps(body, indent=2) + "\n")


SHAPE = TypeAdapter(Manifest)


def read(directory: Path, keys: TrustedKeys | None) -> Manifest:
    """Read a backup's manifest.

    Args:
        directory: the backup.
        keys: the trusted keys; None: accept any backup, signed or not.

    Raises:
        BackupUnusable: the manifest is missing, was changed, has another format, or no trusted key signed it.
    """
    try:
        with opened(directory / NAME) as file:
            body = json.loads(file.read(LARGEST))
        header = {name: str(body.pop(name)) for name in ("checksum", "signed_by", "signature")}
        if body["format"] != FORMAT:
            raise BackupUnusable(
                f"{directory} has backup format {str(body['format'])[:20]}, not {FORMAT}: "
                "use the Interlock version that made it"
            )
        found = SHAPE.validate_json(json.dumps(body), strict=True)
        if asdict(found) != body or datetime.fromisoformat(found.taken_at).tzinfo is None:
            raise ValueError("unknown fields")
        signature = b64decode(header["signature"], validate=True)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as unreadable:
        raise BackupUnusable(
            f"{directory} is not a complete backup: {NAME} cannot be read ({_first_line(unreadable)}). "
            "An interrupted backup has none."
        ) from unreadable
    if header["checksum"] != _own(body):
        raise BackupUnusable(f"{directory} is damaged: {NAME} was changed after it was written")
    if keys is not None:
        _require_signed(
            directory, header["signed_by"], signed(keys, header["signed_by"], PURPOSE + _canonical(body), signature)
        )
    for name in {*found.files, BASE, LOG}:
        if name not in found.files:
            raise BackupUnusable(f"{directory} is not a complete backup: it has no {name}")
        if name not in (BASE, LOG, CONTENTS) and not PUBLIC_KEY.fullmatch(name):
            raise BackupUnusable(f"{directory} is not a backup by Interlock: it has a file {name[:100]!a}")
    return found


def _require_signed(directory: Path, name: str, verdict: bool | None) -> None:
    if verdict is None:
        raise UnknownKey(
            f"{directory} was signed with the key {name[:16]!a}, which is not trusted here. Give its public key, as "
            "you kept it elsewhere, with --trust FILE; or, if it is lost, use --trust-anyone: then nothing proves that "
            "the backup is yours and unchanged, and any code in its database will run here"
        )
    if not verdict:
        raise BackupUnusable(f"{directory} was changed: {NAME} does not have a valid signature of {name[:16]!a}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def opened(file: Path) -> BinaryIO:
    """Open a regular file for reading. Raises `BackupUnusable` for a pipe or a device, `OSError` for a link."""
    try:
        return os.fdopen(plain_file(file), "rb")
    except OSError as refused:
        if refused.errno == errno.EINVAL:
            raise BackupUnusable(f"{file} is not a regular file") from None
        raise


def check(directory: Path, manifest: Manifest, progress: Callable[[int, int], None] = lambda *_: None) -> None:
    """Compare every file with its checksum. Raises `BackupUnusable` for the first that differs."""
    total, done = sum(manifest.sizes.values()), 0

    def count(bytes_: int) -> None:
        nonlocal done
        done += bytes_
        progress(done, total)

    for name, expected in manifest.files.items():
        try:
            found = checksum(directory / name, count)
        except OSError as missing:
            raise BackupUnusable(f"{directory} is damaged: {name} cannot be read ({missing})") from missing
        if found != expected:
            raise BackupUnusable(
                f"{directory} is damaged: {name} was changed after it was written. Use another backup."
            )


def checksum(file: Path, count: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a file, in hex."""
    digest = sha256()
    with opened(file) as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            count(len(chunk))
    return digest.hexdigest()


def _own(body: dict[str, object]) -> str:
    return sha256(_canonical(body)).hexdigest()


def _canonical(body: dict[str, object]) -> bytes:
    return json.dumps(body, sort_keys=True).encode()
