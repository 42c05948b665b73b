"""A worker of an outside execution engine. A shutdown request while it is busy drains it (UET-5).

SPAWNING → IDLE ⇄ BUSY → DRAINING → TERMINATED
SPAWNING, IDLE, BUSY → TERMINATED

`task_assigned`, `task_completed` and `shutdown_requested` have the same names as the
orchestration worker's triggers. A worker that misses its heartbeats ends by `worker_crashed`
(UET-2), even if it is idle or draining.
"""

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.fields import SECRET, name
from interlock.workflows.machines.orchestration.fields import NAME_SAYS, affinity

UET_WORKER = Definition(
    type="uet_worker",
    version="1.0.0",
    summary="A worker of the execution engine, from spawning to terminated.",
    order=(("SPAWNING",), ("IDLE", "BUSY"), ("DRAINING",), ("TERMINATED",)),
    initial="SPAWNING",
    terminal=frozenset({"TERMINATED"}),
    resting=frozenset({"IDLE"}),
    by="holder",
    transitions=(
        T("initialization_complete", "SPAWNING", "IDLE"),
        T("spawn_failed", "SPAWNING", "TERMINATED", severity="error"),
        T("task_assigned", "IDLE", "BUSY", by="machinery"),
        T("task_completed", "BUSY", "IDLE"),
        T("shutdown_requested", ("SPAWNING", "IDLE"), "TERMINATED", by=("holder", "operator")),
        T("shutdown_requested", "BUSY", "DRAINING", by=("holder", "operator")),
        T("task_completed", "DRAINING", "TERMINATED"),
        T("worker_crashed", ("IDLE", "BUSY", "DRAINING"), "TERMINATED", by="machinery", severity="error"),
    ),
    fields=(
        Field("worker_type", name, NAME_SAYS),
        Field("affinity", affinity, "an object; its workstreams, a list of names"),
        SECRET,
    ),
)
