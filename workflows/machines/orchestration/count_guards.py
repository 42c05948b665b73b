"""Guards that decide when a workstream or a run has failed or succeeded: DERIVE-1, DERIVE-2."""

from interlock.workflows.definition import Guard
from interlock.workflows.machines.orchestration.link_guards import LINKED, Row, on_row

SET_ASIDE = ("quarantined", "dropped", "rolled_back")  # states of a patch that does not land


def _critical(row: Row) -> bool:
    return int(row["critical_failures"]) > 0


def _succeeded(row: Row) -> bool:
    return bool(row["completed_workstreams"] + row["skipped_workstreams"] == row["total_workstreams"])


def _ended(row: Row) -> bool:
    return bool(row["ended_workstreams"] == row["total_workstreams"])


critical_failure = on_row("critical_failure", _critical, "nothing critical of it has failed")

patch_lost = Guard(
    "patch_lost",
    lambda case: any(patch.state in SET_ASIDE for patch in case.linked.get("patches", ())),
    "none of its patches was quarantined, dropped or rolled back",
    needs=LINKED,
    roles=("patches",),
)

tasks_ended_short = on_row(
    "tasks_ended_short",
    lambda row: bool(row["ended_tasks"] == row["total_tasks"] > row["completed_tasks"]),
    "its tasks have not all ended, or all of them are completed",
)

workstreams_succeeded = on_row(
    "workstreams_succeeded",
    lambda row: _ended(row) and _succeeded(row),
    "every one of its workstreams must be completed or skipped",
)

run_lost = on_row(
    "run_lost",
    lambda row: _critical(row) or (_ended(row) and not _succeeded(row)),
    "no critical workstream of it has failed, and its workstreams have not all ended short of completion",
)
