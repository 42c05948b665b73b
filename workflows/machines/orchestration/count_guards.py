"""Guards that say when a workstream or a run has failed, or succeeded: SSOT 1.2.4, 1.3.5, 3.2, 3.3 and ruling 5."""

from workflows.case import Case
from workflows.definition import Guard
from workflows.orchestration.guards import LINKED, ROW

SET_ASIDE = ("quarantined", "dropped", "rolled_back")  # a patch of which nothing lands


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
