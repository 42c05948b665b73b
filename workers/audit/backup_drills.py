"""What the drills of backups found, in a file beside the backups: the last one, and when one last went well."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, TypeAdapter, ValidationError

NAME = ".drilled.json"


@dataclass(frozen=True, slots=True)
class LastDrill:
    """The last drill of a directory's backups.

    Attributes:
        backup: the backup's name.
        at: when it ended.
        problem: why the backup cannot be used; None if it can.
        proven_at: when a drill last went well; None: never.
    """

    backup: str
    at: AwareDatetime
    problem: str | None
    proven_at: AwareDatetime | None


_CONTENT = TypeAdapter(LastDrill)


def last(directory: Path) -> LastDrill | None:
    """The last drill of the backups in a directory; None if there was none, or its record is damaged.

    Raises:
        OSError: the directory cannot be read.
    """
    try:
        return _CONTENT.validate_json((directory / NAME).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def proven_seconds(drill: LastDrill | None) -> float | None:
    """The time since a drill last went well; None: none did, or in the future, by a clock that was wrong."""
    if drill is None or drill.proven_at is None:
        return None
    age = (datetime.now(UTC) - drill.proven_at).total_seconds()
    return age if age >= 0 else None
