"""What holds a task: its run and workstream, what it depends on, its worker, its tool's breaker, its gates."""

import shlex
from collections.abc import Callable, Mapping, Sequence

from workers.crew.member import EXECUTE, OWN
from workers.stuck.facts import BY, WHY, Facts, Reason, Row, at, fire, first_line, named, show, span

PASSED, COMPLETED = "PASSED", "completed"


def task(facts: Facts) -> Reason | None:
    """A task: its run and workstream, what it depends on, its worker, its gates."""
    about = facts.about
    if not about:  # the older lineage has no typed row
        return None
    if about["run_state"] == "pending":
        return Reason(f"its run {about['run']} has not been started", fire(about["run_id"], "start"))
    if about["workstream_state"] == "paused":
        return Reason(f"its workstream {about['workstream']} is paused", fire(about["ws_id"], "resume"))
    return TASKS[facts.state](facts) if facts.state in TASKS else None


def _unmet(facts: Facts) -> Reason | None:
    waits = [*facts.linked("depends_on", COMPLETED), *facts.linked("blocked_by_gates", PASSED)]
    if waits:
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    says = f"its workstream {facts.about['workstream']} is {facts.about['workstream_state']}"
    return Reason(says, f"interlock show {facts.about['ws_id']}")


def _queued(facts: Facts) -> Reason:
    about = facts.about
    if about["claimed_by"]:
        says = f"worker {about['claimed_by']} claimed it {span(about['claimed_seconds'])} ago and has not begun"
        return Reason(says, f"interlock worker shutdown {shlex.quote(about['claimed_by'])} --now")
    reason = _nobody_could(about) or _who_could(about)
    return reason._replace(says=f"{reason.says}; so do {about['same']} more") if about["same"] else reason


def _nobody_could(about: Row) -> Reason | None:
    needs = [each for each in about["required_capabilities"] if not each.startswith(OWN)]  # the rest nobody asks for
    lacking = set(about["nobody_offers"])
    if about["kind"] == "agent" and not about["able"]:
        what = " and ".join(needs)
        says = "it waits for an agent: none is registered" + (f" that offers {what}" if needs else "")
        return Reason(says, "interlock worker register NAME" + "".join(f" --can {shlex.quote(each)}" for each in needs))
    if EXECUTE in lacking:
        return Reason("it waits for a worker: none is alive", "interlock up --detach")
    if about["able"]:
        return None
    says = f"none offers {', '.join(sorted(lacking))}" if lacking else f"no single one offers {' and '.join(needs)}"
    return Reason(f"it waits for a worker: {says}", _node(needs))


def _node(needs: Sequence[str]) -> str:
    """The command that starts a node whose workers offer all that is needed."""
    offers = shlex.quote(",".join(needs))
    return f"INTERLOCK_CAPABILITIES={offers} celery -A workers.main:app worker -Q work -n more@%h"


def _who_could(about: Row) -> Reason:
    if about["fitting"] == 0:
        says = "it waits for a worker: those that offer what it requires are kept away by affinity"
        return Reason(says, "interlock worker list")
    if about["fitting_free"] and about["kind"] == "agent":
        says = f"the agent {about['fitting_free']} is free and fits, and does not claim it"
        return Reason(says, f"interlock worker claim {shlex.quote(about['fitting_free'])}")
    if about["fitting_free"]:
        says = f"worker {about['fitting_free']} is free and fits, but takes nothing: if that lasts, kill its process"
        return Reason(
            f"{says}, and another takes its place", f"interlock worker show {shlex.quote(about['fitting_free'])}"
        )
    if about["fitting_suspended"]:
        says = f"worker {about['fitting_suspended']}, which could take it, is suspended"
        return Reason(says, f"interlock worker resume {shlex.quote(about['fitting_suspended'])} {BY}")
    if about["fitting_silent"]:
        says = f"worker {about['fitting_silent']}, which could take it, is not heard of"
        return Reason(says, f"interlock worker shutdown {shlex.quote(about['fitting_silent'])} --now")
    says = f"all {about['fitting']} workers that fit it are busy ({about['fitting_draining']} of them draining)"
    return Reason(says, "interlock worker list --state busy")


def _running(facts: Facts) -> Reason:
    about, due = facts.about, facts.asked("scheduled")
    says = (
        f"worker {about['worker']} ({about['worker_state']}, heard of {span(about['heartbeat_seconds'])} ago) holds it"
    )
    ends = f"; its time is up at {at(due['not_before'])}" if due else ""
    return Reason(says + ends, facts.fire("timeout_exceeded"))


def _retrying(facts: Facts) -> Reason | None:
    about, due = facts.about, facts.asked("scheduled", "pending")
    if about["breaker_state"] == "OPEN":
        tool = about["tool"]
        says = f"the breaker of its tool {tool} is OPEN until {at(about['breaker_until'])}: "
        says += first_line(about["last_error"])
        project = facts.instance["project_id"]
        return Reason(says, f"interlock breaker reset {shlex.quote(tool)} --project {project} {BY} {WHY}")
    when = f"tried again at {at(due['not_before'])}" if due else "nothing will try it again"
    says = (
        f"attempt {about['retry_count']} of {about['max_retries']} failed ({first_line(about['last_error'])}); {when}"
    )
    return Reason(says, facts.fire("retry_delay_elapsed"))


def _validating(facts: Facts) -> Reason | None:
    waits = [*facts.linked("gates", PASSED), *facts.linked("patches", "committed", "verified")]
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


TASKS: Mapping[str, Callable[[Facts], Reason | None]] = {
    "pending": _unmet,
    "blocked": _unmet,
    "queued": _queued,
    "running": _running,
    "retrying": _retrying,
    "validating": _validating,
}
