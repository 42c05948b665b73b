"""Derive the next trigger of tasks, gates, patches, workstreams and runs; `counts` has the rules for the last two.

Pure: facts in, one row of `db.orchestration.scheduling.facts` each; out comes the name of a trigger, with its reason if
it needs one.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from interlock.workflows.machines.orchestration.link_guards import APPLY_RETRIES
from interlock.workflows.machines.orchestration.run import RUN_1_1
from interlock.workflows.machines.orchestration.task import TASK_1_1
from interlock.workflows.machines.orchestration.test_gate import TEST_GATE_1_1
from interlock.workflows.machines.orchestration.workstream import WORKSTREAM_1_1
from interlock.workflows.scheduling.counts import (
    RUN_COUNTS,
    TASK_COUNTS,
    RunCounts,
    WorkstreamCounts,
    run_trigger,
    workstream_trigger,
)

Facts = Mapping[str, Any]

ERROR_LIMIT = 1_000  # characters of a gate's output in a task's last error
LINE, REASON_LIMIT = "\n", 300  # a reason is shown as one line of a table; the full output is stored beside it
WHY = {
    "patch_set_aside": "a patch of it was quarantined",
    "tasks_lost": "its tasks have ended, and not all of them are completed",
}
OPEN = ("ready", "executing")  # states of a workstream in which its tasks and gates may start
ENDED = {each.type: each.terminal for each in (TASK_1_1, TEST_GATE_1_1, WORKSTREAM_1_1, RUN_1_1)}


class NextStep(NamedTuple):
    """A trigger or an action of the scheduler's own (`run`, `rerun`, `ask`, `land`, `hold`); reason and metadata."""

    trigger: str
    reason: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})


def task(facts: Facts) -> NextStep | None:
    """The next trigger of a task (DERIVE-5)."""
    state, over = facts["state"], _over(facts)
    if state in ENDED["task"]:
        return None
    if over:
        return NextStep("cancel", over)
    if state == "pending":
        return _pending(facts)
    if state == "blocked":
        return _blocked(facts)
    return _judged(facts) if state == "validating" else None


def gate(facts: Facts) -> NextStep | None:
    """The next trigger of a gate (DERIVE-6).

    `run`, `rerun` and `hold` are not triggers. `run`: ask a node to run it, which fires `gate_started`. `rerun`: run
    the failed gate again as a new gate. `hold`: wait with that until everything that depends on it is blocked.
    """
    if facts["state"] == "FAILED":
        if facts["reruns_left"] == 0 or _over(facts):
            return None
        return NextStep("hold" if facts["dependents_waiting"] else "rerun")
    if facts["state"] in ENDED["test_gate"]:
        return None
    if over := _over(facts):
        return NextStep("cancel", over)
    if facts["state"] == "BLOCKED":
        return NextStep("dependency_passed") if facts["dependencies_open"] == 0 else None
    return _before_it_runs(facts) if facts["state"] == "PENDING" else None


def patch(facts: Facts) -> NextStep | None:
    """The next trigger of a patch (DERIVE-7)."""
    over = facts["workstream_state"] in ENDED["workstream"] and f"its workstream is {facts['workstream_state']}"
    match facts["state"]:
        case "validated" if over:
            return NextStep("violate_policy", over)
        case "validated" if not facts["behind"]:
            return NextStep("accept")
        case "apply_failed" if facts["apply_retries"] < APPLY_RETRIES and not over:
            return NextStep("retry_apply")
        case "apply_failed":
            return NextStep("give_up", over) if over else _refused(facts)
        case "applied":
            return _tested(facts, over or None)
    return None


def workstream(facts: Facts) -> NextStep | None:
    """The next trigger of a workstream.

    `ask` and `land` are not triggers. `ask`: ask for the approval that its phase requires. `land`: merge its changes,
    which then fires the outcome.
    """
    if facts["state"] in ENDED["workstream"]:
        return None
    if facts["run_state"] in ENDED["run"]:
        return NextStep("cancel", f"the run {facts['run_state']}")
    return None if facts["run_state"] == "pending" else _derived(facts)


def run(facts: Facts) -> NextStep | None:
    """The next trigger of a run."""
    trigger = run_trigger(RunCounts(facts["state"], **{name: facts[name] for name in RUN_COUNTS}))
    return NextStep(trigger) if trigger else None


def _before_it_runs(gate: Facts) -> NextStep | None:
    if gate["dependencies_failed"]:
        return NextStep("dependency_failed", "a gate it depends on has failed")
    return NextStep("run") if gate["dependencies_open"] == 0 and _is_due(gate) else None


