"""The outcomes of a trigger. Expected outcomes are values; only faults are exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from interlock.workflows.definition import ApprovalPoint, Deadline, Severity, Transition

Status = Literal["scheduled", "pending", "waiting", "applied", "rejected", "superseded", "dead"]
VERSION_CONFLICT = "version_conflict"  # the `code` of a rejection: not at the version that its caller named
FINISHED: frozenset[Status] = frozenset({"applied", "rejected", "superseded", "dead"})


@dataclass(frozen=True, slots=True)
class Applied:
    """The move is legal: the instance goes to `dest`. `deadline` has this instance's seconds.

    `passed_over` lists what an override bypassed: names of guards, and `approval`; None for any other move.
    `limit_keys` are those of the transition's effects, in their order (LIMIT-3).
    """

    transition: Transition
    dest: str
    deadline: Deadline | None
    passed_over: tuple[str, ...] | None = None
    limit_keys: tuple[str | None, ...] = ()

    @property
    def severity(self) -> Severity:
        """The event's severity: the transition's own; `warning` for an override (EVENT-3), unless it is exceptional."""
        overridden = self.passed_over is not None and not self.transition.exceptional
        return "warning" if overridden else self.transition.severity


@dataclass(frozen=True, slots=True)
class Rejected:
    """The machine rejects the trigger, finally; `reason` has the message, the state and the legal triggers."""

    reason: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Superseded:
    """The trigger was bound to a version that the instance has left since, such as a timer of an earlier state."""

    reason: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The trigger is held until an approval, which is to be created, is decided."""

    reason: Mapping[str, Any]
    approval: ApprovalPoint


@dataclass(frozen=True, slots=True)
class Failed:
    """A guard or Interlock's code raised an exception; the trigger is retried until its attempts are used up."""

    error: str


Outcome = Applied | Rejected | Superseded | Waiting
