"""Reasons by type: tasks, workstreams, runs, gates, patches, workers, breakers, jobs, approvals, sprints and more."""

import json
from collections.abc import Callable, Mapping, Sequence

from interlock.workers.client.partition_drainer import PATIENCE_SECONDS
from interlock.workers.operations.stuck.facts import LATE_SECONDS, Facts, Reason, Row
from interlock.workers.operations.stuck.words import (
    ANOTHER,
    WHY,
    at,
    counted,
    decision,
    fire,
    fire_on,
    first_line,
    limited,
    named,
    show,
    span,
)
from interlock.workers.pool.registration import EXECUTE
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.machines.orchestration.worker import OWN
from interlock.workflows.machines.supervision.supervised_worker import SUPERVISED_WORKER
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import ME, offered, with_setting
from interlock.workflows.scheduling.next_trigger import ENDED

PASSED, COMPLETED = "PASSED", "completed"


HELD = {"task": ("pending", "queued"), "workstream": ("ready", "executing", "validating")}


def frozen(facts: Facts) -> Reason | None:
    """Its phase is frozen, so it does not start or land (PHASE-6)."""
    held = facts.details.get("frozen")
    if held is None or facts.state not in HELD[facts.instance["workflow_type"]]:
        return None
    if any(each["status"] == "leased" for each in facts.effects):
        return None
    why = f"its phase {held['phase']} is frozen: {held['reason'] or 'it was not opened'}, since {at(held['since'])}"
    which = {"project": held["project"], "if_version": held["version"]}
    return Reason(why, offered("phase", "thaw", held["phase"], **which, by=ME, reason=WHY))


def task(facts: Facts) -> Reason | None:
    """A task: its run and workstream, its dependencies, its worker, its gates."""
    row = facts.details
    if not row:  # tasks of the legacy lineage have no typed row
        return None
    if row["run_state"] == "pending":
        cancel = fire(row["run_id"], row["run_version"], "cancel")
        return Reason(f"its run {row['run']} has not been started", cancel, harms=True)
    if row["workstream_state"] == "paused":
        message = f"its workstream {row['workstream']} is paused"
        return Reason(message, fire(row["ws_id"], row["workstream_version"], "resume"))
    return TASKS[facts.state](facts) if facts.state in TASKS else None


def _unmet(facts: Facts) -> Reason | None:
    waits = [*facts.linked("depends_on", COMPLETED), *facts.linked("blocked_by_gates", PASSED)]
    if waits:
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    message = f"its workstream {facts.details['workstream']} is {facts.details['workstream_state']}"
    return Reason(message, offered("show", facts.details["ws_id"]))


def _queued(facts: Facts) -> Reason:
    row = facts.details
    if row["claimed_by"]:
        message = f"worker {row['claimed_by']} claimed it {span(row['claimed_seconds'])} ago and has not started it"
        if row["claimed_seconds"] < PATIENCE_SECONDS:
            return Reason(message, show(facts.instance))
        return Reason(message, _again(facts))
    reason = _shut_out(facts) or _nobody_could(row) or _no_room(facts) or _who_could(row)
    return reason._replace(text=f"{reason.text}; {row['same']} more tasks wait likewise") if row["same"] else reason


def _shut_out(facts: Facts) -> Reason | None:
    """It waits for the breaker of its tool (BREAKER-11)."""
    row, project = facts.details, facts.instance["project"]
    if row["breaker_until"] is None:
        return None
    waits, left = f"it waits for the breaker of its tool {row['tool']}", span(row["breaker_seconds"])
    if row["breaker_state"] == "HALF_OPEN":
        message = f"{waits}, which is HALF_OPEN: another call tries the tool, and may take another {left}"
    else:
        message = f"{waits}, which is {row['breaker_state']}: it may go on in {left}"
    return Reason(message, offered("breaker", "show", row["tool"], project=project))


def _no_room(facts: Facts) -> Reason | None:
    return limited(facts, "task", facts.details["tool"], facts.details["limit_key"])


def _nobody_could(row: Row) -> Reason | None:
    needs = [each for each in row["required_capabilities"] if not each.startswith(OWN)]  # the others come with a node
    lacking = set(row["nobody_offers"])
    if row["kind"] == "agent" and not row["able"]:
        what = " and ".join(needs)
        message = "it waits for an agent: none is registered" + (f" that offers {what}" if needs else "")
        return Reason(message, offered("worker", "register", "NAME", can=needs))
    if EXECUTE in lacking:
        return Reason("it waits for a worker: none is alive", offered("up", detach=True))
    if row["able"]:
        return None
    message = f"none offers {', '.join(sorted(lacking))}" if lacking else f"no single one offers {' and '.join(needs)}"
    return Reason(f"it waits for a worker: {message}", _node(needs))


