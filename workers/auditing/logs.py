"""Read event logs from files, plain or packed, and check them (`workflows.log`)."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from workers.auditing import files, keys
from workers.auditing.exports import EVENTS, MANIFEST, SIGNATURE
from workflows.definition import Definition
from workflows.log.check import Check

GZIP = b"\x1f\x8b"


class Finding(NamedTuple):
    """What is wrong with a line of a file; line 0 is the file itself."""

    file: str
    line: int
    says: str


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The logs that are meant: files, and those of a directory that is an export."""
    for path in paths:
        yield path / EVENTS if path.is_dir() else path


def seals(path: Path, believed: Mapping[str, Ed25519PublicKey]) -> Iterator[Finding]:
    """Check an export's directory: its manifest's signature, and the checksums of its files.

    Raises:
        OSError: it has no manifest.
    """
    file = path / MANIFEST
    body = file.read_bytes()
    try:
        manifest = json.loads(body)
        named, listed = manifest["key"], [(each["name"], each["sha256"]) for each in manifest["files"]]
    except (ValueError, KeyError, TypeError) as error:
        yield Finding(str(file), 0, f"is no manifest: {error}")
        return
    signed = keys.signed(believed, named, body, (path / SIGNATURE).read_bytes())
    if signed is None:
        yield Finding(
            str(file), 0, f"is signed by the key {named}, which is not believed: --trust FILE, if you know it"
        )
    elif not signed:
        yield Finding(str(file), 0, "changed: its signature is not that of its content")
    for name, expected in listed:
        target = path / name
        found = files.sha256_of(target) if target.exists() else "nothing"
        if found != expected:
            yield Finding(str(target), 0, f"its SHA-256 is {found}; the manifest expects {expected}")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A log, unpacked where it is packed."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
        file.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield file


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
                for line, text in enumerate(lines, 1):
                    for says in check.feed(line, text):
                        yield Finding(str(path), line, says)
                    if line % 1_000 == 0:
                        progress(check.events)
            except (EOFError, zlib.error, gzip.BadGzipFile) as torn:
                yield Finding(str(path), line + 1, f"the packed file ends or is damaged here: {torn}")
    yield check.events
