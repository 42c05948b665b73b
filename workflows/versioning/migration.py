"""Moving a live instance to another version of its definition: where it would stand there, and what stands in the way.

A migration is an event of its own, with a trigger that no definition can have. A state that the new version has stays
what it is; only one that it lacks may be given another name, and nothing is ended this way (SSOT 8.2, 9.1.3).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workflows.definition import ApprovalPoint, Deadline, Definition
from workflows.export import recorded
from workflows.rules import Form, by_arrow

MIGRATE = "definition.migrate"  # a name has no dot, so no definition has such a trigger


@dataclass(frozen=True, slots=True)
class Open:
    """A request that is not finished: what it fires, for whom it waits, what it is bound to."""

    request_id: str
    trigger: str
    status: str
    origin: str
    bound_version: int | None = None
    held: bool = False  # for an approval


@dataclass(frozen=True, slots=True)
class Subject:
    """A live instance as it is before it moves: where it stands, what is under way for it.

    `reports` are the triggers by which effects that still run will tell it their outcome.
    """

    state: str
    version: int
    context: Mapping[str, Any]
    requests: Sequence[Open] = ()
    reports: Sequence[str] = ()
    row_readable: bool = True
    row: Mapping[str, Any] = field(default_factory=dict)


def destination(new: Definition, state: str, renamed: Mapping[str, str]) -> str | None:
    """Where an instance in `state` would stand under `new`; None where nobody said."""
    return state if state in new.states else renamed.get(state)


def obstacles(old: Form, new: Definition, subject: Subject, renamed: Mapping[str, str]) -> list[str]:
    """Everything that keeps an instance from moving to another version, a sentence each; nothing, if it fits.

    Args:
        old: its version as recorded: the code may have lost it.
        new: the version it is to live under.
        subject: the instance.
        renamed: states the new version lacks -> those to stand in instead.
    """
    dest = destination(new, subject.state, renamed)
    if dest is None:
        return [f"{new.version} has no state {subject.state!r}: say --map {subject.state}=STATE"]
    found = list(_place(old, new, subject, dest))
    found += [f"its context: {wrong}" for wrong in new.wrong_fields(subject.context)]
    for request in subject.requests:
        found += _request(old, new, request, subject, dest)
    found += [
        f"an effect under way will report {trigger!r}, which {new.version} does not have: let it end first"
        for trigger in subject.reports
        if trigger not in new.triggers
    ]
    readers = sorted(trigger for trigger, facts in new.needs.items() if "row" in facts)
    if readers and not subject.row_readable:
        found.append(f"guards of {', '.join(readers)} read a typed row, which a {new.type} {new.version} does not have")
    return found


def _place(old: Form, new: Definition, subject: Subject, dest: str) -> Iterator[str]:
    if old["states"][subject.state]["terminal"]:
        yield f"it ended in {subject.state!r}, and what has ended does not change"
    elif dest not in new.states:
        yield f"{new.version} has no state {dest!r} either"
    elif dest in new.terminal:
        yield f"it would end in {dest!r}: fire a trigger that leads there instead"


def _request(old: Form, new: Definition, request: Open, subject: Subject, dest: str) -> Iterator[str]:
    name = f"request {request.request_id} ({request.trigger}, {request.status})"
    if request.origin == "timer":
        return  # bound to a state that is entered anew: superseded, and armed again
    if request.bound_version is not None:
        yield f"{name} is bound to where it stands: let it be applied first"
    elif request.trigger not in new.triggers:
        yield f"{name}: {new.version} has no such trigger; let it be applied first, or refused"
    elif request.held and _point(old, request.trigger, subject.state) != _new_point(new, request.trigger, dest):
        yield f"{name} is held for an approval that {new.version} asks for differently: decide it first"
    elif request.status == "waiting" and not request.held and dest not in new.voting_states:
        yield f"{name} waits for more votes, which {new.version} does not count in {dest!r}: let them be decided first"


def _point(old: Form, trigger: str, state: str) -> Any:
    asked = (rule for arrow, rules in by_arrow(old).items() if arrow[:2] == (trigger, state) for rule in rules)
    return next((rule["approval"] for rule in asked if rule["approval"]), None)


def _new_point(new: Definition, trigger: str, state: str) -> Any:
    asked = (move.approval for move in new.moves.get((trigger, state), ()))
    point: ApprovalPoint | None = next((each for each in asked if each), None)
    return point and {"quorum": point.quorum, "deciders": list(point.deciders)}


@dataclass(frozen=True, slots=True)
class Clock:
    """What runs out in the new version: a deadline, and the instant it keeps from the old one, if it is the same."""

    deadline: Deadline
    kept: bool


def clock(old: Form, new: Definition, subject: Subject, renamed: Mapping[str, str], age_seconds: float) -> Clock | None:
    """The deadline of the state that an instance stands in under its new version.

    It counts from when the state was entered, not from the migration; where the old version declared the same one, the
    timer that runs keeps its instant.

    Args:
        old, new, subject, renamed: as for `obstacles`, of which there are none.
        age_seconds: since the state was entered.
    """
    dest = destination(new, subject.state, renamed)
    declared = new.deadlines.get(dest) if dest else None
    if dest is None or declared is None:
        return None
    if dest != subject.state:
        return Clock(declared.resolved(subject.context, subject.row), kept=False)
    resolved = declared.resolved(subject.context, _before_entering(declared, subject.row))
    same = old["deadlines"].get(dest) == recorded(new)["deadlines"][dest]
    return Clock(replace(resolved, seconds=max(0.0, resolved.seconds - age_seconds)), kept=same)


def _before_entering(declared: Deadline, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A deadline grows with what the row counted before its state was entered; entering has counted since."""
    if declared.growth is None or declared.growth.column not in row:
        return row
    return {**row, declared.growth.column: max(0, int(row[declared.growth.column]) - 1)}


def misfit(
    forms: Mapping[str, Form], *, under: str, to: str, source: str, dest: str, metadata: Mapping[str, Any]
) -> str | None:
    """Why an event that says it is a migration cannot be one; None where it can: PostgreSQL asks the same of it.

    Args:
        forms: version -> the type's definitions as recorded.
        under: the version the instance was under.
        to: the version the event names.
        source, dest: the states it leaves and enters.
        metadata: the event's own.
    """
    old, new = forms.get(under), forms.get(to)
    if old is None or new is None:
        return f"version {under if old is None else to} is not recorded"
    if metadata.get("from_version") != under or under == to:
        return f"it says it came from version {metadata.get('from_version')}, but was under {under}"
    if source not in old["states"] or old["states"][source]["terminal"]:
        return f"nothing leaves {source!r} in {under}"
    if dest not in new["states"] or new["states"][dest]["terminal"]:
        return f"nothing enters {dest!r} in {to} this way"
    if source != dest and source in new["states"]:
        return f"{to} has {source!r} too"
    return None