def _node(needs: Sequence[str]) -> str:
    """The command that starts a node whose workers offer all these capabilities."""
    return with_setting(
        "INTERLOCK_CAPABILITIES", ",".join(needs), "celery -A interlock.workers.main:app worker -Q work -n more@%h"
    )


def _who_could(row: Row) -> Reason:
    if row["fitting"] == 0:
        message = "it waits for a worker: its affinity excludes all that have the capabilities it requires"
        return Reason(message, offered("worker", "list"))
    if row["fitting_free"] and row["kind"] == "agent":
        message = f"the agent {row['fitting_free']} is free and could run it, but does not claim it"
        return Reason(message, offered("worker", "claim", row["fitting_free"], secret_file="FILE"))  # noqa: S106 - a placeholder
    if row["fitting_free"]:
        message = f"worker {row['fitting_free']} is free and could run it, but claims no task: if that lasts, kill it"
        return Reason(f"{message}, and a new one replaces it", offered("worker", "show", row["fitting_free"]))
    if row["fitting_suspended"]:
        message = f"worker {row['fitting_suspended']}, which could run it, is suspended"
        at_version = {"if_version": row["suspended_version"], "by": ME, "reason": WHY}
        return Reason(message, offered("worker", "resume", row["suspended_id"], **at_version))
    if row["fitting_silent"]:
        message = f"worker {row['fitting_silent']}, which could run it, sends no heartbeat"
        return Reason(message, offered("worker", "shutdown", row["fitting_silent"], if_silent=True, by=ME, reason=WHY))
    could = "worker that could run it: busy" if row["fitting"] == 1 else "workers that could run it: all busy"
    message = f"{row['fitting']} {could} ({row['fitting_draining']} draining)"
    return Reason(message, offered("worker", "list", state="busy"))


def _running(facts: Facts) -> Reason:
    row, due = facts.details, facts.newest_request("scheduled")
    seen = f"last heartbeat {span(row['heartbeat_seconds'])} ago"
    message = f"worker {row['worker']} ({row['worker_state']}, {seen}) runs it"
    if due is None:
        return Reason(message, _again(facts), harms=True)
    healthy = row["worker_answers"] and due["due_seconds"] < 0
    message += f"; it times out at {at(due['not_before'])}"
    return Reason(message, show(facts.instance) if healthy else _again(facts))


def _retrying(facts: Facts) -> Reason | None:
    row, due = facts.details, facts.newest_request("scheduled", "pending")
    message = f"attempt {row['retry_count']} of {row['max_retries']} failed ({first_line(row['last_error'])})"
    if due is None:
        return Reason(f"{message}; no retry is scheduled", _again(facts))
    return Reason(f"{message}; the next is at {at(due['not_before'])}", show(facts.instance))


def _again(facts: Facts) -> str:
    return offered("override", "reset-task", facts.id, if_version=facts.instance["version"], by=ME, reason=WHY)


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


def workstream(facts: Facts) -> Reason | None:
    """A workstream: its run, its dependencies, its gates, its tasks."""
    row = facts.details
    if not row:
        return None
    if facts.state == "paused":
        return Reason("somebody paused it", fire_on(facts, "resume"))
    if row["run_state"] == "pending":
        cancel = fire(row["run_id"], row["run_version"], "cancel")
        return Reason(f"its run {row['run']} has not been started", cancel, harms=True)
    if row["run_state"] in ENDED["run"]:
        return Reason(f"its run {row['run']} is {row['run_state']}", fire_on(facts, "user_cancelled"), harms=True)
    return _own(facts)


def _own(facts: Facts) -> Reason | None:
    row = facts.details
    if facts.state in ("planned", "blocked") and (waits := facts.linked("depends_on", COMPLETED)):
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    if facts.state == "planned" and (row["missing"] or 0) > 0:
        message = f"{number_of(row['missing'], 'task')} of it not created yet"
        return Reason(message, fire_on(facts, "user_cancelled"), harms=True)
    if facts.state == "validating" and (waits := facts.linked("gates", PASSED)):
        return Reason(f"it waits for {named(waits)}", show(waits[0]))
    if facts.state == "validating" and (asked := facts.linked("landing_approvals", *APPROVAL.terminal)):
        who, command, _ = decision(facts, asked[0]["id"], asked[0]["version"])
        return Reason(f"its landing waits for the approval {asked[0]['entity_id']}, {who}", command)
    return _members(facts)


