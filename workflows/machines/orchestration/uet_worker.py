"""A worker of the execution engine; a shutdown while it is busy drains it (SSOT 2.1).

SPAWNING → IDLE ⇄ BUSY → DRAINING → TERMINATED
SPAWNING, IDLE, BUSY → TERMINATED

SSOT 2.1.3 gives its triggers in words; `task_assigned`, `task_completed` and `shutdown_requested` are called as the
orchestration worker's are, the others are ours. A worker that misses its heartbeats ends (invariant 2), idle or
draining too: `worker_crashed`.
"""

from workflows.definition import Definition, Field, T
from workflows.fields import name
from workflows.orchestration.fields import NAME_SAYS, affinity

UET_WORKER = Definition(
    type="uet_worker",
    version="1.0.0",
    summary="A worker of the execution engine, from spawning to terminated (SSOT 2.1).",
    states=("SPAWNING", "IDLE", "BUSY", "DRAINING", "TERMINATED"),
    initial="SPAWNING",
    terminal=frozenset({"TERMINATED"}),
    order=(
        ("SPAWNING",),
        (
            "IDLE",
            "BUSY",
        ),
        ("DRAINING",),
        ("TERMINATED",),
    ),
    transitions=(
        T("initialization_complete", "SPAWNING", "IDLE"),
        T("spawn_failed", "SPAWNING", "TERMINATED", severity="error"),
        T("task_assigned", "IDLE", "BUSY"),
        T("task_completed", "BUSY", "IDLE"),
        T("shutdown_requested", "IDLE", "TERMINATED"),
        T("shutdown_requested", "BUSY", "DRAINING"),
        T("task_completed", "DRAINING", "TERMINATED"),
        T("worker_crashed", ("IDLE", "BUSY", "DRAINING"), "TERMINATED", severity="error"),
    ),
    fields=(
        Field("worker_type", name, NAME_SAYS),
        Field("affinity", affinity, "an object; its workstreams, a list of names"),
    ),
)
