"""Small JSON files written whole or not at all: they record work begun, so that a retry recognizes its leftovers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record atomically and durably."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=2, sort_keys=True, default=str)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read(path: Path) -> dict[str, Any] | None:
    """The record, or None if there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found