def run(facts: Facts) -> Reason | None:
    """A run: nobody started it, or its workstreams have not ended."""
    if facts.state == "pending":
        return Reason("it was made by hand, and nothing starts it", fire_on(facts, "cancel"), harms=True)
    return _members(facts) if facts.details else None


def _members(facts: Facts) -> Reason:
    if not (first := facts.details["first"]):
        return Reason(f"all its {facts.details['members']}s have ended, but it has not moved on", offered("doctor"))
    message = (
        f"its {facts.details['members']}s: {counted(facts.details['unended'])}; {first['name']} is {first['state']}"
    )
    if first["state"] == "running":  # in any other state it has a reason of its own, and no playbook
        command = offered("playbook", "run", "recover-workstream", facts.id, by=ME, reason=WHY)
        return Reason(message, command, harms=True)
    return Reason(message, offered("stuck", all=True, project=facts.instance["project"]))


def gate(facts: Facts) -> Reason | None:
    """A gate: those it depends on have not passed, what it judges is not ready, or its workstream does not go on."""
    if waits := facts.linked("depends_on", PASSED):
        return Reason(f"it depends on {named(waits)}", show(waits[0]))
    if facts.instance["context"].get("moment") == "start":
        blocked = facts.linked("blocks")
        message = f"it runs while its workstream goes on, before {named(blocked)}"
        return Reason(message, show(blocked[0])) if blocked else None
    judged = facts.linked("judges")
    return Reason(f"it cannot run yet: it judges {named(judged)}", show(judged[0])) if judged else None


def patch(facts: Facts) -> Reason | None:
    """A patch: its gates have not passed."""
    waits = facts.linked("gates", PASSED)
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


def worker(facts: Facts) -> Reason | None:
    """A worker, whatever its machine: silent, suspended, or never ready."""
    at_version = {"if_version": facts.instance["version"], "by": ME, "reason": WHY}
    if facts.state == "suspended":
        return Reason("somebody suspended it", offered("worker", "resume", facts.id, **at_version))
    if facts.state in ("initializing", "SPAWNING"):  # only itself can say that it is ready
        message = "it never reported that it is ready; it can be shut down, and register anew"
        return Reason(message, offered("worker", "shutdown", facts.id, **at_version), harms=True)
    message = f"no heartbeat for {span(facts.details['seconds'])}" if facts.details else "no heartbeat"
    return Reason(message, offered("worker", "shutdown", facts.id, if_silent=True, by=ME, reason=WHY))


def breaker(facts: Facts) -> Reason:
    """A breaker: it is open, or nobody makes the call that decides."""
    due, tool = facts.newest_request("scheduled"), facts.instance["context"].get("tool_id")
    project = facts.instance["project"]
    if facts.state == "HALF_OPEN":
        message = f"its cooldown is over, but nobody tries {tool}, though a trial was given up or tasks wait for it"
        return Reason(message, offered("breaker", "show", tool, project=project))
    message = f"it rejects all calls of {tool}" + (f" until {at(due['not_before'])}" if due else "")
    if due and due["due_seconds"] < 0:  # then it tries the tool again by itself
        return Reason(message, offered("breaker", "show", tool, project=project))
    at_version = {"if_version": facts.instance["version"], "by": ME, "reason": WHY}
    return Reason(message, offered("breaker", "reset", tool, project=project, **at_version))


def brake(facts: Facts) -> Reason:
    """A brake: it holds until an operator releases it."""
    kind, name, why = (facts.instance["context"].get(each) for each in ("kind", "name", "reason"))
    what = kind if kind == "project" else f"{kind} {name}"
    project = facts.instance["project"]
    command = offered("brake", "release", facts.instance["entity_id"], project=project, reason=WHY)
    return Reason(f"it holds {what} until an operator releases it: {first_line(why)}", command)


