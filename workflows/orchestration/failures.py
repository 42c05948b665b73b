"""Guards that say when a workstream or a run has failed, or succeeded: SSOT 1.2.4, 1.3.5, 3.2, 3.3 and ruling 5."""

from workflows.case import Case
from workflows.definition import Guard
from workflows.orchestration.guards import NEVER_RUN, QUARANTINED_PATCH, ROW


def _critical(case: Case) -> bool:
    return int(case.row["critical_failures"]) > 0


def _never_run(case: Case) -> bool:
    unfinished = case.row["completed_tasks"] < case.row["total_tasks"]
    return case.metadata.get("reason") == NEVER_RUN and unfinished


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

workstream_critical = Guard(
    "workstream_critical",
    lambda case: _critical(case) or case.metadata.get("reason") == QUARANTINED_PATCH,
    f"no critical task of it has failed (nor does metadata.reason say {QUARANTINED_PATCH!r})",
    needs=ROW,
)

workstream_lost = Guard(
    "workstream_lost",
    lambda case: workstream_critical.holds(case) or _never_run(case),
    f"no critical task of it has failed (nor does metadata.reason say {QUARANTINED_PATCH!r}, or {NEVER_RUN!r} with "
    "tasks not completed)",
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
