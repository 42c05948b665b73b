"""The log of what was started elsewhere of a handover's file, one line for each step of each instance."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import LOCK_EX, LOCK_NB, flock
from os import fsync
from pathlib import Path
from typing import TextIO
from uuid import UUID

from interlock.workflows.errors import BadInput

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


@contextmanager
def held_log(file: Path) -> Iterator[TextIO]:
    """The log of a handover's file, to add to; while it is open, nobody else starts or takes back.

    Raises:
        BadInput: somebody else does.
        OSError: it cannot be written.
    """
    with log_of(file).open("a", encoding="utf-8") as log:
        try:
            flock(log, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise BadInput(
                f"{log_of(file)} is in use: wait until what is being started or taken back is done"
            ) from None
        log.write("\n")  # after a line that a killed process did not finish
        yield log


def note(log: TextIO, ids: Iterable[str], status: str) -> None:
    """Write a step of some instances, and flush it to disk."""
    log.write("".join(json.dumps({"id": each, "status": status}) + "\n" for each in ids))
    log.flush()
    fsync(log.fileno())