def job(facts: Facts) -> Reason | None:
    """A job: nobody validated it, there are not enough idle workers, or nobody reported its outcome."""
    if facts.state == "SUBMITTED":
        return _submitted(facts)
    if facts.state == "PENDING":
        if full := limited(facts, "job", facts.instance["context"].get("tool"), None):
            return full
        wanted = facts.instance["context"].get("worker_count", 1)
        message = f"it needs {number_of(wanted, 'idle worker')} in its project at once"
        return Reason(message, offered("supervise", "worker", "create", project=facts.instance["project"]))
    due = facts.newest_request("scheduled")
    ends = f"; it is canceled at {at(due['not_before'])}" if due else ""
    if waits := facts.linked("workers", *SUPERVISED_WORKER.terminal):
        return Reason(f"it waits for {named(waits)}{ends}", show(waits[0]))
    message = f"all its workers have ended, and nobody has reported its outcome (job succeed, job fail){ends}"
    return Reason(message, offered("job", "show", facts.id))


def _submitted(facts: Facts) -> Reason:
    if refused := facts.newest_request("rejected"):
        message = f"it cannot be validated: {first_line((refused['result'] or {}).get('message'))}"
        return Reason(message, fire_on(facts, "cancel", data=json.dumps({"reason": WHY})))
    message = "nobody has validated it; whoever submitted it and operators may"
    return Reason(message, offered("job", "validate", facts.id, by=ME))


def sprint(facts: Facts) -> Reason | None:
    """A sprint in review: its stories that are not done."""
    waits = facts.linked("stories", "done") if facts.state == "review" else []
    return Reason(f"it waits for {named(waits)}", show(waits[0])) if waits else None


def approval(facts: Facts) -> Reason:
    """An approval: nobody has decided it."""
    context, due = facts.instance["context"], facts.newest_request("scheduled")
    if {"subject", "trigger", "request_id"} <= context.keys() and not facts.details["releases"]:
        message = (
            f"{context['subject']} has moved on since its {context['trigger']} was held: approving this does nothing"
        )
        return Reason(message, fire_on(facts, "reject", by=ANOTHER))
    ends = f"; it expires at {at(due['not_before'])}" if due else ""
    who, command, _ = decision(facts, facts.instance["id"], facts.instance["version"])
    return Reason(f"it waits for {who}{ends}", command)


def regression(facts: Facts) -> Reason | None:
    """A regression: no operator has decided on the rollback that it proposes."""
    if facts.state != "proposed":
        return None
    due = facts.newest_request("scheduled")
    ends = f"; the proposal expires at {at(due['not_before'])}" if due else ""
    decide = offered("regression", "approve", facts.id, by=ME, reason=WHY)
    return Reason(f"it waits for an operator to approve or reject the rollback{ends}", decide)


def schedule(facts: Facts) -> Reason | None:
    """A schedule: its last time could not be fired, or nobody fires it."""
    row = facts.details
    if not row or row["next_at"] is None:
        return None
    command = offered("schedule", "show", facts.instance["entity_id"], project=facts.instance["project"])
    if row["target_type"] is not None and not row["known"]:
        target = f"{row['target_type']} {row['target_version']}"
        message = f"it is due since {at(row['next_at'])}, but this release does not know {target}, at which it fires"
        return Reason(message, offered("definitions", "list"))
    if row["failed_at"] is not None:
        return Reason(f"it has not been fired since {at(row['failed_at'])}: {first_line(row['failure'])}", command)
    if facts.instance["seconds"] < LATE_SECONDS:
        return Reason(f"it is due since {at(row['next_at'])}; the next sweep fires it", command)
    return Reason(
        f"it is due since {at(row['next_at'])}, but no sweep has fired it: is beat running?", offered("doctor")
    )


def subscription(facts: Facts) -> Reason | None:
    """A subscription: its endpoint takes nothing, or nobody delivers."""
    row = facts.details
    if not row:
        return None
    if row["failed_at"] is None:
        return Reason("it has events that nobody delivers: does a node take `deliveries`?", offered("doctor"))
    command = offered("subscription", "show", facts.instance["entity_id"], project=facts.instance["project"])
    tried = f"{row['attempts']} attempts since {at(row['failed_at'])}, the next at {at(row['next_at'])}"
    return Reason(f"its endpoint takes nothing: {first_line(row['error'])} ({tried})", command)


KINDS: Mapping[str, Callable[[Facts], Reason | None]] = {
    "task": task,
    "workstream": workstream,
    "run": run,
    "test_gate": gate,
    "patch_ledger": patch,
    "worker": worker,
    "uet_worker": worker,
    "circuit_breaker": breaker,
    "brake": brake,
    "job": job,
    "approval": approval,
    "regression": regression,
    "sprint": sprint,
    "schedule": schedule,
    "subscription": subscription,
}
