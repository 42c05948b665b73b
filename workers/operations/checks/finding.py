"""What a check of `doctor` finds."""

from dataclasses import dataclass
from typing import Literal

LATE_SECONDS = 10.0  # a due trigger older than this is overdue, not on its way
Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `cure`: the command or setting that would help."""

    check: str
    level: Level
    message: str
    cure: str = ""
