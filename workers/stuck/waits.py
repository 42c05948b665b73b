"""What holds an instance of any kind: its requests and its effects."""

import shlex

from workers.stuck.facts import Facts, Reason, Row, at, by_another, fire, first_line, printable, span

LATE_SECONDS = 10.0  # a due trigger older than this is not on its way any more


def dead_request(facts: Facts) -> Reason | None:
    """A trigger whose attempts are used up."""
    if not (dead := facts.asked("dead")):
        return None
    says = f"{dead['trigger']} is dead after {dead['attempts']} attempts: {first_line(dead['error'])}"
    return Reason(says, _redrive(dead["request_id"]))


def dead_effect(facts: Facts) -> Reason | None:
    """An effect whose attempts are used up, where nobody was told of it."""
    for effect in facts.effects:
        if effect["status"] == "dead" and not effect["failed_trigger"]:
            says = f"the effect {effect['name']} is dead after {effect['attempts']} attempts: "
            return Reason(says + first_line(effect["error"]), f"interlock redrive {effect['id']}")
    return None


def retrying(facts: Facts) -> Reason | None:
    """A trigger that failed and will be tried again; those behind it wait."""
    for asked in facts.requests:
        if asked["status"] == "scheduled" and asked["attempts"] and asked["due_seconds"] <= LATE_SECONDS:
            says = f"{asked['trigger']} failed {asked['attempts']} times ({first_line(asked['error'])}); "
            return Reason(says + f"it is tried again at {at(asked['not_before'])}", facts.show)
    return None


def held(facts: Facts) -> Reason | None:
    """A trigger that waits for an approval, or for more votes."""
    if not (asked := facts.asked("waiting")):
        return None
    if asked["approval"]:
        says = f"{asked['trigger']} by {asked['triggered_by']} waits for the approval {asked['approval']}"
        who = f" by {' or '.join(asked['deciders'])}" if asked["deciders"] else ""
        return Reason(says + who, by_another(fire(asked["approval_id"], "approve")))
    votes = sum(each["status"] == "waiting" and each["trigger"] == asked["trigger"] for each in facts.requests)
    quorum = facts.instance["context"].get("quorum")
    says = f"{asked['trigger']} has {votes} of {quorum or 'the'} votes"
    return Reason(says, by_another(facts.fire(asked["trigger"])))


def unapplied(facts: Facts) -> Reason | None:
    """A trigger or a timer that is due, and nobody applies it."""
    for asked in facts.requests:
        if asked["status"] in ("pending", "scheduled") and asked["due_seconds"] > LATE_SECONDS:
            says = f"{asked['trigger']} has been due for {span(asked['due_seconds'])}, and nobody applies it"
            return Reason(f"{says}: are workers and beat up?", "interlock doctor")
    return None


def effect(facts: Facts) -> Reason | None:
    """Something that is being done to the world, or should be."""
    for each in facts.effects:
        if each["status"] == "leased":
            return _leased(each)
        if each["status"] == "pending":
            return _pending(each, facts)
    return None


def _leased(effect: Row) -> Reason:
    who = f"{effect['leased_by']} holds the lease of the effect {effect['name']}"
    if effect["lease_over"]:
        says = f"{who}, which ran out at {at(effect['lease_until'])} and was not taken back: is beat up?"
        return Reason(says, "interlock doctor")
    says = f"{who} until {at(effect['lease_until'])}, and renews it while it works (attempt {effect['attempts']})"
    return Reason(says, "celery -A workers.main:app inspect active")


def _pending(effect: Row, facts: Facts) -> Reason:
    name = f"the effect {effect['name']}"
    if effect["later"]:
        says = f"{name} failed {effect['attempts']} times ({first_line(effect['error'])}); "
        return Reason(says + f"it is tried again at {at(effect['not_before'])}", facts.show)
    if effect["behind"]:
        return Reason(f"{name} waits for its turn behind that of {effect['behind']}", facts.show)
    return Reason(f"{name} has been due for {span(effect['due_seconds'])}, and nobody takes it", "interlock doctor")


def refused(facts: Facts) -> Reason | None:
    """A trigger that was refused here: its guard says what is missing."""
    if not (asked := facts.asked("rejected")) or asked["origin"] != "agent":
        return None
    says = first_line((asked["result"] or {}).get("message"))
    lacking = [each for each in facts.links if each["current_state"] not in ("done", "merged", "completed", "PASSED")]
    around = "; ".join(
        f"{each['workflow_type']} {each['entity_id']} is {each['current_state']}" for each in lacking[:3]
    )
    return Reason(f"{asked['trigger']} was refused: {says}" + (f" ({around})" if around else ""), facts.show)


def timer(facts: Facts) -> Reason | None:
    """Time alone will move it."""
    for asked in facts.requests:
        if asked["status"] == "scheduled" and not asked["attempts"]:
            says = f"{asked['trigger']} is fired at {at(asked['not_before'])}; until then it waits for somebody"
            return Reason(says, _next(facts))
    return None


def nobody(facts: Facts) -> Reason:
    """Nothing is on its way to it."""
    legal = facts.definition.legal(facts.state)
    return Reason(f"nobody has fired a trigger; legal: {', '.join(legal)}", _next(facts))


def _next(facts: Facts) -> str:
    return facts.fire(facts.definition.legal(facts.state)[0])


def _redrive(request_id: str) -> str:
    """Agents choose these ids: nothing of one may reach the shell that the command is pasted into."""
    if printable(request_id) != request_id:
        return "interlock dead"
    return f"interlock redrive {'-- ' * request_id.startswith('-')}{shlex.quote(request_id)}"
