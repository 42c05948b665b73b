"""Unpack an untrusted base backup: only PostgreSQL's data, only as regular files and directories.

A tar archive can name paths outside, contain links, devices and sparse files, and unpack to more than any disk.
PostgreSQL's own backup contains only directories and regular files (without tablespaces), so anything else is refused,
not repaired. Its configuration can name programs and libraries to run (`archive_command`, `shared_preload_libraries`),
so it is left out.
"""

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from interlock.workers.audit.backup_manifest import CHUNK, BackupUnusable, opened

# The parts of a data directory that a server needs; other parts, such as its log, are left out.
DATA = re.compile(
    r"(PG_VERSION|backup_label|base|global|pg_(commit_ts|dynshmem|logical|multixact|notify|replslot|serial|snapshots|"
    r"stat|stat_tmp|subtrans|tblspc|twophase|wal|xact))(/.*)?"
)
WAL = re.compile(r"[0-9A-F]{24}(\.[0-9A-F]{8}\.backup)?|[0-9A-F]{8}\.history|archive_status(/[\w.]+)?")
PLAIN = re.compile(r"[\w.\-+/]{1,200}", re.ASCII)
TABLESPACES = ("pg_tblspc/", "tablespace_map")
MOST_MEMBERS = 5_000_000
LARGEST_READ = 1 << 20  # tarfile reads a member's extended header in one piece, of whatever size the archive claims


def measure(packed: Path) -> int:
    """The total size of the members of a packed tar. Raises `BackupUnusable` for anything that `unpack` refuses."""
    with opened(packed) as file:
        return sum(member.size for _, member, _ in _members(packed, file))


def unpack(packed: Path, file: BinaryIO, into: Path, wanted: re.Pattern[str], *, checksum: str, limit: int) -> int:
    """Unpack a packed tar into a directory: files 0600, directories 0700, owned by the current user.

    Args:
        packed: its path, for messages.
        file: the open file, since the current user may not be allowed to open it.
        into: an empty directory.
        wanted: the names to unpack; others are left out.
        checksum: SHA-256, in hex, of the packed bytes.
        limit: the maximum bytes of its contents.

    Returns:
        The bytes of its contents.

    Raises:
        BackupUnusable: a member is not a regular file or directory, leads outside, or is too large; or the checksum
            differs.
    """
    held, hashing = 0, _Hashing(file)
    for archive, member, name in _members(packed, hashing):
        held += member.size
        if held > limit:
            raise BackupUnusable(f"{packed} is larger than its manifest states: over {held:,} bytes")
        if wanted.fullmatch(name):
            member.mode = 0o700 if member.isdir() else 0o600
            archive.extract(member, into, set_attrs=member.isreg())
    while hashing.read(CHUNK):
        pass
    if hashing.digest.hexdigest() != checksum:
        raise BackupUnusable(f"{packed} was changed during the restore")
    return held


_Found = tuple[tarfile.TarFile, tarfile.TarInfo, str]


def _members(packed: Path, file: "BinaryIO | _Hashing") -> Iterator[_Found]:
    seen: set[str] = set()
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as raw, tarfile.open(fileobj=_Measured(raw), mode="r:") as archive:  # type: ignore[arg-type, call-overload]
            # From 3.11.4 on; `_checked` refuses the same.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in archive:
                name = _checked(packed, member)
                if name in seen or len(seen) >= MOST_MEMBERS:
                    raise _refused(packed, member, "appears twice, or exceeds the number of files allowed")
                seen.add(name)
                yield archive, member, name
                archive.members = []  # tarfile would keep every member in memory
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, RecursionError) as broken:
        raise BackupUnusable(f"{packed} cannot be unpacked: {broken}. Use another backup") from broken


def _checked(packed: Path, member: tarfile.TarInfo) -> str:
    """A member's name, if it is a regular file or directory with a safe path."""
    name = member.name.removeprefix("./") or "."
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or member.issparse() or member.size < 0:
        raise _refused(packed, member, "is not a regular file or directory")
    if not PLAIN.fullmatch(name) or name.startswith("/") or ".." in PurePosixPath(name).parts:
        raise _refused(packed, member, "is not a path in a data directory")
    if name.startswith(TABLESPACES) and (member.size or name != TABLESPACES[1]):
        raise _refused(packed, member, "is a tablespace, which lies outside the data directory")
    return name


def _refused(packed: Path, member: tarfile.TarInfo, why: str) -> BackupUnusable:
    return BackupUnusable(f"{packed} is not a backup by Interlock: in it, {member.name[:100]!a} {why}")


class _Hashing:
    """Hashes a file while it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, sha256()

    def read(self, size: int = CHUNK) -> bytes:
        content = self.file.read(size)
        self.digest.update(content)
        return content


class _Measured:
    """Limits the size of reads, so that no member can be read into memory as a whole."""

    def __init__(self, raw: gzip.GzipFile) -> None:
        self.raw, self.tell = raw, raw.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= LARGEST_READ:
            raise tarfile.ReadError("a description in it is too large")
        return self.raw.read(size)

    def seek(self, offset: int) -> int:
        if offset < self.raw.tell():
            raise tarfile.ReadError("it leads back to what was read")
        return self.raw.seek(offset)
