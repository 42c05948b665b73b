"""Inputs worth keeping, one file a door: JSON lines of texts whose characters are the bytes (Latin-1)."""

import json
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
ROOM = 20_000  # bytes of a door's file


def kept(door: str) -> list[bytes]:
    """The inputs that are kept of a door."""
    file = _file(door)
    return [_read(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(door: str, inputs: Iterable[bytes]) -> int:
    """Keep these instead, the smallest first, as many as there is room for; how many."""
    lines, room = [], ROOM
    for data in sorted(inputs, key=lambda each: (len(each), each)):
        line = json.dumps(data.decode("latin-1"))
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    _file(door).parent.mkdir(exist_ok=True)
    _file(door).write_text("".join(f"{each}\n" for each in lines))
    return len(lines)


def crashes(door: str) -> dict[str, bytes]:
    """What once crashed: the promise that it broke -> the input."""
    file = HERE / "crashes" / f"{door}.json"
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return {promise: text.encode("latin-1") for promise, text in found.items()}


def _file(door: str) -> Path:
    return HERE / "corpus" / f"{door}.jsonl"


def _read(line: str) -> bytes:
    text: str = json.loads(line)
    return text.encode("latin-1")
