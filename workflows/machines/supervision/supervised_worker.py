"""A worker that a supervisor manages (docs/spec/supervision.md).

IDLE → RUNNING ⇄ PAUSED
RUNNING → COMPLETED | FAILED
IDLE, RUNNING, PAUSED → TERMINATED

Its tasks are names, known to its supervisor: `start_task` gives them to it, `complete_tasks` says that they are done.
One that is started without names has one task, such as its job. Silent while RUNNING, it fails (SUPERVISED-9).
"""

from interlock.workflows.definition import Authority, Definition, Fact, Field, Guard, T
from interlock.workflows.fields import SECRET, name, names
from interlock.workflows.guard_context import Case
from interlock.workflows.machines.orchestration.fields import at_least

RETRIES = 3  # SUPERVISED-5
ROW: frozenset[Fact] = frozenset({"row"})
REPORTED: tuple[Authority, ...] = ("holder", "machinery")  # its end, which it reports, or its supervisor for it


def _named(case: Case, key: str) -> list[str] | None:
    """The names that the trigger gives under a key, none if it gives none; None: what it gives are no names."""
    given = case.metadata.get(key, [])
    return list(given) if isinstance(given, list) and names(given) else None


def _fits(case: Case) -> bool:
    tasks = _named(case, "tasks")
    return tasks is not None and len(set(tasks)) == len(tasks) <= int(case.context.get("capacity", 1))


def _none_pending(case: Case) -> bool:
    return set(case.row["tasks"]) <= set(_named(case, "completed_tasks") or ())


worker_has_capacity = Guard(
    "worker_has_capacity",
    _fits,
    "metadata.tasks, if given, must be names, each once, and no more than the worker's capacity (1 unless its context "
    "says another)",
)

no_pending_tasks = Guard(
    "no_pending_tasks",
    _none_pending,
    "metadata.completed_tasks must name every task that the worker was started with",
    needs=ROW,
)

error_not_retryable = Guard(
    "error_not_retryable",
    lambda case: case.metadata.get("retryable", False) is False or case.row["retries"] >= RETRIES,
    f"the error can be retried (metadata.retryable), and its worker was not retried {RETRIES} times yet",
    needs=ROW,
)

SUPERVISED_WORKER = Definition(
    type="supervised_worker",
    version="1.0.0",
    summary="A worker under a supervisor, from idle to its end.",
    order=(("IDLE",), ("RUNNING", "PAUSED"), ("COMPLETED", "FAILED", "TERMINATED")),
    initial="IDLE",
    terminal=frozenset({"COMPLETED", "FAILED", "TERMINATED"}),
    resting=frozenset({"IDLE"}),
    by="anyone",
    transitions=(
        T("start_task", "IDLE", "RUNNING", when=(worker_has_capacity,)),
        T("pause", "RUNNING", "PAUSED", severity="warning"),
        T("resume", "PAUSED", "RUNNING", severity="warning"),
        T("complete_tasks", "RUNNING", "COMPLETED", by=REPORTED, when=(no_pending_tasks,)),
        T("error_unrecoverable", "RUNNING", "FAILED", by=REPORTED, when=(error_not_retryable,), severity="error"),
        # SUPERVISED-3: `*` would include terminal states.
        T("terminate", ("IDLE", "RUNNING", "PAUSED"), "TERMINATED", severity="warning"),
    ),
    fields=(
        Field("workspace_id", name, "the name of a workspace"),
        Field(
            "capacity", lambda value: at_least(1, value), "how many tasks it takes at once, a whole number, at least 1"
        ),
        SECRET,
    ),
)
