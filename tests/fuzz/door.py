"""A door: where bytes of strangers come in, as a function that may only end well or with an error of our own."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis.strategies import SearchStrategy

from interlock.workers.runtime import Runtime
from interlock.workflows.errors import InterlockError

Target = Callable[[bytes], None]
SEPARATOR = b"\xff"  # UTF-8 never has it


@dataclass(frozen=True, slots=True)
class Ground:
    """What a door may stand on.

    Attributes:
        directory: empty, the door's own.
        runtime: with a database where the door asked for one; otherwise with servers that nobody can reach.
    """

    directory: Path
    runtime: Runtime


@dataclass(frozen=True, slots=True)
class Door:
    """One way in.

    Attributes:
        name: what it is called on the command line, and its corpus in `corpus/`.
        promise: what holds whatever comes in.
        opened: makes the function that bytes are given to; what it prepares lasts as long as its ground.
        inputs: Hypothesis's strategy for bytes that have the shape of what is read there.
        seeds: sound inputs, from which fuzzing begins.
        examples: how many inputs of the strategy CI tries.
        on_database: whether it needs one.
    """

    name: str
    promise: str
    opened: Callable[[Ground], Target]
    inputs: SearchStrategy[bytes]
    seeds: Sequence[bytes]
    examples: int = 50
    on_database: bool = False


def knock(target: Target, data: bytes) -> None:
    """Give bytes to a door. Whatever it raises that is not an error of our own, in words, is a crash."""
    try:
        target(data)
    except InterlockError as refused:
        if not str(refused).strip():
            raise AssertionError(f"{type(refused).__name__} says nothing") from refused


def parts(data: bytes, count: int) -> list[str]:
    """The first `count` parts of an input that stands for several texts, as the command line decodes its words."""
    found = [each.decode(errors="surrogateescape") for each in data.split(SEPARATOR)]
    return (found + [""] * count)[:count]


def joined(*texts: str | bytes) -> bytes:
    """The other way."""
    return SEPARATOR.join(each if isinstance(each, bytes) else each.encode(errors="surrogateescape") for each in texts)


def overwrite(file: Path, content: bytes) -> Path:
    """Put a file there, whatever was there before."""
    with suppress(FileNotFoundError):
        file.unlink()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file
