"""The facts on one stuck instance, and how reasons are worded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from interlock.db.core.limits import LimitPlace
from interlock.workflows.definition import BY_NAME, Definition, Transition
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import ME, offered

Row = Mapping[Any, Any]
WHY = "WHY"
LATE_SECONDS = 10.0  # what is due for longer is overdue, not on its way
ANOTHER = "SOMEBODY_ELSE"  # not the reader: an author does not approve their own work


class Reason(NamedTuple):
    """Why an instance is stuck, and the command that would help, ready to paste.

    `harms`: the command would end or restart what may be well, as far as the reason says, so it is offered only for
    what is past its threshold (RECOVER-19).
    """

    text: str
    command: str
    harms: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """One stuck instance and its surroundings.

    Attributes:
        instance: a row of `db.operations.stuck.late`.
        definition: its machine.
        requests, effects: the requests to it, and its effects, in its present state.
        links: (role, id, workflow_type, entity_id, current_state) of the instances linked to it.
        details: what only its type has: a row of `db.operations.stuck.tasks`, `groups` or `last_heartbeats`, or whether
            an approval `releases` something.
        approvals: id -> `author`, `deciders`, `quorum` and `voters` of the open approvals that it is or waits for.
        spent: the limits of its project that have no room now, by the names that they count (`db.core.limits.full`).
    """

    instance: Row
    definition: Definition
    requests: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    links: Sequence[Row] = ()
    details: Row = field(default_factory=dict)
    approvals: Mapping[Any, Row] = field(default_factory=dict)
    spent: Sequence[LimitPlace] = ()

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


def fire(ref: object, version: int, trigger: str, *, by: str = ME, **options: object) -> str:
    """The command that fires a trigger on an instance, unless that has moved on from a version (RECOVER-19)."""
    return offered("fire", ref, trigger, by=by, if_version=version, **options, wait=True)


def fire_on(facts: Facts, trigger: str, *, by: str = ME, **options: object) -> str:
    """The command that fires a trigger on the stuck instance, unless it has moved since."""
    return fire(facts.id, facts.instance["version"], trigger, by=by, **options)


def fire_move(facts: Facts, move: Transition) -> str:
    """The command that makes a move of the stuck instance, with a reason where its machine or an operator needs one."""
    guards = {guard.name for guard in move.when}
    as_operator = BY_NAME.intersection(move.authorities) == {"operator"}
    why = {"data": json.dumps({"reason": WHY})} if as_operator or "reason_given" in guards else {}
    return fire_on(facts, move.trigger, by=ANOTHER if "not_the_author" in guards else ME, **why)


def decision(facts: Facts, approval: object, version: int) -> Reason:
    """Who may decide an open approval, and the command for the first who has not yet."""
    row = facts.approvals[approval]
    deciders = [each for each in row["deciders"] if each != row["author"]]
    who = " or ".join(deciders) or f"anybody but {row['author'] or 'its author'}"
    votes = f" ({len(row['voters'])} of {row['quorum']} votes)" if row["quorum"] > 1 else ""
    open_to = next((each for each in deciders if each not in row["voters"]), ANOTHER)
    return Reason(f"the decision of {who}{votes}", fire(approval, version, "approve", by=open_to))


def show(row: Row) -> str:
    """The command that shows an instance, by its UUID, since other projects may use the same name."""
    return offered("show", row["id"])


def limited(facts: Facts, type_: str, tool: str | None, key: str | None) -> Reason | None:
    """Which limit it waits for, if one that counts this type, tool and key has no room (LIMIT-10)."""
    own = {"project": facts.instance["project"], "type": type_, "tool": tool, "key": key}
    waited = next((each for each in facts.spent if own[each["kind"]] == each["name"]), None)
    if waited is None:
        return None
    by_itself = f", which counts {waited['name']} by itself" if waited["pattern"] != waited["name"] else ""
    what = f"it waits for the limit on {waited['kind']} {waited['pattern']}{by_itself}: "
    command = offered("limit", "show", waited["kind"], waited["pattern"], project=facts.instance["project"])
    if waited["started"] == waited["starts"] and waited["free_at"] is not None:
        used = f"{number_of(waited['starts'], 'start')} in {waited['per_seconds']:g} s used; the next may start at "
        return Reason(f"{what}{used}{at(waited['free_at'])}", command)
    return Reason(f"{what}{waited['held']} run, of {waited['at_once']} at once; it starts when one ends", command)


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
