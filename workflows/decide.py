"""Decide what a trigger does, without doing it. The only module that imports `transitions`.

Each definition version has one Machine, built once, and each trigger is fired on a throwaway probe. That takes about
10 µs a trigger; a Machine per instance takes hundreds and keeps 50 KB or more alive (pytransitions issue 146).
"""

from functools import cache
from typing import Any

from transitions import EventData, Machine

from interlock.workflows import typed
from interlock.workflows.approvals import author_of, can_be_given
from interlock.workflows.definition import ApprovalPoint, Deadline, Definition, Guard, Transition
from interlock.workflows.effects import limit_key_of
from interlock.workflows.errors import BadInput
from interlock.workflows.guard_context import Case, Override
from interlock.workflows.outcomes import VERSION_CONFLICT, Applied, Outcome, Rejected, Superseded, Waiting


class Probe:
    """The throwaway model, which has only a state."""

    __slots__ = ("state",)

    def __init__(self, state: str) -> None:
        self.state = state


def decide(definition: Definition, case: Case) -> Outcome:
    """Decide what firing `case.trigger` does under `definition`.

    Args:
        definition: the instance's definition version.
        case: the trigger, the instance and the facts its guards need.

    Returns:
        `Applied`, `Rejected`, `Superseded` or `Waiting`; nothing has changed yet.

    Raises:
        Exception: anything that a guard raises; the engine records it as a failed attempt.
    """
    if overtaken := _overtaken(definition, case):
        return overtaken
    candidates = definition.moves.get((case.trigger, case.state))
    if candidates is None:
        return _no_such_transition(definition, case)
    if case.override is not None:
        return _overridden(definition, case, case.override, candidates)
    seen = _read(definition, case) if definition.has_models else case
    return seen if isinstance(seen, Rejected) else _fired(definition, case, seen, candidates)


def _fired(
    definition: Definition, case: Case, seen: Case[Any, Any], candidates: tuple[Transition, ...]
) -> Applied | Rejected | Waiting:
    """What becomes of a trigger that has a transition; guards get the case as `seen`, with its models."""
    probe = Probe(case.state)
    moved = machine_of(definition).events[case.trigger].trigger(probe, case=seen)
    if not moved:
        return _refused(definition, seen, candidates)
    taken = candidates[0]
    if len(candidates) > 1:
        taken = next(move for move in candidates if move.dest == probe.state and _all_hold(move, seen))
    if taken.approval and not case.granted:
        return _approval_needed(case, taken.approval)
    return _applied(definition, case, taken)


def judged(definition: Definition, state: str, message: str) -> Rejected:
    """The rejection of a move that was decided, but that PostgreSQL's own rules refuse (GOVERN-11)."""
    return Rejected({"code": "judge", "message": message, "state": state, "legal": list(definition.legal(state))})


def handed_over(state: str, handover_id: object) -> Rejected:
    """The rejection of a trigger on an instance that is frozen, to go on in another system (HANDOVER-5)."""
    message = f"the instance goes on in another system, where triggers are to be fired now (handover {handover_id})"
    return Rejected({"code": "handed_over", "message": message, "state": state, "legal": []})


@cache
def machine_of(definition: Definition) -> Machine:
    """The shared, stateless Machine of a definition. Never set `queued`: all threads would share one queue."""
    machine = Machine(
        model=None,
        states=list(definition.states),
        initial=definition.initial,
        auto_transitions=False,
        send_event=True,
        queued=False,
        ignore_invalid_triggers=False,
    )
    for move in definition.transitions:
        machine.add_transition(
            move.trigger, list(move.sources), move.dest, conditions=[_condition(guard) for guard in move.when]
        )
    return machine


def _overtaken(definition: Definition, case: Case) -> Superseded | Rejected | None:
    if case.bound_version is not None and case.bound_version != case.version:
        return _superseded(case)
    if case.if_version is not None and case.if_version != case.version:
        return _version_conflict(definition, case, case.if_version)
    return None


def _read(definition: Definition, case: Case) -> Case[Any, Any] | Rejected:
    """The case as guards get it, or its rejection: what does not fit its model would not fit it later either."""
    try:
        return typed.read_case(case, definition.context, definition.data.get(case.trigger))
    except typed.Misfit as misfit:
        wrong, legal = list(misfit.faults), list(definition.legal(case.state))
        return Rejected(_reason(case, "wrong_data", str(misfit), wrong=wrong, legal=legal))


def _condition(guard: Guard) -> Any:
    def holds(event: EventData) -> bool:
        return guard.holds(event.kwargs["case"])

    return holds


