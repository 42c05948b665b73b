"""What holds instances of one kind: tasks, workstreams, runs, gates, patches, workers, breakers, jobs."""

import shlex
from collections.abc import Callable, Mapping

from workers.stuck.facts import BY, WHY, Facts, Reason, at, counted, fire, first_line, named, span

PASSED, COMPLETED = "PASSED", "completed"
ENDED = ("succeeded", "failed", "canceled")


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
        return Reason(f"it depends on {named(waits)}", f"interlock show {_ref(waits[0])}")
    says = f"its workstream {facts.about['workstream']} is {facts.about['workstream_state']}"
    return Reason(says, f"interlock show {facts.about['ws_id']}")


def _queued(facts: Facts) -> Reason:
    about = facts.about
    if about["claimed_by"]:
        says = f"worker {about['claimed_by']} claimed it {span(about['claimed_seconds'])} ago and has not begun"
        return Reason(says, f"interlock worker shutdown {shlex.quote(about['claimed_by'])} --now")
    if about["nobody_offers"]:
        offers = ", ".join(about["nobody_offers"])
        if {"interlock:execute", "interlock:agent"} & set(about["nobody_offers"]):
            return Reason(f"no worker is alive that could take it: nobody offers {offers}", "interlock up --detach")
        says = f"no worker offers {offers}"
        needs = ",".join(about["required_capabilities"])
        return Reason(says, f"INTERLOCK_CAPABILITIES={needs} celery -A workers.main:app worker -Q work -n more@%h")
    return _who_could(about)


def _who_could(about: Mapping[str, object]) -> Reason:
    if about["fitting"] == 0:
        return Reason(
            "no worker that offers what it requires may work for its workstream (affinity)", "interlock worker list"
        )
    if about["fitting_free"]:
        says = f"worker {about['fitting_free']} is free and fits, but takes nothing"
        return Reason(says, f"interlock worker shutdown {shlex.quote(str(about['fitting_free']))}")
    if about["fitting_suspended"]:
        says = f"worker {about['fitting_suspended']}, which could take it, is suspended"
        return Reason(says, f"interlock worker resume {shlex.quote(str(about['fitting_suspended']))} {BY}")
    if about["fitting_silent"]:
        says = f"worker {about['fitting_silent']}, which could take it, is not heard of"
        return Reason(says, f"interlock worker shutdown {shlex.quote(str(about['fitting_silent']))} --now")
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
        return Reason(says, f"interlock breaker reset {shlex.quote(tool)} {BY} {WHY}")
    when = f"tried again at {at(due['not_before'])}" if due else "nothing will try it again"
    says = (
        f"attempt {about['retry_count']} of {about['max_retries']} failed ({first_line(about['last_error'])}); {when}"
    )
    return Reason(says, facts.fire("retry_delay_elapsed"))


def _validating(facts: Facts) -> Reason | None:
    waits = [*facts.linked("gates", PASSED), *facts.linked("patches", "committed", "verified")]
    return Reason(f"it waits for {named(waits)}", f"interlock show {_ref(waits[0])}") if waits else None


TASKS: Mapping[str, Callable[[Facts], Reason | None]] = {
    "pending": _unmet,
    "blocked": _unmet,
    "queued": _queued,
    "running": _running,
    "retrying": _retrying,
    "validating": _validating,
}


def workstream(facts: Facts) -> Reason | None:
    """A workstream: its run, what it depends on, its gates, its tasks."""
    about = facts.about
    if not about:
        return None
    if facts.state == "paused":
        return Reason("somebody paused it", facts.fire("resume"))
    if about["run_state"] == "pending":
        return Reason(f"its run {about['run']} has not been started", fire(about["run_id"], "start"))
    if about["run_state"] in ENDED:
        return Reason(f"its run {about['run']} is {about['run_state']}", facts.fire("user_cancelled"))
    return _own(facts)


