"""Copies anchors to where the settings say: to directories, and through commands. One at a time, in order, each once.

A copy that fails is tried again by the next run of the sweep, which then catches up. It stops neither the making of
anchors nor the copies elsewhere. If a process is killed after a command ended, that command gets the anchor again.
"""

import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import structlog
from sqlalchemy import Connection, RowMapping

from interlock.db.audit import anchor_copies
from interlock.db.audit import anchors as recorded
from interlock.db.audit.anchor_copies import Copies
from interlock.db.connection import transaction
from interlock.workers.audit import anchors
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings, command_lines
from interlock.workers.system.helpers import helper
from interlock.workflows.audit.checkpoints import parsed_proof

COMMAND_SECONDS = 30.0  # for each anchor: less than an idle transaction may last
COPY_SECONDS = 20.0  # after this, a run begins no further copy to a destination
SHOWN = 300  # characters of an error

log = structlog.get_logger()


class CopyDestination(ABC):
    """A place that each anchor is copied to."""

    name: str

    def position(self, number: int) -> int:
        """The number of the last anchor there; `number` is the one that was noted."""
        return number

    @abstractmethod
    def carry(self, connection: Connection, anchor: RowMapping) -> None:
        """Copy an anchor. Raises `OSError` or `ValueError`."""


class Directory(CopyDestination):
    """A directory, which must exist: one that is created in place of a missing mount would be no copy."""

    def __init__(self, place: Path) -> None:
        self.name, self._place = str(place), place

    def position(self, number: int) -> int:
        """Its files say what is there. Raises `OSError`."""
        if not self._place.is_dir():
            raise FileNotFoundError(f"{self._place} is no directory: mount or create it")
        return max(map(anchors.number, anchors.filed(self._place)), default=0)

    def carry(self, connection: Connection, anchor: RowMapping) -> None:
        """Write the anchor's files; none is ever overwritten."""
        anchors.file(connection, self._place, anchor)


class CopyCommand(CopyDestination):
    """A program that gets the signed checkpoint on its standard input, and its number in its environment."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name, self._arguments = name, arguments

    def carry(self, connection: Connection, anchor: RowMapping) -> None:
        """Run the program without a shell. Raises if it cannot start, fails, or does not end in time."""
        environment = os.environ | {"INTERLOCK_ANCHOR_NUMBER": str(anchor["number"])}
        note = str(parsed_proof(anchor["proof"]).note).encode()
        with (
            tempfile.TemporaryFile() as said,  # not a pipe: what it leaves running could keep that open
            helper(
                self._arguments,
                f"no end after {COMMAND_SECONDS:g} s; it was killed",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=environment,
            ) as process,
        ):
            process.communicate(note, timeout=COMMAND_SECONDS)
            if process.returncode != 0:
                said.seek(0)
                message = said.read(SHOWN).decode(errors="replace").strip()
                raise ValueError(f"ended with exit code {process.returncode}: {message}")


def destinations(settings: Settings) -> list[CopyDestination]:
    """The destinations that the settings name; a command has its program's name: arguments may change, or be secret."""
    commands, times = [], Counter[str]()
    for words in command_lines(settings.anchor_commands or ""):
        program = Path(words[0]).name
        times[program] += 1
        nth = f" {times[program]}" if times[program] > 1 else ""
        commands.append(CopyCommand(f"command {program}{nth}", words))
    return [*map(Directory, settings.anchor_copy_directories), *commands]


def copy_all(runtime: Runtime) -> None:
    """Copy to each destination the anchors that it lacks. Faults are logged and noted; `states` returns them.

    Raises:
        DBAPIError: the database is unreachable.
    """
    for each in destinations(runtime.settings):
        until = time.monotonic() + COPY_SECONDS
        while _copy_next(runtime, each) and time.monotonic() < until:
            pass


def states(connection: Connection, settings: Settings) -> list[Copies]:
    """How far each destination of the settings is."""
    return anchor_copies.states(connection, [each.name for each in destinations(settings)])


def _copy_next(runtime: Runtime, destination: CopyDestination) -> bool:
    """Copy the next anchor; returns whether there may be another."""
    with transaction(runtime.database) as connection:
        number = anchor_copies.lock(connection, destination.name)
        if number is None:
            return False
        try:
            number = destination.position(number)
            newest = recorded.newest(connection)
            if number > (newest["number"] if newest else 0):
                raise ValueError(
                    f"it has anchor {number}, which this database does not have: anchors were deleted, or a backup was"
                    " restored. See `interlock audit verify`; after a restore, name a new directory"
                )
            coming = recorded.next_after(connection, number)
            if coming is not None:
                destination.carry(connection, coming)
        except (OSError, ValueError) as error:
            reason = (str(error) or type(error).__name__)[:SHOWN]
            log.warning("anchor_copy_failed", destination=destination.name, after=number, error=reason)
            anchor_copies.note(connection, destination.name, number, reason)
            return False
        anchor_copies.note(connection, destination.name, coming["number"] if coming else number)
        return coming is not None
