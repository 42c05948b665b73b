"""All that is known of one instance that stands still, and how a reason says it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from workflows.definition import Definition

Row = Mapping[Any, Any]
BY = '--by "$(id -un)"'  # $USER is empty in containers and under cron
WHY = '--reason "WHY"'


class Reason(NamedTuple):
    """Why something stands still, in words, and the command that would help, ready to paste."""

    says: str
    command: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One instance and what stands around it.

    Attributes:
        instance: a row of `db.stuck.late`.
        definition: its machine.
        requests, effects: what it was asked, and asked for, in its state.
        links: (role, id, workflow_type, entity_id, current_state) of what is linked to it.
        about: the row of its kind: `db.stuck.tasks`, `groups` or `silences`.
    """

    instance: Row
    definition: Definition
    requests: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    links: Sequence[Row] = ()
    about: Row = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its UUID: the one name that is never ambiguous."""
        return str(self.instance["id"])

    @property
    def state(self) -> str:
        """Where it stands."""
        return str(self.instance["current_state"])

    def asked(self, *statuses: str) -> Row | None:
        """The newest of its requests in one of these statuses."""
        return next((each for each in reversed(self.requests) if each["status"] in statuses), None)

    def linked(self, role: str, *done: str) -> list[Row]:
        """Those linked to it under a role that are not in one of the states given."""
        return [each for each in self.links if each["role"] == role and each["current_state"] not in done]

    def fire(self, trigger: str) -> str:
        """The command that fires one of its triggers."""
        return fire(self.id, trigger)

    @property
    def show(self) -> str:
        """The command that shows it."""
        return f"interlock show {self.id}"


def fire(ref: object, trigger: str) -> str:
    """The command that fires a trigger on an instance."""
    return f"interlock fire {shlex.quote(str(ref))} {trigger} {BY} --wait"


def by_another(command: str) -> str:
    """A command that whoever reads it may not be the one to type: an author does not approve their own work."""
    return command.replace(BY, "--by SOMEBODY_ELSE")


def show(row: Row) -> str:
    """The command that shows a linked instance; by its UUID, since names may repeat in other projects."""
    return f"interlock show {row['id']}"


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
    """The first line of what went wrong, not longer than fits."""
    return (str(text or "").strip().splitlines() or ["no reason was given"])[0][:200]


def printable(text: str) -> str:
    """What agents named or tools printed, without what would move the cursor or begin a line of its own."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