def _own(facts: Facts) -> Reason | None:
    about = facts.about
    if facts.state in ("planned", "blocked") and (waits := facts.linked("depends_on", COMPLETED)):
        return Reason(f"it depends on {named(waits)}", f"interlock show {_ref(waits[0])}")
    if facts.state == "planned" and (about["missing"] or 0) > 0:
        return Reason(f"{about['missing']} of its tasks have not been created", facts.fire("user_cancelled"))
    if facts.state == "validating" and (waits := facts.linked("gates", PASSED)):
        return Reason(f"it waits for {named(waits)}", f"interlock show {_ref(waits[0])}")
    return _members(facts, facts.id)


def run(facts: Facts) -> Reason | None:
    """A run: nobody started it, or its workstreams have not ended."""
    if facts.state == "pending":
        return Reason("nobody has started it", facts.fire("start"))
    return _members(facts, None) if facts.about else None


def _members(facts: Facts, workstream_id: str | None) -> Reason | None:
    if not (first := facts.about["first"]):
        return Reason(f"all its {facts.about['members']}s have ended, and nothing followed", "interlock doctor")
    says = f"its {facts.about['members']}s: {counted(facts.about['unended'])}; {first['name']} is {first['state']}"
    if workstream_id is None:
        return Reason(says, f"interlock show {first['id']}")
    return Reason(says, f"interlock playbook run recover-workstream {workstream_id} {BY} {WHY}")


def gate(facts: Facts) -> Reason | None:
    """A gate: those it depends on, or what it judges is not ready."""
    if waits := facts.linked("depends_on", PASSED):
        return Reason(f"it depends on {named(waits)}", f"interlock show {_ref(waits[0])}")
    judged = [each for role in ("judges", "blocks") for each in facts.linked(role)]
    return (
        Reason(f"its moment has not come: it judges {named(judged)}", f"interlock show {_ref(judged[0])}")
        if judged
        else None
    )


def patch(facts: Facts) -> Reason | None:
    """A patch: its gates."""
    waits = facts.linked("gates", PASSED)
    return Reason(f"it waits for {named(waits)}", f"interlock show {_ref(waits[0])}") if waits else None


def worker(facts: Facts) -> Reason | None:
    """A worker: not heard of, suspended, or never ready."""
    if facts.state == "suspended":
        return Reason("somebody suspended it", f"interlock worker resume {facts.id} {BY}")
    if facts.state == "initializing":
        return Reason("it never said that it was ready", facts.fire("registration_complete"))
    says = f"not heard of for {span(facts.about['seconds'])}" if facts.about else "not heard of"
    return Reason(says, f"interlock worker shutdown {facts.id} --now")


def breaker(facts: Facts) -> Reason:
    """A breaker that is not closed."""
    due, tool = facts.asked("scheduled"), facts.instance["context"].get("tool_id")
    says = f"it lets nobody call {tool} until {at(due['not_before'])}" if due else f"nobody has tried {tool} since"
    project = facts.instance["project_id"]
    return Reason(says, f"interlock breaker reset {shlex.quote(str(tool))} --project {project} {BY} {WHY}")


def job(facts: Facts) -> Reason | None:
    """A job: there are not enough idle workers, or its children have not ended."""
    if facts.state == "PENDING":
        wanted = facts.instance["context"].get("worker_count", 1)
        says = f"it needs {wanted} idle workers in its project at once"
        return Reason(says, f"interlock supervise worker create --project {facts.instance['project_id']}")
    waits = facts.linked("workers", "COMPLETED", "FAILED", "TERMINATED")
    return Reason(f"it waits for {named(waits)}", f"interlock show {_ref(waits[0])}") if waits else None


def _ref(row: Mapping[str, object]) -> str:
    return shlex.quote(f"{row['workflow_type']}/{row['entity_id']}")


KINDS: Mapping[str, Callable[[Facts], Reason | None]] = {
    "task": task,
    "workstream": workstream,
    "run": run,
    "test_gate": gate,
    "patch_ledger": patch,
    "worker": worker,
    "circuit_breaker": breaker,
    "job": job,
}
