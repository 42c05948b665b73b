"""Reasons by type: workstreams, runs, gates, patches, workers, breakers, jobs, approvals."""

from collections.abc import Callable, Mapping

from interlock.workers.operations.stuck.facts import (
    WHY,
    Facts,
    Reason,
    at,
    by_another,
    counted,
    fire,
    named,
    show,
    span,
)
from interlock.workers.operations.stuck.task_reasons import COMPLETED, PASSED, task
from interlock.workflows.machines.supervision.supervised_worker import SUPERVISED_WORKER
from interlock.workflows.output.suggestions import ME, offered
from interlock.workflows.scheduling.next_trigger import ENDED


def workstream(facts: Facts) -> Reason | None:
    """A workstream: its run, its dependencies, its gates, its tasks."""
    row = facts.details
    if not row:
        return None
    if facts.state == "paused":
        return Reason("somebody paused it", fire(facts.id, "resume"))
    if row["run_state"] == "pending":
        return Reason(f"its run {row['run']} has not been started", fire(row["run_id"], "start"))
    if row["run_state"] in ENDED["run"]:
        return Reason(f"its run {row['run']} is {row['run_state']}", fire(facts.id, "user_cancelled"))
    return _own(facts)


def _own(facts: Facts) -> Reason | None:
    row = facts.details
    if facts.state in ("planned", "blocked") and (waits := facts.linked("depends_on", COMPLETED)):
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    if facts.state == "planned" and (row["missing"] or 0) > 0:
        return Reason(f"{row['missing']} of its tasks have not been created", fire(facts.id, "user_cancelled"))
    if facts.state == "validating" and (waits := facts.linked("gates", PASSED)):
        return Reason(f"it waits for {named(waits)}", show(waits[0]))
    return _members(facts)


def run(facts: Facts) -> Reason | None:
    """A run: nobody started it, or its workstreams have not ended."""
    if facts.state == "pending":
        return Reason("nobody has started it", fire(facts.id, "start"))
    return _members(facts) if facts.details else None


def _members(facts: Facts) -> Reason:
    if not (first := facts.details["first"]):
        return Reason(f"all its {facts.details['members']}s have ended, but it has not moved on", "interlock doctor")
    message = (
        f"its {facts.details['members']}s: {counted(facts.details['unended'])}; {first['name']} is {first['state']}"
    )
    if first["state"] == "running":  # in any other state it has a reason of its own, and no playbook
        return Reason(message, offered("playbook", "run", "recover-workstream", facts.id, by=ME, reason=WHY))
    return Reason(message, offered("stuck", all=True, project=facts.instance["project"]))


def gate(facts: Facts) -> Reason | None:
    """A gate: the gates it depends on have not passed, or what it judges is not ready."""
    if waits := facts.linked("depends_on", PASSED):
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    judged = [each for role in ("judges", "blocks") for each in facts.linked(role)]
    return Reason(f"it cannot run yet: it judges {named(judged)}", show(judged[0])) if judged else None


def patch(facts: Facts) -> Reason | None:
    """A patch: its gates have not passed."""
    waits = facts.linked("gates", PASSED)
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


def worker(facts: Facts) -> Reason | None:
    """A worker: silent, suspended, or never ready."""
    if facts.state == "suspended":
        return Reason("somebody suspended it", offered("worker", "resume", facts.id, by=ME))
    if facts.state == "initializing":
        return Reason("it never reported that it is ready", fire(facts.id, "registration_complete"))
    message = f"no heartbeat for {span(facts.details['seconds'])}" if facts.details else "no heartbeat"
    return Reason(message, offered("worker", "shutdown", facts.id, now=True))


def breaker(facts: Facts) -> Reason:
    """A breaker: it is open."""
    due, tool = facts.newest_request("scheduled"), facts.instance["context"].get("tool_id")
    message = f"it rejects all calls of {tool}" + (f" until {at(due['not_before'])}" if due else "")
    project = facts.instance["project"]
    return Reason(message, offered("breaker", "reset", tool, project=project, by=ME, reason=WHY))


def job(facts: Facts) -> Reason | None:
    """A job: there are not enough idle workers, or its workers have not ended."""
    if facts.state == "PENDING":
        wanted = facts.instance["context"].get("worker_count", 1)
        message = f"it needs {wanted} idle workers in its project at once"
        return Reason(message, offered("supervise", "worker", "create", project=facts.instance["project"]))
    waits = facts.linked("workers", *SUPERVISED_WORKER.terminal)
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


def approval(facts: Facts) -> Reason:
    """An approval: nobody has decided it."""
    context, due = facts.instance["context"], facts.newest_request("scheduled")
    who = " or ".join(context.get("deciders") or ()) or f"anybody but {context.get('author') or 'its author'}"
    ends = f"; it expires at {at(due['not_before'])}" if due else ""
    return Reason(f"it waits for the decision of {who}{ends}", by_another(facts.id, "approve"))


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
