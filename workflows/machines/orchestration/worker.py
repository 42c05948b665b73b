"""A worker: it sends heartbeats, takes tasks, and is shut down if it stays silent (WORKER-9).

initializing → idle ⇄ busy → unresponsive → idle | shutdown
idle, busy → shutdown
1.1.0: idle ⇄ suspended; initializing, suspended → shutdown

WORKER-9: an idle worker that is silent past the recovery window is shut down (`max_timeout_exceeded`); it never becomes
unresponsive. WORKER-10: a worker finishes its tasks first: `shutdown_requested` is refused while it holds any. When the
last claim ends of a worker that was asked to leave, Interlock fires it.
"""

from dataclasses import replace

from interlock.workflows.definition import Authority, Definition, Field, T
from interlock.workflows.fields import SECRET, name, names
from interlock.workflows.machines.orchestration.fields import CAPABILITIES_SAY, NAME_SAYS, affinity, at_least
from interlock.workflows.machines.orchestration.link_guards import holds_no_task
from interlock.workflows.machines.orchestration.metadata_guards import task_within_capabilities

LEAVERS: tuple[Authority, ...] = ("holder", "operator", "machinery")
OWN = "interlock:"  # capabilities with this prefix come from where a worker runs, and cannot be asked for

WORKER_1_0 = Definition(
    type="worker",
    version="1.0.0",
    summary="A worker, from registering to shut down.",
    order=(("initializing",), ("idle", "busy", "unresponsive"), ("shutdown",)),
    initial="initializing",
    terminal=frozenset({"shutdown"}),
    resting=frozenset({"idle", "busy", "unresponsive"}),  # judged by heartbeats instead
    by="machinery",
    transitions=(
        T("registration_complete", "initializing", "idle", by="holder"),
        T("task_assigned", "idle", "busy", when=(task_within_capabilities,)),
        T("task_completed", "busy", "idle"),
        T("health_check_timeout", "busy", "unresponsive", severity="error"),
        T("health_check_recovered", "unresponsive", "idle", severity="warning"),
        T("max_timeout_exceeded", ("unresponsive", "idle"), "shutdown", severity="error"),
        T("shutdown_requested", ("idle", "busy"), "shutdown", by=LEAVERS, when=(holds_no_task,)),
    ),
    fields=(
        Field("worker_type", name, NAME_SAYS),
        Field("capabilities", names, CAPABILITIES_SAY),
        Field("affinity", affinity, "an object; its workstreams and its phases, lists of names"),
        Field("max_concurrent_tasks", lambda value: at_least(1, value), "a whole number, at least 1"),
        SECRET,
    ),
    required_metadata=("heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"),
)

WORKER_1_1 = replace(
    WORKER_1_0,
    version="1.1.0",
    summary="A worker, from registering to shut down, that can be suspended.",
    states=(),  # those of the order
    order=(("initializing",), ("idle", "busy", "unresponsive", "suspended"), ("shutdown",)),
    transitions=(
        *WORKER_1_0.transitions,
        T("suspend", "idle", "suspended", by="operator", severity="warning"),
        T("resume", "suspended", "idle", by="operator", severity="warning"),
        T("max_timeout_exceeded", "suspended", "shutdown", severity="error"),
        T("shutdown_requested", ("initializing", "suspended"), "shutdown", by=LEAVERS, when=(holds_no_task,)),
    ),
)
