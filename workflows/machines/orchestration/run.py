"""A run: one plan, carried out. It succeeds when every workstream completed or was skipped (SSOT 1.2).

pending → running → succeeded | failed
pending, running → canceled

SSOT 1.2.4 gives its triggers in words; their names are ours. 1.1.0 adds ruling 5: a run whose workstreams have all
ended, and not all completed or skipped, has failed, critical or not. Cancelling from every state that is not terminal,
which ruling 4 asks for, 1.0.0 does already.
"""

from dataclasses import replace

from workflows.definition import Definition, Field, Link, T
from workflows.fields import name
from workflows.orchestration.failures import critical_failure, run_lost, workstreams_succeeded
from workflows.orchestration.fields import NAME_SAYS, RETRY_OF

RUN_1_0 = Definition(
    type="run",
    version="1.0.0",
    summary="A run, from pending to its outcome (SSOT 1.2).",
    states=("pending", "running", "succeeded", "failed", "canceled"),
    initial="pending",
    terminal=frozenset({"succeeded", "failed", "canceled"}),
    order=(
        ("pending",),
        ("running",),
        (
            "succeeded",
            "failed",
            "canceled",
        ),
    ),
    transitions=(
        T("start", "pending", "running"),
        T("complete", "running", "succeeded", when=(workstreams_succeeded,)),
        T("fail", "running", "failed", when=(critical_failure,), severity="error"),
        T("cancel", ("pending", "running"), "canceled", severity="warning"),
    ),
    links=(Link("retry_of", type="run", context_key="retry_of", inverse="retried_by"),),
    fields=(Field("phase_id", name, NAME_SAYS), RETRY_OF),
)

RUN_1_1 = replace(
    RUN_1_0,
    version="1.1.0",
    summary="A run, from pending to its outcome (SSOT 1.2, ruling 5).",
    transitions=tuple(
        replace(move, when=(run_lost,)) if move.trigger == "fail" else move for move in RUN_1_0.transitions
    ),
)
