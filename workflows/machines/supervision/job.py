"""A job and its allocated workers. A job may have children, up to five levels deep (docs/spec/supervision.md).

SUBMITTED → PENDING → RUNNING → COMPLETED | FAILED
SUBMITTED, PENDING, RUNNING → CANCELED

Its workers follow it in the same commit: they start when the job starts, complete when it succeeds, and are terminated
when it fails or is canceled. A canceled job's children are canceled too. A job that runs past its time limit is
canceled.
"""

from interlock.workflows.definition import Deadline, Definition, Field, FollowUp, Guard, Link, T
from interlock.workflows.fields import name, names
from interlock.workflows.guard_context import Case
from interlock.workflows.machines.orchestration.fields import TIMEOUT, retry_of, uuid

DEEPEST = 5
MOST_WORKERS = 10
TIMEOUT_SECONDS = 86_400.0  # one day: JOB-12
FIELDS = (
    Field(
        "depth",
        lambda value: type(value) is int and 0 <= value <= DEEPEST,
        f"a whole number from 0 to {DEEPEST}",
        required=True,
    ),
    Field(
        "worker_count",
        lambda value: type(value) is int and 1 <= value <= MOST_WORKERS,
        f"a whole number from 1 to {MOST_WORKERS}",
    ),
    Field("workers", names, "a list of names or UUIDs: supervised workers that are its own from the start"),
    Field("parent_job_id", lambda value: value is None or uuid(value), "the UUID of a job"),
    Field("retry_of", name, "the entity id or UUID of the job it is tried again for"),
    TIMEOUT,
    Field("tool", name, "the name of the tool that it uses, by which limits count it"),
)


def _sound(case: Case) -> bool:
    described = case.context.get("task_description")
    return (
        isinstance(described, str)
        and bool(described.strip())
        and all(each.holds(case.context[each.name]) for each in FIELDS if each.name in case.context)
        and len(case.context.get("workers", ())) <= int(case.context.get("worker_count", 1))
    )


schema_valid = Guard(
    "schema_valid",
    _sound,
    "its context must say what is to be done (task_description), name no more workers than its worker_count, and fit "
    "the fields of a job (`interlock definitions show job`)",
)


def _allocated(case: Case) -> bool:
    idle = [worker for worker in case.linked.get("workers", ()) if worker.state == "IDLE"]
    return len(idle) >= int(case.context.get("worker_count", 1))


workers_allocated = Guard(
    "workers_allocated",
    _allocated,
    "as many idle workers must be allocated to it as its worker_count says",
    needs=frozenset({"linked"}),
)

STOP_WORKERS = FollowUp("workers", "terminate")
CANCEL_CHILDREN = FollowUp("children", "cancel")

JOB = Definition(
    type="job",
    version="1.0.0",
    summary="A job, from submitted to its end.",
    order=(("SUBMITTED",), ("PENDING",), ("RUNNING",), ("COMPLETED", "FAILED", "CANCELED")),
    initial="SUBMITTED",
    terminal=frozenset({"COMPLETED", "FAILED", "CANCELED"}),
    by="machinery",
    transitions=(
        T("validate", "SUBMITTED", "PENDING", when=(schema_valid,)),
        T(
            "allocate_resources",
            "PENDING",
            "RUNNING",
            when=(workers_allocated,),
            then=(FollowUp("workers", "start_task"),),
        ),
        T("success", "RUNNING", "COMPLETED", by=("machinery", "holder"), then=(FollowUp("workers", "complete_tasks"),)),
        T("error", "RUNNING", "FAILED", by=("machinery", "holder"), then=(STOP_WORKERS,), severity="error"),
        T("cancel", ("SUBMITTED", "PENDING"), "CANCELED", by="anyone", then=(CANCEL_CHILDREN,), severity="warning"),
        T("cancel", "RUNNING", "CANCELED", by="anyone", then=(STOP_WORKERS, CANCEL_CHILDREN), severity="warning"),
        T("timeout_exceeded", "RUNNING", "CANCELED", then=(STOP_WORKERS, CANCEL_CHILDREN), severity="error"),
    ),
    deadlines={"RUNNING": Deadline(TIMEOUT_SECONDS, "timeout_exceeded", context_key="timeout_sec")},
    links=(
        Link("parent", type="job", context_key="parent_job_id", inverse="children"),
        Link("workers", type="supervised_worker", context_key="workers", inverse="job"),
        retry_of("job"),
    ),
    fields=FIELDS,
)
