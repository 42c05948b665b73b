"""The facts on one stuck instance, and how reasons are worded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from interlock.workflows.definition import Definition
from interlock.workflows.output.suggestions import ME, offered

Row = Mapping[Any, Any]
WHY = "WHY"
ANOTHER = "SOMEBODY_ELSE"  # not the reader: an author does not approve their own work


class Reason(NamedTuple):
    """Why an instance is stuck, and the command that would help, ready to paste."""

    text: str
    command: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One stuck instance and its surroundings.

    Attributes:
        instance: a row of `db.operations.stuck.late`.
        definition: its machine.
        requests, effects: the requests to it, and its effects, in its present state.
        links: (role, id, workflow_type, entity_id, current_state) of the instances linked to it.
        details: what only its type has: a row of `db.operations.stuck.tasks`, `groups` or `last_heartbeats`, or the
            `votes` of an approval.
    """

    instance: Row
    definition: Definition
    requests: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    links: Sequence[Row] = ()
    details: Row = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its UUID, the only name that is never ambiguous."""
        return str(self.instance["id"])

    @property
    def state(self) -> str:
        """Its present state."""
        return str(self.instance["current_state"])

    def newest_request(self, *statuses: str) -> Row | None:
        """The newest of its requests in one of these statuses."""
        return next((each for each in reversed(self.requests) if each["status"] in statuses), None)

    def linked(self, role: str, *done: str) -> list[Row]:
        """The instances linked to it under a role, except those in one of the states `done`."""
        return [each for each in self.links if each["role"] == role and each["current_state"] not in done]


def fire(ref: object, trigger: str, *, by: str = ME) -> str:
    """The command that fires a trigger on an instance."""
    return offered("fire", ref, trigger, by=by, wait=True)


def show(row: Row) -> str:
    """The command that shows an instance, by its UUID, since other projects may use the same name."""
    return offered("show", row["id"])


def named(rows: Sequence[Row], most: int = 3) -> str:
    """`task api/build (running), task api/test (queued) and 4 more`."""
    words = [f"{row['workflow_type']} {row['entity_id']} ({row['current_state']})" for row in rows[:most]]
    return ", ".join(words) + (f" and {len(rows) - most} more" if len(rows) > most else "")


def counted(states: Mapping[str, int] | None) -> str:
    """`2 queued, 1 running`."""
    return ", ".join(f"{count} {state}" for state, count in sorted((states or {}).items()))


def at(instant: datetime) -> str:
    """An instant, to the second."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """`42 s`, `12 min`, `3.5 h`, `4.0 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def first_line(text: object) -> str:
    """The first line of an error, shortened to 200 characters."""
    return (str(text or "").strip().splitlines() or ["no reason was given"])[0][:200]
