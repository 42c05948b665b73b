"""The search for the patch that made a gate fail, and its rollback (docs/spec/regression.md).

searching → proposed → rolling_back → rolled_back
searching → unexplained     proposed → rejected     rolling_back → failed
searching → rolling_back, if the plan allows it

The scheduler creates one for a gate that fails for good after patches of its run have landed. An operator decides about
what it proposes: the ledger accepts a rollback from nobody else (PATCH-6).
"""

from interlock.workflows.definition import HOUR_SECONDS, Deadline, Definition, Effect, Field, Link, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.fields import NAME_SAYS, RUN_ID, uuid
from interlock.workflows.machines.orchestration.metadata_guards import authorized, reason_given
from interlock.workflows.machines.orchestration.rolling_back import ENDS, NOTICE, carried_out_by, ordered

DECIDED_HOURS = 72  # as long as an approval waits (APPROVAL-4)
# One at a time in a run: the searches share a worktree, and a patch is proposed once (REGRESSION-5).
SEARCH = Effect("find_culprit", failed="nothing_found", exclusive="run_id")
ROLL_BACK = carried_out_by("roll_back_culprit")

REGRESSION = Definition(
    type="regression",
    version="1.0.0",
    summary="A gate that failed after patches had landed: which one broke it, and its rollback.",
    order=(("searching",), ("proposed",), ("rolling_back",), ("rolled_back", "unexplained", "rejected", "failed")),
    initial="searching",
    terminal=frozenset({"rolled_back", "unexplained", "rejected", "failed"}),
    by="effect",
    transitions=(
        T("culprit_found", "searching", "proposed", when=(reason_given,), effects=(NOTICE,), severity="error"),
        T(
            "roll_back_allowed",
            "searching",
            "rolling_back",
            when=(authorized, reason_given),
            effects=(ROLL_BACK,),
            severity="error",
        ),
        T("nothing_found", "searching", "unexplained", when=(reason_given,), severity="warning"),
        ordered("approve", ROLL_BACK),
        T("reject", "proposed", "rejected", by="operator", when=(reason_given,), severity="warning"),
        T("expire", "proposed", "rejected", by="machinery", severity="warning"),
        *ENDS,
    ),
    deadlines={"proposed": Deadline(DECIDED_HOURS * HOUR_SECONDS, "expire")},
    links=(
        Link("run", type="run", context_key="run_id", inverse="regressions"),
        Link("culprit", type="patch_ledger", context_key="culprit_id", inverse="blamed_by"),
    ),
    fields=(
        RUN_ID,
        Field("gate_id", uuid, "the UUID of the gate that failed", required=True),
        Field("gate", name, NAME_SAYS, required=True),
    ),
    birth_effects=(SEARCH,),
)