def _over(facts: Facts) -> str | None:
    for what in ("workstream", "run"):
        if facts[f"{what}_state"] in ENDED[what]:
            return f"its {what} is {facts[f'{what}_state']}"
    return None


def _pending(facts: Facts) -> NextStep | None:
    if facts["dead"] or facts["failed_before"]:
        return NextStep("dependency_check_failed", "what it depends on has failed")
    may_start = (
        facts["unmet"] == 0
        and facts["workstream_state"] in OPEN
        and facts["run_state"] == "running"
        and not facts["frozen"]  # PHASE-6
    )
    return NextStep("scheduler_assigned") if may_start else None


def _blocked(facts: Facts) -> NextStep | None:
    if facts["dead"]:  # DERIVE-3
        return NextStep("cancel", "what it depends on can never complete")
    return NextStep("dependency_satisfied") if facts["unmet"] == 0 else None


def _judged(facts: Facts) -> NextStep | None:
    if lost := facts["lost_gate"]:
        return NextStep("validation_failed", _gate_outcome(lost), {"gate": lost["gate"], "error": _with_output(lost)})
    if lost := facts["lost_patch"]:
        return NextStep("validation_failed", f"its patch {lost['patch']} was {lost['state']}: {lost['reason']}")
    return None if facts["gates_open"] or facts["patches_open"] else NextStep("validation_passed")


def _refused(facts: Facts) -> NextStep:
    """`give_up`, with the message of the last attempt (PATCH-4)."""
    output = facts["refusal"] or "nobody said why"
    reason = f"it could not be applied in {APPLY_RETRIES + 1} tries: {output.partition(LINE)[0][:REASON_LIMIT]}"
    return NextStep("give_up", reason, {"output": output})


def _tested(facts: Facts, over: str | None) -> NextStep | None:
    if over:
        return NextStep("tests_failed", over)
    if lost := facts["lost_gate"]:
        return NextStep("tests_failed", _gate_outcome(lost), lost)
    return NextStep("tests_passed") if facts["gates_open"] == 0 else None


def _gate_outcome(lost: Facts) -> str:
    failed = lost["exit_code"] is not None
    how = f"failed with exit code {lost['exit_code']}" if failed else "can never pass"
    return f"gate {lost['gate']} {how}"


def _with_output(lost: Facts) -> str:
    """A task's last error: the gate, and the end of its output."""
    printed = (lost["output"] or "").strip()[-ERROR_LIMIT:]
    return f"{_gate_outcome(lost)}{LINE}{printed}" if printed else _gate_outcome(lost)


def _is_due(facts: Facts) -> bool:
    workstream = str(facts["workstream_state"])
    if facts["moment"] == "start":
        return workstream in (*OPEN, "validating") and facts["run_state"] == "running"
    if facts["moment"] == "task":
        return bool(facts["judged_waiting"] == 0 < facts["judged_ready"] and facts["judged_unapplied"] == 0)
    return workstream == "validating"


def _derived(facts: Facts) -> NextStep | None:
    counts = WorkstreamCounts(
        facts["state"], task_count=facts["task_count"], **{name: facts[name] for name in TASK_COUNTS}
    )
    match workstream_trigger(counts):
        case None:
            return _closing(facts) if facts["state"] == "validating" else None
        case "all_tasks_completed" if facts["patches_open"]:
            return None
        case "all_tasks_completed" if facts["patches_lost"]:
            return NextStep("patch_set_aside", "a patch of it was taken back before it could land")
        case trigger:
            return NextStep(trigger, WHY.get(trigger))


def _closing(facts: Facts) -> NextStep | None:
    if facts["gates_lost"]:
        return NextStep("validation_failed", "a gate that it waits for at its end failed, or can never pass")
    if facts["gates_open"] or facts["landing"]:
        return None
    return _allowed(facts)


def _allowed(facts: Facts) -> NextStep | None:
    """What its phase says of a workstream that could land (PHASE-6, PHASE-7)."""
    approval = facts["approval"] or {"state": "approved"}
    match approval["state"]:
        case "missing":
            return NextStep("ask")
        case "approved" if not facts["frozen"]:
            return NextStep("land")
        case "rejected":
            why = f": {approval['reason']}" if approval["reason"] else ""
            return NextStep("validation_failed", f"{approval['by']} rejected its landing{why}")
        case "expired":
            return NextStep("validation_failed", "nobody decided about its landing in time")
    return None
