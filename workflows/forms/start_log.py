"""The log of what was started elsewhere of a handover's file, one line for each step of each instance."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from os import fsync
from pathlib import Path
from typing import TextIO
from uuid import UUID

STARTING, STARTED = "starting", "started"


@dataclass(slots=True)
class StartLog:
    """What a log says: which instances were to be started, and which of them were."""

    begun: set[UUID] = field(default_factory=set)
    started: set[UUID] = field(default_factory=set)

    @classmethod
    def of(cls, file: Path) -> "StartLog":
        """The log beside a handover's file; empty if nobody has begun to start it. Raises `OSError`."""
        found = cls()
        if log_of(file).exists():
            for line in log_of(file).read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):  # one that a killed process did not finish
                    said = json.loads(line)
                    (found.started if said["status"] == STARTED else found.begun).add(UUID(said["id"]))
        return found


def log_of(file: Path) -> Path:
    """Where the log of a handover's file is."""
    return file.with_suffix(".started.jsonl")


def note(log: TextIO, ids: Iterable[str], status: str) -> None:
    """Write a step of some instances, and flush it to disk."""
    log.write("".join(json.dumps({"id": each, "status": status}) + "\n" for each in ids))
    log.flush()
    fsync(log.fileno())
