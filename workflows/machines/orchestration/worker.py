"""A worker of the orchestration: it heartbeats, takes its tasks, and is given up when it falls silent (SSOT 1.5).

initializing → idle ⇄ busy → unresponsive → idle | shutdown
idle, busy → shutdown
1.1.0: idle ⇄ suspended

Triggers are those of seed 001; `suspend` and `resume` are ours. Ruling 6: an idle worker that is silent past the
recovery window is shut down (`max_timeout_exceeded`), never unresponsive; a busy one finishes its task first, so that
`shutdown_requested` is refused while it holds any.
"""

from dataclasses import replace

from workflows.definition import Definition, Field, T
from workflows.fields import name, names
from workflows.orchestration.evidence import task_within_capabilities
from workflows.orchestration.fields import CAPABILITIES_SAY, NAME_SAYS, affinity, at_least
from workflows.orchestration.guards import holds_no_task

WORKER_1_0 = Definition(
    type="worker",
    version="1.0.0",
    summary="A worker, from registering to shut down (SSOT 1.5, ruling 6).",
    states=("initializing", "idle", "busy", "unresponsive", "shutdown"),
    initial="initializing",
    terminal=frozenset({"shutdown"}),
    order=(
        ("initializing",),
        (
            "idle",
            "busy",
            "unresponsive",
        ),
        ("shutdown",),
    ),
    transitions=(
        T("registration_complete", "initializing", "idle"),
        T("task_assigned", "idle", "busy", when=(task_within_capabilities,)),
        T("task_completed", "busy", "idle"),
        T("health_check_timeout", "busy", "unresponsive", severity="error"),
        T("health_check_recovered", "unresponsive", "idle", severity="warning"),
        T("max_timeout_exceeded", ("unresponsive", "idle"), "shutdown", severity="error"),
        T("shutdown_requested", "idle", "shutdown"),
        T("shutdown_requested", "busy", "shutdown", when=(holds_no_task,)),
    ),
    fields=(
        Field("worker_type", name, NAME_SAYS),
        Field("capabilities", names, CAPABILITIES_SAY),
        Field("affinity", affinity, "an object; its workstreams, a list of names"),
        Field("max_concurrent_tasks", lambda value: at_least(1, value), "a whole number, at least 1"),
    ),
    required_metadata=("heartbeat_status", "current_load", "last_heartbeat_age_seconds", "crash_detected"),
)

WORKER_1_1 = replace(
    WORKER_1_0,
    version="1.1.0",
    summary="A worker, from registering to shut down, that can be suspended (SSOT 1.5, 9.2, rulings 4 and 6).",
    states=(*WORKER_1_0.states, "suspended"),
    order=(("initializing",), ("idle", "busy", "unresponsive", "suspended"), ("shutdown",)),
    transitions=(
        *WORKER_1_0.transitions,
        T("suspend", "idle", "suspended", severity="warning"),
        T("resume", "suspended", "idle", severity="warning"),
    ),
)
