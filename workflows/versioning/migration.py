"""Migration of a live instance to another version of its definition: its new state, and the obstacles.

A migration is an event of its own, with a trigger that no definition can have. The instance keeps its state if the new
version has it; only a state that the new version lacks can be replaced. A migration never ends an instance (POLICY-5,
VERSION-8).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from interlock.workflows.definition import ApprovalPoint, Deadline, Definition
from interlock.workflows.typed import Misfit, read_data
from interlock.workflows.versioning.export import recorded
from interlock.workflows.versioning.rules import Form, by_arrow

MIGRATE = "definition.migrate"  # trigger names have no dot, so no definition can have this one


@dataclass(frozen=True, slots=True)
class Open:
    """An unfinished request."""

    request_id: str
    trigger: str
    status: str
    origin: str
    bound_version: int | None = None
    held: bool = False  # for an approval
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """A live instance before its migration, with its unfinished requests.

    `reports` are the triggers with which unfinished effects will report their outcome.
    """

    state: str
    version: int
    context: Mapping[str, Any]
    requests: Sequence[Open] = ()
    reports: Sequence[str] = ()
    row_readable: bool = True
    row: Mapping[str, Any] = field(default_factory=dict)


def destination(new: Definition, state: str, renamed: Mapping[str, str]) -> str | None:
    """The state under `new` of an instance in `state`; None if `new` lacks it and no replacement was given."""
    return state if state in new.states else renamed.get(state)


def obstacles(old: Form, new: Definition, subject: Subject, renamed: Mapping[str, str]) -> list[str]:
    """Everything that prevents the migration of an instance, one sentence each; empty if it can be migrated.

    Args:
        old: its current version as recorded, since the code may no longer have it.
        new: the version to migrate to.
        subject: the instance.
        renamed: state that the new version lacks -> its replacement.
    """
    dest = destination(new, subject.state, renamed)
    if dest is None:
        return [f"{new.version} has no state {subject.state!r}: give --map {subject.state}=STATE"]
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
        return  # the migration supersedes it and arms a new timer
    bound = request.bound_version
    # A migration keeps what is held (APPROVAL-5), and what is bound to an earlier version is refused in any case.
    if bound is not None and bound >= subject.version and request.status != "waiting":
        yield f"{name} is bound to the instance's version {bound}: let it be applied first"
    elif request.trigger not in new.triggers:
        yield f"{name}: {new.version} has no such trigger; let it be applied first, or refused"
    elif why := _unfit(new, request):
        yield f"{name}: its data does not fit {new.version}: {why}; let it be applied first, or refused"
    elif request.held and _point(old, request.trigger, subject.state) != _new_point(new, request.trigger, dest):
        yield f"{name} is held for an approval whose terms differ in {new.version}: decide it first"


def _unfit(new: Definition, request: Open) -> str:
    try:
        read_data(new.data.get(request.trigger), request.data)
    except Misfit as misfit:
        return str(misfit)
    return ""


def _point(old: Form, trigger: str, state: str) -> Any:
    matching = (rule for arrow, rules in by_arrow(old).items() if arrow[:2] == (trigger, state) for rule in rules)
    return next((rule["approval"] for rule in matching if rule["approval"]), None)


def _new_point(new: Definition, trigger: str, state: str) -> Any:
    approvals = (move.approval for move in new.moves.get((trigger, state), ()))
    point: ApprovalPoint | None = next((each for each in approvals if each), None)
    return point and {"quorum": point.quorum, "deciders": list(point.deciders)}


@dataclass(frozen=True, slots=True)
class Clock:
    """The deadline in the new version; `kept`: the old version has the same one, and its timer's instant is kept."""

    deadline: Deadline
    kept: bool


def clock(old: Form, new: Definition, subject: Subject, renamed: Mapping[str, str], age_seconds: float) -> Clock | None:
    """The deadline of an instance's state under its new version; None if the state has none.

    It counts from when the state was entered, not from the migration. If the old version has the same deadline, the
    new timer keeps the old timer's instant. An instance whose state is replaced gets the new state's whole deadline.

    Args:
        old, new, subject, renamed: as for `obstacles`, which must have found none.
        age_seconds: the time since the state was entered.
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
    """The row before its state was entered, which a growing deadline needs: entering has since raised the counter."""
    if declared.growth is None or declared.growth.column not in row:
        return row
    return {**row, declared.growth.column: max(0, int(row[declared.growth.column]) - 1)}


def misfit(
    forms: Mapping[str, Form], *, under: str, to: str, source: str, dest: str, metadata: Mapping[str, Any]
) -> str | None:
    """Why an event cannot be a valid migration; None if it can be. PostgreSQL enforces the same rule.

    Args:
        forms: version -> the type's definition as recorded.
        under: the version the instance had.
        to: the version the event names.
        source, dest: the states it leaves and enters.
        metadata: the event's metadata.
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
