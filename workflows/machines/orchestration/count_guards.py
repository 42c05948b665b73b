"""Guards that decide when a workstream or a run has failed or succeeded: DERIVE-1, DERIVE-2."""

from interlock.workflows.definition import Guard
from interlock.workflows.guard_context import Case
from interlock.workflows.machines.orchestration.link_guards import LINKED, ROW

SET_ASIDE = ("quarantined", "dropped", "rolled_back")  # states of a patch that does not land


def _critical(case: Case) -> bool:
    return int(case.row["critical_failures"]) > 0


def _succeeded(case: Case) -> bool:
    return bool(case.row["completed_workstreams"] + case.row["skipped_workstreams"] == case.row["total_workstreams"])


def _ended(case: Case) -> bool:
    return bool(case.row["ended_workstreams"] == case.row["total_workstreams"])


critical_failure = Guard(
    "critical_failure",
    _critical,
    "nothing critical of it has failed",
    needs=ROW,
)

patch_lost = Guard(
    "patch_lost",
    lambda case: any(patch.state in SET_ASIDE for patch in case.linked.get("patches", ())),
    "none of its patches was quarantined, dropped or rolled back",
    needs=LINKED,
)

tasks_ended_short = Guard(
    "tasks_ended_short",
    lambda case: bool(case.row["ended_tasks"] == case.row["total_tasks"] > case.row["completed_tasks"]),
    "its tasks have not all ended, or all of them are completed",
    needs=ROW,
)

workstreams_succeeded = Guard(
    "workstreams_succeeded",
    lambda case: _ended(case) and _succeeded(case),
    "every one of its workstreams must be completed or skipped",
    needs=ROW,
)

run_lost = Guard(
    "run_lost",
    lambda case: _critical(case) or (_ended(case) and not _succeeded(case)),
    "no critical workstream of it has failed, and its workstreams have not all ended short of completion",
    needs=ROW,
)
