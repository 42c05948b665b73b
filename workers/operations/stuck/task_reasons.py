"""Reasons of tasks: their run and workstream, dependencies, worker, tool's breaker, gates."""

from collections.abc import Callable, Mapping, Sequence

from interlock.workers.operations.stuck.facts import WHY, Facts, Reason, Row, at, fire, first_line, named, show, span
from interlock.workers.pool.registration import EXECUTE, OWN
from interlock.workflows.output.suggestions import ME, offered, with_setting

PASSED, COMPLETED = "PASSED", "completed"


def task(facts: Facts) -> Reason | None:
    """A task: its run and workstream, its dependencies, its worker, its gates."""
    row = facts.details
    if not row:  # tasks of the legacy lineage have no typed row
        return None
    if row["run_state"] == "pending":
        return Reason(f"its run {row['run']} has not been started", fire(row["run_id"], "start"))
    if row["workstream_state"] == "paused":
        return Reason(f"its workstream {row['workstream']} is paused", fire(row["ws_id"], "resume"))
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
        return Reason(message, offered("worker", "shutdown", row["claimed_by"], now=True))
    reason = _nobody_could(row) or _who_could(row)
    return reason._replace(text=f"{reason.text}; {row['same']} more tasks wait likewise") if row["same"] else reason


def _nobody_could(row: Row) -> Reason | None:
    needs = [each for each in row["required_capabilities"] if not each.startswith(OWN)]  # the others come with a node
    lacking = set(row["nobody_offers"])
    if row["kind"] == "agent" and not row["able"]:
        what = " and ".join(needs)
        message = "it waits for an agent: none is registered" + (f" that offers {what}" if needs else "")
        return Reason(message, offered("worker", "register", "NAME", can=needs))
    if EXECUTE in lacking:
        return Reason("it waits for a worker: none is alive", "interlock up --detach")
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
        return Reason(message, "interlock worker list")
    if row["fitting_free"] and row["kind"] == "agent":
        message = f"the agent {row['fitting_free']} is free and could run it, but does not claim it"
        return Reason(message, offered("worker", "claim", row["fitting_free"]))
    if row["fitting_free"]:
        message = f"worker {row['fitting_free']} is free and could run it, but claims no task: if that lasts, kill it"
        return Reason(f"{message}, and a new one replaces it", offered("worker", "show", row["fitting_free"]))
    if row["fitting_suspended"]:
        message = f"worker {row['fitting_suspended']}, which could run it, is suspended"
        return Reason(message, offered("worker", "resume", row["fitting_suspended"], by=ME))
    if row["fitting_silent"]:
        message = f"worker {row['fitting_silent']}, which could run it, sends no heartbeat"
        return Reason(message, offered("worker", "shutdown", row["fitting_silent"], now=True))
    message = f"all {row['fitting']} workers that could run it are busy ({row['fitting_draining']} of them draining)"
    return Reason(message, "interlock worker list --state busy")


def _running(facts: Facts) -> Reason:
    row, due = facts.details, facts.newest_request("scheduled")
    seen = f"last heartbeat {span(row['heartbeat_seconds'])} ago"
    message = f"worker {row['worker']} ({row['worker_state']}, {seen}) runs it"
    ends = f"; it times out at {at(due['not_before'])}" if due else ""
    return Reason(message + ends, fire(facts.id, "timeout_exceeded"))


def _retrying(facts: Facts) -> Reason | None:
    row, due = facts.details, facts.newest_request("scheduled", "pending")
    if row["breaker_state"] == "OPEN":
        tool = row["tool"]
        message = f"the breaker of its tool {tool} is OPEN until {at(row['breaker_until'])}: "
        message += first_line(row["last_error"])
        project = facts.instance["project"]
        return Reason(message, offered("breaker", "reset", tool, project=project, by=ME, reason=WHY))
    when = f"the next is at {at(due['not_before'])}" if due else "no retry is scheduled"
    message = f"attempt {row['retry_count']} of {row['max_retries']} failed ({first_line(row['last_error'])}); {when}"
    return Reason(message, fire(facts.id, "retry_delay_elapsed"))


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
