"""Read event logs from files, plain or packed, and check them (`workflows.log`)."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ValidationError

from workers.auditing import files, keys
from workers.auditing.exports import EVENTS, MANIFEST, SIGNATURE
from workflows.definition import Definition
from workflows.errors import BadInput
from workflows.log.check import Check

GZIP = b"\x1f\x8b"
LONGEST = 16 * 2**20  # bytes of a line: what is longer is no log, and would fill the memory
TOO_LONG = f"longer than {LONGEST // 2**20} MiB; expected an event"


class Finding(NamedTuple):
    """What is wrong with a line of a file; line 0 is the file itself."""

    file: str
    line: int
    says: str


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The logs that are meant: files, and those of a directory that is an export."""
    for path in paths:
        yield path / EVENTS if path.is_dir() else path


def seals(paths: Iterable[Path], believed: Mapping[str, Ed25519PublicKey]) -> Iterator[Finding]:
    """Check exports' directories: their manifests' signatures, their files' checksums, and that each follows the last.

    Raises:
        BadInput: one is no export.
        OSError: one cannot be read.
    """
    before: tuple[int, str] | None = None
    for path in paths:
        file = path / MANIFEST
        if not file.exists():
            raise BadInput(f"{path} is a directory, but no export: it has no {MANIFEST}")
        body = file.read_bytes()
        try:
            manifest = Manifest.model_validate_json(body)
        except ValidationError as error:
            yield Finding(str(file), 0, f"is no manifest of an export: {error.errors()[0]['msg']}")
            before = None
            continue
        says = [*_signed(path, body, manifest, believed), *_follows(manifest, before)]
        yield from (Finding(str(file), 0, each) for each in says)
        yield from _unsealed(path, manifest)
        before = manifest.number, sha256(body).hexdigest()


class Manifest(BaseModel):
    """What of a manifest is checked."""

    class File(BaseModel):
        """One of the export's files."""

        name: str
        sha256: str

    number: int
    previous: str
    key: str
    files: list[File]


def _signed(path: Path, body: bytes, manifest: Manifest, believed: Mapping[str, Ed25519PublicKey]) -> Iterator[str]:
    signature = (path / SIGNATURE).read_bytes() if (path / SIGNATURE).exists() else b""
    signed = keys.signed(believed, manifest.key, body, signature)
    if signed is None:
        yield f"is signed by the key {manifest.key}, which is not believed: --trust FILE, if you know it"
    elif not signed:
        yield "changed: its signature is not that of its content"


def _follows(manifest: Manifest, before: tuple[int, str] | None) -> Iterator[str]:
    if before and manifest.number != before[0] + 1:
        yield f"gap: export {manifest.number} follows {before[0]}; expected {before[0] + 1}"
    elif before and manifest.previous != before[1]:
        yield f"does not follow export {before[0]} as it is here"


def _unsealed(path: Path, manifest: Manifest) -> Iterator[Finding]:
    for each in manifest.files:
        target = path / each.name
        found = files.sha256_of(target) if target.exists() else "nothing"
        if found != each.sha256:
            yield Finding(str(target), 0, f"its SHA-256 is {found}; the manifest expects {each.sha256}")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A log, unpacked where it is packed."""
    with path.open("rb") as file:
        if file.peek(2)[:2] == GZIP:  # not read: what comes through a pipe cannot be read again
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield file


def _lines(log: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Each line and its number, from 1; None for one that is too long, which is skipped."""
    number = 0
    while text := log.readline(LONGEST):
        number, whole = number + 1, len(text) < LONGEST or text.endswith(b"\n")
        yield number, text if whole else None
        while not whole:
            rest = log.readline(LONGEST)
            whole = len(rest) < LONGEST or rest.endswith(b"\n")


def validate(
    paths: Iterable[Path], definitions: Iterable[Definition], progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding | int]:
    """Check files that continue each other, in the order given, line by line.

    Yields:
        each finding; at the end the number of events.

    Raises:
        OSError: a file cannot be read.
    """
    check = Check.against(definitions)
    for path in _files(paths):
        line = 0
        with opened(path) as lines:
            try:
                for line, text in _lines(lines):
                    for says in check.feed(line, text) if text is not None else (TOO_LONG,):
                        yield Finding(str(path), line, says)
                    if line % 1_000 == 0:
                        progress(check.events)
            except (EOFError, zlib.error, gzip.BadGzipFile) as torn:
                yield Finding(str(path), line + 1, f"the packed file ends or is damaged here: {torn}")
    yield check.events
