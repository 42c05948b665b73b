"""What became of a trigger. Expected outcomes are values; only faults are exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workflows.definition import ApprovalPoint, Deadline, Severity, Transition

Status = Literal["scheduled", "pending", "waiting", "applied", "rejected", "superseded", "dead"]

STATUSES: tuple[Status, ...] = (
    "scheduled",
    "pending",
    "waiting",
    "applied",
    "rejected",
    "superseded",
    "dead",
)
FINISHED: frozenset[Status] = frozenset({"applied", "rejected", "superseded", "dead"})


@dataclass(frozen=True, slots=True)
class Applied:
    """The move is legal: go to `dest`, and do what the transition says. `deadline` has this instance's seconds.

    `passed_over`: what an override did not ask, its guards' names and `approval`; None of any other move.
    """

    transition: Transition
    dest: str
    deadline: Deadline | None
    passed_over: tuple[str, ...] | None = None

    @property
    def severity(self) -> Severity:
        """Of the event: an override is a warning (SSOT 7.2.2), unless it leaves a terminal state, and tells its own."""
        overridden = self.passed_over is not None and not self.transition.exceptional
        return "warning" if overridden else self.transition.severity


@dataclass(frozen=True, slots=True)
class Rejected:
    """The machine refuses, now and for good; `reason` says why, where it stands and what would be legal."""

    reason: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Superseded:
    """A timer for a state that has been left since."""

    reason: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Held: for an approval that has to be asked for, or (approval None) for more votes like this one."""

    reason: Mapping[str, Any]
    approval: ApprovalPoint | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A guard or our own code raised: a fault, recorded and retried until the attempts are used up."""

    error: str


Outcome = Applied | Rejected | Superseded | Waiting
