"""Reasons that apply to instances of any type: their requests and their effects."""

from interlock.db.core.requests import QUARANTINED, UNREADABLE
from interlock.workers.effects.holder import described
from interlock.workers.operations.stuck.facts import LATE_SECONDS, Facts, Reason, Row
from interlock.workers.operations.stuck.words import WHY, at, decision, fire_move, first_line, limited, show, span
from interlock.workflows.by_hand import gives_up, move_by_hand
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.escaping import shown
from interlock.workflows.output.suggestions import offered


def dead_request(facts: Facts) -> Reason | None:
    """A trigger whose attempts are used up, that is quarantined, or whose data cannot be read."""
    if not (dead := facts.newest_request("dead")):
        return None
    code, error = (dead["result"] or {}).get("code"), first_line(dead["error"])
    if code == QUARANTINED:
        message = f"{dead['trigger']} is dead: {error}. Redrive it once its cause is fixed"
        return Reason(message, _offered(dead["request_id"], "redrive", reason=WHY))
    if code == UNREADABLE:
        command = _offered(dead["request_id"], "quarantine", "request", reason=WHY)
        return Reason(f"{dead['trigger']} is dead, and a redrive would fail again: {error}", command)
    message = f"{dead['trigger']} is dead after {number_of(dead['attempts'], 'attempt')}: {error}"
    return Reason(message, _offered(dead["request_id"], "redrive", reason=WHY))


def dead_effect(facts: Facts) -> Reason | None:
    """An effect whose attempts are used up and that has no trigger to report its failure."""
    for effect in facts.effects:
        if effect["status"] == "dead" and not effect["failed_trigger"]:
            message = f"the effect {effect['name']} is dead after {number_of(effect['attempts'], 'attempt')}: "
            return Reason(message + first_line(effect["error"]), offered("redrive", effect["id"], reason=WHY))
    return None


def retrying(facts: Facts) -> Reason | None:
    """A trigger that failed and will be retried; those behind it wait."""
    for request in facts.requests:
        if request["status"] == "scheduled" and request["attempts"] and request["due_seconds"] <= LATE_SECONDS:
            times = number_of(request["attempts"], "time")
            message = f"{request['trigger']} failed {times} ({first_line(request['error'])}); "
            return Reason(message + f"it is tried again at {at(request['not_before'])}", show(facts.instance))
    return None


def held(facts: Facts) -> Reason | None:
    """A trigger that a brake holds, or that waits for an approval."""
    if not (request := facts.newest_request("waiting")):
        return None
    if brake := (request["result"] or {}).get("brake"):
        message = f"{request['trigger']} by {request['triggered_by']} is held: {request['result']['message']}"
        name = str(brake).removeprefix("brake/")
        return Reason(message, offered("brake", "release", name, project=facts.instance["project"], reason=WHY))
    message = f"{request['trigger']} by {request['triggered_by']} waits for the approval {request['approval']}"
    who, command, _ = decision(facts, request["approval_id"], request["approval_version"])
    return Reason(f"{message}, {who}", command)


def unapplied(facts: Facts) -> Reason | None:
    """A trigger or timer that is due but not applied."""
    for request in facts.requests:
        if request["status"] in ("pending", "scheduled") and request["due_seconds"] > LATE_SECONDS:
            message = (
                f"{request['trigger']} has been due for {span(request['due_seconds'])}, but no worker has applied it"
            )
            return Reason(f"{message}: are workers and beat running?", offered("doctor"))
    return None


def effect(facts: Facts) -> Reason | None:
    """An effect that runs or should run."""
    for each in facts.effects:
        if each["status"] == "leased":
            return _leased(each)
        if each["status"] == "pending":
            return _pending(each, facts)
    return None


def _leased(effect: Row) -> Reason:
    who = f"{described(effect['leased_by'])} holds the lease of the effect {effect['name']}"
    if effect["lease_over"]:
        message = f"{who}, which expired at {at(effect['lease_until'])} and was not released: is beat running?"
        return Reason(message, offered("doctor"))
    message = f"{who} until {at(effect['lease_until'])}, and renews it while it works (attempt {effect['attempts']})"
    return Reason(message, "celery -A interlock.workers.main:app inspect active")


def _pending(effect: Row, facts: Facts) -> Reason:
    name = f"the effect {effect['name']}"
    if effect["later"]:
        message = f"{name} failed {number_of(effect['attempts'], 'time')} ({first_line(effect['error'])}); "
        return Reason(message + f"it is tried again at {at(effect['not_before'])}", show(facts.instance))
    if waits := limited(facts, facts.instance["workflow_type"], None, effect["limit_key"]):
        meanwhile = (
            f". The deadline of {facts.state} runs on meanwhile" if facts.state in facts.definition.deadlines else ""
        )
        return waits._replace(text=f"{name} is due; {waits.text}{meanwhile}")
    if effect["behind"]:
        return Reason(
            f"{name} waits for an effect of {effect['behind']} to end, since the two never run at once",
            show(facts.instance),
        )
    return Reason(
        f"{name} has been due for {span(effect['due_seconds'])}, but no node has started it", offered("doctor")
    )


def refused(facts: Facts) -> Reason | None:
    """A trigger that was rejected in this state; its guard says what is missing."""
    if not (request := facts.newest_request("rejected")) or request["origin"] != "agent":
        return None
    message = first_line((request["result"] or {}).get("message"))
    lacking = [each for each in facts.links if each["current_state"] not in ("done", "merged", "completed", "PASSED")]
    around = "; ".join(
        f"{each['workflow_type']} {each['entity_id']} is {each['current_state']}" for each in lacking[:3]
    )
    return Reason(
        f"{request['trigger']} was refused: {message}" + (f" ({around})" if around else ""), show(facts.instance)
    )


def timer(facts: Facts) -> Reason | None:
    """A timer will fire, and nothing else is due."""
    for request in facts.requests:
        if request["status"] == "scheduled" and not request["attempts"]:
            message = (
                f"{request['trigger']} is fired at {at(request['not_before'])}; until then it waits for another trigger"
            )
            return _next(facts, message)
    return None


def nobody(facts: Facts) -> Reason:
    """Nobody has fired a trigger."""
    legal = facts.definition.legal(facts.state)
    return _next(facts, f"nobody has fired a trigger; legal: {', '.join(legal)}")


def _next(facts: Facts, why: str) -> Reason:
    move = move_by_hand(facts.definition, facts.state)
    if move is None:
        return Reason(why, show(facts.instance))
    return Reason(why, fire_move(facts, move), gives_up(facts.definition, move))


def _offered(request_id: str, *words: str, **options: str) -> str:
    """The command, unless the request_id, which agents choose, contains characters that are unsafe in a shell."""
    return offered("dead") if shown(request_id) != request_id else offered(*words, request_id, **options)
