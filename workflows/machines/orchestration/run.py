"""A run: one plan being carried out. It succeeds when every workstream is completed or skipped (RUN-2).

pending → running → succeeded | failed
pending, running → canceled

1.1.0 adds RUN-4: if all workstreams have ended and some are neither completed nor skipped, the run fails, even if none
of those was critical. Cancelling from every non-terminal state, which VERSION-6 requires, is already in 1.0.0.
"""

from dataclasses import replace

from interlock.workflows.definition import Definition, Field, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.count_guards import critical_failure, run_lost, workstreams_succeeded
from interlock.workflows.machines.orchestration.fields import NAME_SAYS, RETRY_OF, retry_of

RUN_1_0 = Definition(
    type="run",
    version="1.0.0",
    summary="A run, from pending to its outcome.",
    order=(("pending",), ("running",), ("succeeded", "failed", "canceled")),
    initial="pending",
    terminal=frozenset({"succeeded", "failed", "canceled"}),
    by="machinery",
    transitions=(
        T("start", "pending", "running"),
        T("complete", "running", "succeeded", when=(workstreams_succeeded,)),
        T("fail", "running", "failed", when=(critical_failure,), severity="error"),
        T("cancel", ("pending", "running"), "canceled", by="anyone", severity="warning"),
    ),
    links=(retry_of("run"),),
    fields=(Field("phase_id", name, NAME_SAYS), RETRY_OF),
)

RUN_1_1 = replace(
    RUN_1_0,
    version="1.1.0",
    summary="A run, from pending to its outcome; it never hangs (RUN-4).",
    transitions=tuple(
        replace(move, when=(run_lost,)) if move.trigger == "fail" else move for move in RUN_1_0.transitions
    ),
)
