"""What a backup says of itself: `manifest.json`, written last, with the checksum of every other file."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path

from workflows.errors import Refused

NAME = "manifest.json"
FORMAT = 1
CHUNK = 1 << 20


class BackupUnusable(Refused):
    """A backup is not whole, or not one that this installation can restore. Take another; nothing was touched."""


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        taken_at: when it was complete, ISO, by the database's clock.
        postgres: the major version that made it.
        revision: of the schema.
        database, role: what it is restored as.
        events_before, events_after: history when it began, and when it was complete; it has at least the former.
        anchor: the newest anchor's number then, None where there was none.
        files: name -> SHA-256.
        sizes: name -> bytes.
    """

    taken_at: str
    postgres: int
    revision: str
    database: str
    role: str
    events_before: int
    events_after: int
    anchor: int | None
    files: dict[str, str]
    sizes: dict[str, int]
    format: int = FORMAT

    def write(self, directory: Path) -> None:
        """Write it, with a checksum of its own."""
        body = asdict(self)
        body["checksum"] = _own(asdict(self))
        (directory / NAME).write_text(json.dumps(body, indent=2) + "\n")


def read(directory: Path) -> Manifest:
    """Read a backup's manifest.

    Raises:
        BackupUnusable: there is none, or it was changed, or it is of a later form.
    """
    try:
        body = json.loads((directory / NAME).read_text())
        said = body.pop("checksum")
        known = {each.name for each in fields(Manifest)}
        if body["format"] != FORMAT or set(body) != known:
            raise BackupUnusable(
                f"{directory} is a backup of form {body['format']}, this is {FORMAT}: use what made it"
            )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as unreadable:
        raise BackupUnusable(
            f"{directory} is no whole backup: {NAME} cannot be read ({unreadable}). An interrupted one has none."
        ) from unreadable
    if said != _own(body):
        raise BackupUnusable(f"{directory} is damaged: {NAME} is not as it was written")
    return Manifest(**body)


def check(directory: Path, manifest: Manifest, progress: Callable[[int, int], None] = lambda *_: None) -> None:
    """Compare every file with its checksum. Raises `BackupUnusable`, naming the first that differs."""
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
            raise BackupUnusable(f"{directory} is damaged: {name} is not as it was written. Take another backup.")


def checksum(file: Path, count: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a file, in hex."""
    digest = sha256()
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            count(len(chunk))
    return digest.hexdigest()


def _own(body: dict[str, object]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
