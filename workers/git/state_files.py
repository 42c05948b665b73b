"""Small JSON files that are there whole or not at all: what was begun, so that a retry can tell its own leftovers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Put a record down, in one step and for good."""
    begun = path.with_name(f"{path.name}.new")
    with begun.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=2, sort_keys=True, default=str)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    begun.replace(path)


def read(path: Path) -> dict[str, Any] | None:
    """The record, or None where there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found
