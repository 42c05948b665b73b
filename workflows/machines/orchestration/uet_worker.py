"""A worker of an outside execution engine. A shutdown request while it is busy drains it (UET-5).

SPAWNING → IDLE ⇄ BUSY → DRAINING → TERMINATED
SPAWNING, IDLE, BUSY → TERMINATED

`task_assigned`, `task_completed` and `shutdown_requested` have the same names as the orchestration
worker's triggers; the first two follow from its claims in the same way (UET-7). A worker that misses
its heartbeats ends by `worker_crashed` (UET-2), even if it is idle or draining.
"""

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.fields import SECRET, name, names
from interlock.workflows.machines.orchestration.fields import NAME_SAYS, affinity
from interlock.workflows.machines.orchestration.link_guards import holds_a_task, holds_no_task
from interlock.workflows.machines.orchestration.metadata_guards import task_named, task_within_capabilities
from interlock.workflows.machines.orchestration.worker import OWN


def _capabilities(value: object) -> bool:
    return isinstance(value, list) and names(value) and not any(each.startswith(OWN) for each in value)


UET_WORKER = Definition(
    type="uet_worker",
    version="1.0.0",
    summary="A worker of the execution engine, from spawning to terminated.",
    order=(("SPAWNING",), ("IDLE", "BUSY"), ("DRAINING",), ("TERMINATED",)),
    initial="SPAWNING",
    terminal=frozenset({"TERMINATED"}),
    resting=frozenset({"IDLE", "BUSY", "DRAINING"}),  # judged by heartbeats instead
    by="machinery",
    transitions=(
        T("initialization_complete", "SPAWNING", "IDLE", by="holder"),
        T("spawn_failed", "SPAWNING", "TERMINATED", by="holder", severity="error"),
        T("task_assigned", "IDLE", "BUSY", when=(task_named, holds_a_task, task_within_capabilities)),
        T("task_completed", "BUSY", "IDLE", when=(holds_no_task,)),
        T("shutdown_requested", "SPAWNING", "TERMINATED", by=("holder", "operator")),
        T("shutdown_requested", "IDLE", "TERMINATED", by=("holder", "operator"), when=(holds_no_task,)),
        T("shutdown_requested", "BUSY", "DRAINING", by=("holder", "operator")),
        T("task_completed", "DRAINING", "TERMINATED", when=(holds_no_task,)),
        T("worker_crashed", ("IDLE", "BUSY", "DRAINING"), "TERMINATED", severity="error"),
    ),
    fields=(
        Field("worker_type", name, NAME_SAYS),
        Field("capabilities", _capabilities, f"a list of names, none of which begins with {OWN}"),
        Field("affinity", affinity, "an object; its workstreams and its phases, lists of names"),
        SECRET,
    ),
    required_metadata=("heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"),
)
