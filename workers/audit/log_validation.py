"""Reads event logs from files, plain or packed, and checks them (`workflows.audit`)."""

import gzip
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ValidationError

from interlock.workers.audit import signing_keys
from interlock.workers.audit.exports import EVENTS, MANIFEST, SIGNATURE
from interlock.workers.system import write_once
from interlock.workflows.audit.log_check import Check
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput
from interlock.workflows.output.schema_messages import schema_message

GZIP = b"\x1f\x8b"
SHOWN = 80  # characters of a name
LONGEST = 16 * 2**20  # bytes of a line: a longer line is no log's, and would fill the memory
TOO_LONG = f"longer than {LONGEST // 2**20} MiB; expected an event"


class LogFinding(NamedTuple):
    """What is wrong with a line of a file; line 0 stands for the file itself."""

    file: str
    line: int
    message: str


def seals(paths: Iterable[Path], keys: Mapping[str, Ed25519PublicKey]) -> Iterator[LogFinding]:
    """Check exports' directories: their manifests' signatures, their files' checksums, and that each follows the last.

    Raises:
        BadInput: a directory is not an export.
        OSError: a file cannot be read.
    """
    before: tuple[int, str] | None = None
    for path in paths:
        file = path / MANIFEST
        if not file.exists():
            raise BadInput(f"{path} is a directory, but not an export: it has no {MANIFEST}")
        body = file.read_bytes()
        try:
            manifest = LogManifest.model_validate_json(body)
        except ValidationError as error:
            yield LogFinding(str(file), 0, f"is not a manifest of an export: {schema_message(error.errors()[0])}")
            before = None
            continue
        message = [*_signed(path, body, manifest, keys), *_follows(manifest, before)]
        yield from (LogFinding(str(file), 0, each) for each in message)
        yield from _unsealed(path, manifest)
        before = manifest.number, sha256(body).hexdigest()


class LogManifest(BaseModel):
    """The fields of a manifest that are checked."""

    class File(BaseModel):
        """One of the export's files."""

        name: str
        sha256: str

    number: int
    previous: str
    key: str
    files: list[File]


def _signed(path: Path, body: bytes, manifest: LogManifest, keys: Mapping[str, Ed25519PublicKey]) -> Iterator[str]:
    signature = (path / SIGNATURE).read_bytes() if (path / SIGNATURE).exists() else b""
    signed = signing_keys.signed(keys, manifest.key, body, signature)
    if signed is None:
        yield f"is signed by the key {manifest.key}, which is not trusted: if it is yours, give --trust FILE"
    elif not signed:
        yield "changed: its signature is not that of its content"


def _follows(manifest: LogManifest, before: tuple[int, str] | None) -> Iterator[str]:
    if before and manifest.number != before[0] + 1:
        yield f"gap: export {manifest.number} follows {before[0]}; expected {before[0] + 1}"
    elif before and manifest.previous != before[1]:
        yield f"does not follow export {before[0]} as it is here"


def _unsealed(path: Path, manifest: LogManifest) -> Iterator[LogFinding]:
    for each in manifest.files:
        target = path / each.name
        if each.name != target.name or not _is_plain(target):  # a foreign manifest may name /dev/zero
            yield LogFinding(str(path / MANIFEST), 0, f"names the file {each.name[:SHOWN]!r}; expected one beside it")
            continue
        found = write_once.sha256_of(target)
        if found != each.sha256:
            yield LogFinding(str(target), 0, f"its SHA-256 is {found}; the manifest expects {each.sha256}")


def _is_plain(target: Path) -> bool:
    try:
        return stat.S_ISREG(target.lstat().st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A log file, unpacked if it is packed."""
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == GZIP  # peek, because data from a pipe cannot be read twice
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file


def _lines(log: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number, from 1; None in place of a line that is too long."""
    number = 0
    while text := log.readline(LONGEST):
        number, whole = number + 1, len(text) < LONGEST or text.endswith(b"\n")
        yield number, text if whole else None
        while not whole:
            rest = log.readline(LONGEST)
            whole = len(rest) < LONGEST or rest.endswith(b"\n")


def validate(
    paths: Iterable[Path], definitions: Iterable[Definition], progress: Callable[[int], None] = lambda _: None
) -> Iterator[LogFinding | int]:
    """Check files that continue each other, in the order given, line by line.

    Yields:
        each finding; at the end the number of events.

    Raises:
        OSError: a file cannot be read.
    """
    check = Check.against(definitions)
    for path in (each / EVENTS if each.is_dir() else each for each in paths):  # a directory is an export
        line = 0
        with opened(path) as lines:
            try:
                for line, text in _lines(lines):
                    for message in check.feed(line, text) if text is not None else (TOO_LONG,):
                        yield LogFinding(str(path), line, message)
                    if line % 1_000 == 0:
                        progress(check.events)
            except (EOFError, zlib.error, gzip.BadGzipFile) as torn:
                yield LogFinding(str(path), line + 1, f"the packed file ends or is damaged here: {torn}")
    yield check.events
