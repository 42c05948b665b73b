"""A worker that a supervisor manages (docs/spec/supervision.md).

IDLE → RUNNING ⇄ PAUSED
RUNNING → COMPLETED | FAILED
IDLE, RUNNING, PAUSED → TERMINATED
"""

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.fields import SECRET, name

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
        T("start_task", "IDLE", "RUNNING"),
        T("pause", "RUNNING", "PAUSED", severity="warning"),
        T("resume", "PAUSED", "RUNNING", severity="warning"),
        T("complete_tasks", "RUNNING", "COMPLETED", by=("holder", "machinery")),
        T("error_unrecoverable", "RUNNING", "FAILED", by=("holder", "machinery"), severity="error"),
        # SUPERVISED-3: `*` would include terminal states.
        T("terminate", ("IDLE", "RUNNING", "PAUSED"), "TERMINATED", severity="warning"),
    ),
    fields=(Field("workspace_id", name, "the name of a workspace"), SECRET),
)
