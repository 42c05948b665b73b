"""Backups that somebody else made: their manifest, signed by one who is believed, and the tars that are unpacked."""

import gzip
import io
import json
import os
import shutil
import tarfile
from base64 import b64encode
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from hypothesis import strategies as st

from interlock.db.schema import ENGINE
from interlock.supervisor.backup import restore
from interlock.supervisor.backup import unpack as unpacking
from interlock.supervisor.servers import postgres
from interlock.supervisor.servers.endpoints import DATABASE
from interlock.workers.audit import backup_manifest as manifest
from interlock.workers.audit.backup_manifest import BASE, LOG, PURPOSE, Manifest
from tests.fuzz.door import Door, Ground, Target, overwrite
from tests.fuzz.doors.audits import KEY, NAME
from tests.fuzz.shapes import documents, spliced, written

EMPTY = sha256(b"").hexdigest()
BACKUP = asdict(
    Manifest(
        "2026-01-01T00:00:00+00:00",
        int(postgres.MAJOR),
        "interlock",
        "0007",
        DATABASE,
        ENGINE,
        1,
        2,
        1,
        {BASE: EMPTY, LOG: EMPTY},
        {BASE: 0, LOG: 0},
        0,
    )
)
LIMIT = 100_000  # bytes unpacked


def _manifest(ground: Ground) -> Target:
    directory = ground.directory / "backup"
    for name in (BASE, LOG):
        overwrite(directory / name, b"")

    def read(data: bytes) -> None:
        overwrite(directory / manifest.NAME, _signed(data))
        found = manifest.read(directory, {NAME: KEY.public_key()})
        restore._require_restorable(directory, found, ("0001", "0007"))
        manifest.check(directory, found)

    return read


def _signed(data: bytes) -> bytes:
    """A manifest as somebody signs it who knows how; what is no JSON as it is."""
    try:
        body = json.loads(data)
        canonical = manifest._canonical(body)
    except (ValueError, RecursionError):
        return data
    if not isinstance(body, dict) or "checksum" in body:
        return data
    signature = b64encode(KEY.sign(PURPOSE + canonical)).decode()
    sealed = {"checksum": sha256(canonical).hexdigest(), "signed_by": NAME, "signature": signature}
    return json.dumps(body | sealed).encode()


BACKUPS = Door(
    "backups",
    "Any manifest of a backup is read, or the backup is refused before anything is created from it.",
    _manifest,
    documents(BACKUP, BACKUP | {"checksum": EMPTY, "signed_by": NAME, "signature": "AA=="}),
    (written(BACKUP),),
)


def _archive(ground: Ground) -> Target:
    packed, into = ground.directory / BASE, ground.directory / "into"
    beside = overwrite(ground.directory / "beside" / "passwd", b"root")

    def unpack(data: bytes) -> None:
        overwrite(packed, data[1:] if data[:1] == b"g" else gzip.compress(data[1:], 1, mtime=0))
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        with packed.open("rb") as file:
            checksum = sha256(file.read()).hexdigest()
            file.seek(0)
            try:
                with suppress(OSError):  # a file where a directory should be: `restore` says so
                    unpacking.unpack(packed, file, into, unpacking.DATA, checksum=checksum, limit=LIMIT)
            finally:
                _plain(into)
                assert sorted(ground.directory.iterdir()) == sorted((packed, into, beside.parent))
                assert beside.read_bytes() == b"root", "a tar wrote beside the data directory"

    return unpack


def _plain(into: Path) -> None:
    held = 0
    for directory, names, files in os.walk(into):
        for name in (*names, *files):
            path = Path(directory, name)
            assert not path.is_symlink(), f"{path} is a link"
            assert path.is_dir() or (path.is_file() and path.stat().st_nlink == 1), f"{path} is no plain file"
            held += path.stat().st_size if path.is_file() else 0
    assert held <= LIMIT, "more was unpacked than allowed"


NAMES = (
    "PG_VERSION",
    "base/1/1",
    "./global/x",
    "base/../../beside/passwd",
    "/etc/x",
    "pg_wal/x",
    "pg_tblspc/1",
    "x",
    "",
)
TYPES = (
    tarfile.REGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    b"S",
    b"x",
)


@st.composite
def _tars(draw: st.DrawFn) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=draw(st.sampled_from((0, 1, 2)))) as archive:
        for _ in range(draw(st.integers(0, 4))):
            member = tarfile.TarInfo(draw(st.sampled_from(NAMES)))
            member.type = draw(st.sampled_from(TYPES[:2] * 4 + TYPES))
            member.linkname = draw(st.sampled_from(("", "../beside/passwd", "/etc/passwd", "base")))
            content = draw(st.binary(max_size=40))
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


TARS = _tars() | spliced(_tars())


def _sound() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("PG_VERSION", "base/1/1"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"18\n"))
    return made.getvalue()


ARCHIVES = Door(
    "archives",
    "Any tar of a backup yields only plain files within the data directory, or is refused.",
    _archive,
    TARS.map(b"t".__add__) | TARS.map(lambda tar: b"g" + gzip.compress(tar, 1, mtime=0)) | st.binary(max_size=90),
    (b"t" + _sound(), b"g" + gzip.compress(_sound(), 1, mtime=0)),
)
