"""What holds instances of one kind: workstreams, runs, gates, patches, workers, breakers, jobs, approvals."""

import shlex
from collections.abc import Callable, Mapping

from workers.stuck.facts import BY, WHY, Facts, Reason, at, by_another, counted, fire, named, show, span
from workers.stuck.tasks import COMPLETED, PASSED, task

ENDED = ("succeeded", "failed", "canceled")


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
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    if facts.state == "planned" and (about["missing"] or 0) > 0:
        return Reason(f"{about['missing']} of its tasks have not been created", facts.fire("user_cancelled"))
    if facts.state == "validating" and (waits := facts.linked("gates", PASSED)):
        return Reason(f"it waits for {named(waits)}", show(waits[0]))
    return _members(facts)


def run(facts: Facts) -> Reason | None:
    """A run: nobody started it, or its workstreams have not ended."""
    if facts.state == "pending":
        return Reason("nobody has started it", facts.fire("start"))
    return _members(facts) if facts.about else None


def _members(facts: Facts) -> Reason:
    if not (first := facts.about["first"]):
        return Reason(f"all its {facts.about['members']}s have ended, and nothing followed", "interlock doctor")
    says = f"its {facts.about['members']}s: {counted(facts.about['unended'])}; {first['name']} is {first['state']}"
    if first["state"] == "running":  # what else holds one has a reason of its own, and no playbook
        return Reason(says, f"interlock playbook run recover-workstream {facts.id} {BY} {WHY}")
    return Reason(says, f"interlock stuck --all --project {facts.instance['project_id']}")


def gate(facts: Facts) -> Reason | None:
    """A gate: those it depends on, or what it judges is not ready."""
    if waits := facts.linked("depends_on", PASSED):
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    judged = [each for role in ("judges", "blocks") for each in facts.linked(role)]
    return Reason(f"its moment has not come: it judges {named(judged)}", show(judged[0])) if judged else None


def patch(facts: Facts) -> Reason | None:
    """A patch: its gates."""
    waits = facts.linked("gates", PASSED)
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


def worker(facts: Facts) -> Reason | None:
    """A worker: not heard of, suspended, or never ready."""
    if facts.state == "suspended":
        return Reason("somebody suspended it", f"interlock worker resume {facts.id} {BY}")
    if facts.state == "initializing":
        return Reason("it never said that it was ready", facts.fire("registration_complete"))
    says = f"not heard of for {span(facts.about['seconds'])}" if facts.about else "not heard of"
    return Reason(says, f"interlock worker shutdown {facts.id} --now")


def breaker(facts: Facts) -> Reason:
    """A breaker that is open."""
    due, tool = facts.asked("scheduled"), facts.instance["context"].get("tool_id")
    says = f"it lets nobody call {tool}" + (f" until {at(due['not_before'])}" if due else "")
    project = facts.instance["project_id"]
    return Reason(says, f"interlock breaker reset {shlex.quote(str(tool))} --project {project} {BY} {WHY}")


def job(facts: Facts) -> Reason | None:
    """A job: there are not enough idle workers, or its children have not ended."""
    if facts.state == "PENDING":
        wanted = facts.instance["context"].get("worker_count", 1)
        says = f"it needs {wanted} idle workers in its project at once"
        return Reason(says, f"interlock supervise worker create --project {facts.instance['project_id']}")
    waits = facts.linked("workers", "COMPLETED", "FAILED", "TERMINATED")
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


def approval(facts: Facts) -> Reason:
    """An approval that nobody has decided."""
    context, due = facts.instance["context"], facts.asked("scheduled")
    who = " or ".join(context.get("deciders") or ()) or f"anybody but {context.get('author') or 'its author'}"
    ends = f"; it expires at {at(due['not_before'])}" if due else ""
    return Reason(f"it waits for the decision of {who}{ends}", by_another(facts.fire("approve")))


KINDS: Mapping[str, Callable[[Facts], Reason | None]] = {
    "task": task,
    "workstream": workstream,
    "run": run,
    "test_gate": gate,
    "patch_ledger": patch,
    "worker": worker,
    "circuit_breaker": breaker,
    "job": job,
    "approval": approval,
}
