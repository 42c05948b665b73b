"""A task: one command, or one piece of an agent's work (docs/spec/task.md).

pending ⇄ blocked
pending → queued → running → validating → completed
            ↑_ retrying ←_|        |
          running, validating → failed      running → cancelled
1.1.0: queued → blocked; every non-terminal state → cancelled

A time-out counts as a failure (TASK-6). The deadline of `retrying`, which is the backoff, fires `retry_delay_elapsed`.
In 1.1.0 a person fires `user_cancelled`; the system fires `cancel`, if a dependency can never complete or the
workstream has ended.
"""

from dataclasses import replace

from interlock.workflows.backoff import Growth
from interlock.workflows.definition import Authority, Deadline, Definition, Field, Link, T
from interlock.workflows.machines.orchestration.fields import (
    DEPENDS_ON,
    EXIT_CODES,
    IS_CRITICAL,
    MAX_RETRIES,
    REQUIRED_CAPABILITIES,
    RETRY_OF,
    TIMEOUT,
    WORKSTREAM_ID,
    backoff,
    depends_on,
    inputs,
    retry_of,
    uuids,
    whole,
)
from interlock.workflows.machines.orchestration.link_guards import (
    dependencies_completed,
    dependency_missing,
    gate_failed,
    gates_passed,
    patches_verified,
    retries_left,
    retries_used_up,
)
from interlock.workflows.machines.orchestration.metadata_guards import (
    exit_code_expected,
    worker_capable,
    worker_identified,
)

TIMEOUT_SECONDS = 1800.0  # TASK-8
BACKOFF_SECONDS = 2.0  # TASK-7
BACKOFF = Growth("retry_count", cap_seconds=600.0)
TIMED: tuple[Authority, ...] = ("machinery", "holder")  # the deadline, or the worker that stops its command in time
UNENDED = ("pending", "queued", "blocked", "running", "validating", "retrying")

TASK_1_0 = Definition(
    type="task",
    version="1.0.0",
    summary="A task, from pending to done, with retries.",
    order=(
        ("pending", "blocked"),
        ("queued",),
        ("running", "retrying"),
        ("validating",),
        ("completed", "failed", "cancelled"),
    ),
    initial="pending",
    terminal=frozenset({"completed", "failed", "cancelled"}),
    by="machinery",
    events={"blocked": "task_blocked"},
    transitions=(
        T("scheduler_assigned", "pending", "queued", when=(dependencies_completed,)),
        T("dependency_check_failed", "pending", "blocked", when=(dependency_missing,)),
        T("dependency_satisfied", "blocked", "pending", when=(dependencies_completed,)),
        T("worker_started", "queued", "running", by="holder", when=(worker_identified, worker_capable)),
        T("execution_completed", "running", "validating", by="holder", when=(exit_code_expected,)),
        T("execution_failed", "running", "retrying", by="holder", when=(retries_left,), severity="warning"),
        T("execution_failed", "running", "failed", by="holder", when=(retries_used_up,), severity="error"),
        T("timeout_exceeded", "running", "retrying", by=TIMED, when=(retries_left,), severity="warning"),
        T("timeout_exceeded", "running", "failed", by=TIMED, when=(retries_used_up,), severity="error"),
        T("user_cancelled", "running", "cancelled", by="anyone", severity="warning"),
        T("retry_delay_elapsed", "retrying", "queued", back="retry"),
        T("validation_passed", "validating", "completed", when=(gates_passed, patches_verified)),
        T("validation_failed", "validating", "failed", severity="error"),
    ),
    deadlines={
        "running": Deadline(TIMEOUT_SECONDS, "timeout_exceeded", context_key="timeout_sec"),
        "retrying": Deadline(BACKOFF_SECONDS, "retry_delay_elapsed", context_key="backoff", growth=BACKOFF),
    },
    links=(
        depends_on("task"),
        Link("gates", type="test_gate", context_key="gates", inverse="judges"),
        Link("blocked_by_gates", type="test_gate", context_key="blocked_by_gates", inverse="blocks"),
        retry_of("task"),
    ),
    fields=(
        WORKSTREAM_ID,
        IS_CRITICAL,
        MAX_RETRIES,
        TIMEOUT,
        Field("backoff", backoff, "an object: base and cap, seconds from 0; factor, from 1 to 10"),
        REQUIRED_CAPABILITIES,
        EXIT_CODES,
        Field("priority", whole, "a whole number"),
        DEPENDS_ON,
        Field("gates", uuids, "a list of UUIDs of gates"),
        Field("blocked_by_gates", uuids, "a list of UUIDs of gates"),
        RETRY_OF,
    ),
    required_metadata=("worker_id", "duration_seconds", "retry_count", "exit_code", "timeout_occurred"),
)

TASK_1_1 = replace(
    TASK_1_0,
    version="1.1.0",
    summary="A task, from pending to done, with retries and cancelling from everywhere.",
    transitions=(
        *TASK_1_0.transitions,
        T("dependency_check_failed", "queued", "blocked", when=(gate_failed,), severity="warning", back="blocked"),
        T(
            "user_cancelled",
            ("pending", "queued", "blocked", "validating", "retrying"),
            "cancelled",
            by="anyone",
            severity="warning",
        ),
        T("cancel", UNENDED, "cancelled", severity="warning"),
    ),
    fields=(
        *TASK_1_0.fields,
        Field("inputs", inputs, "an object of variables, each with `task`, the UUID of a task, and perhaps a `key`"),
    ),
)