def _all_hold(move: Transition, case: Case) -> bool:
    return not move.when or all(guard.holds(case) for guard in move.when)


def _overridden(
    definition: Definition, case: Case, override: Override, candidates: tuple[Transition, ...]
) -> Applied | Rejected:
    if not override.allowed:
        message = f"{case.by!r} is not an operator. `interlock operator list` shows who is and can grant it"
        return Rejected(_reason(case, "not_an_operator", message))
    leading_there = [move for move in candidates if move.dest == override.to]
    if len(leading_there) != 1:
        return _leads_elsewhere(definition, case, override, candidates)
    move = leading_there[0]
    # Guards of a move out of a terminal state bind operators, too (POLICY-6), and those of one that changes a link.
    bound = move.exceptional or move.relink is not None
    seen = _read(definition, case) if bound and definition.has_models else case
    if isinstance(seen, Rejected):
        return seen
    if bound and not _all_hold(move, seen):
        return _refused(definition, seen, (move,))
    passed_over = () if bound else tuple(guard.name for guard in move.when)
    if move.approval and not case.granted:
        passed_over = (*passed_over, "approval")
    return _applied(definition, case, move, passed_over)


def _leads_elsewhere(
    definition: Definition, case: Case, override: Override, candidates: tuple[Transition, ...]
) -> Rejected:
    dests = ", ".join(dict.fromkeys(move.dest for move in candidates))
    message = f"{case.trigger!r} leads from {case.state!r} to {dests}, not to {override.to!r}"
    return Rejected(_reason(case, "leads_elsewhere", message, legal=list(definition.legal(case.state))))


def _applied(
    definition: Definition, case: Case, move: Transition, passed_over: tuple[str, ...] | None = None
) -> Applied | Rejected:
    """The move; its rejection if an effect that it asks for has no valid limit key: it would not have one later."""
    try:
        keys = tuple(limit_key_of(each.name, case.context) for each in move.effects)
    except BadInput as error:
        message, legal = str(error), list(definition.legal(case.state))
        return Rejected(_reason(case, "wrong_data", message, wrong=[message], legal=legal))
    return Applied(move, move.dest, _deadline(definition, move.dest, case), passed_over, keys)


def _deadline(definition: Definition, state: str, case: Case) -> Deadline | None:
    declared = definition.deadlines.get(state)
    return declared and declared.resolved(case.context, case.row)


def _no_such_transition(definition: Definition, case: Case) -> Rejected:
    message = f"{definition.type} in state {case.state!r} does not answer to {case.trigger!r}"
    return Rejected(_reason(case, "no_such_transition", message, legal=list(definition.legal(case.state))))


def _refused(definition: Definition, case: Case, candidates: tuple[Transition, ...]) -> Rejected:
    # `transitions` returns only False for a false condition: name the false guards of the move that lacks least.
    refusing = min(([guard for guard in move.when if not guard.holds(case)] for move in candidates), key=len)
    message, missing = "; ".join(guard.explanation(case) for guard in refusing), [guard.name for guard in refusing]
    return Rejected(_reason(case, "guard", message, missing=missing, legal=list(definition.legal(case.state))))


def _approval_needed(case: Case, point: ApprovalPoint) -> Rejected | Waiting:
    if case.held:
        message = f"{case.trigger!r} already waits for an approval; decide that one first"
        return Rejected(_reason(case, "already_held", message))
    author = author_of(case.context, case.by)
    if not can_be_given(point.deciders, point.quorum, author):
        who = f"{point.quorum} of {', '.join(point.deciders)} would have to approve it, and not its author {author}"
        return Rejected(_reason(case, "too_few_deciders", f"{case.trigger!r} cannot be approved: {who}"))
    return Waiting(_reason(case, "approval", f"{case.trigger!r} needs an approval"), point)


def _superseded(case: Case) -> Superseded:
    message = f"the instance has moved since this was fired or held; it is now in {case.state!r}"
    return Superseded(_reason(case, "superseded", message))


def _version_conflict(definition: Definition, case: Case, wanted: int) -> Rejected:
    message = (
        f"the instance is at version {case.version}, in {case.state!r}, and not at version {wanted}. Look at it again; "
        f"if the trigger still fits, fire it with version {case.version} and a new request_id"
    )
    legal = list(definition.legal(case.state))
    return Rejected(_reason(case, VERSION_CONFLICT, message, version=case.version, if_version=wanted, legal=legal))


def _reason(case: Case, code: str, message: str, **more: list[str] | int) -> dict[str, Any]:
    return {"code": code, "message": message, "state": case.state, **more}
