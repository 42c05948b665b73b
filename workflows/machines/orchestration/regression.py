"""The search for the patch that made a gate fail, and its rollback (docs/spec/regression.md).

searching → proposed → rolling_back → rolled_back
searching → unexplained     proposed → rejected     rolling_back → failed
searching → rolling_back, if the plan allows it

The scheduler creates one for a gate that fails for good after patches of its run have landed. An operator decides about
what it proposes: the ledger accepts a rollback from nobody else (PATCH-6).
"""

from interlock.workflows.definition import HOUR_SECONDS, Deadline, Definition, Effect, Field, Link, T
from interlock.workflows.fields import name
from interlock.workflows.machines.orchestration.fields import NAME_SAYS, uuid
from interlock.workflows.machines.orchestration.metadata_guards import authorized, reason_given

DECIDED_HOURS = 72  # as long as an approval waits (APPROVAL-4)
NOTICE = Effect("notice")
# One at a time in a run: the searches share a worktree, and a patch is proposed once (REGRESSION-5).
SEARCH = Effect("find_culprit", failed="nothing_found", exclusive="run_id")
ROLL_BACK = Effect("roll_back_culprit", failed="roll_back_failed", exclusive="run_id")

REGRESSION = Definition(
    type="regression",
    version="1.0.0",
    summary="A gate that failed after patches had landed: which one broke it, and its rollback.",
    initial="searching",
    terminal=frozenset({"rolled_back", "unexplained", "rejected", "failed"}),
    order=(("searching",), ("proposed",), ("rolling_back",), ("rolled_back", "unexplained", "rejected", "failed")),
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
        T(
            "approve",
            "proposed",
            "rolling_back",
            by="operator",
            when=(reason_given,),
            effects=(ROLL_BACK,),
            severity="warning",
        ),
        T("reject", "proposed", "rejected", by="operator", when=(reason_given,), severity="warning"),
        T("expire", "proposed", "rejected", by="machinery", severity="warning"),
        T("roll_back_succeeded", "rolling_back", "rolled_back", effects=(NOTICE,), severity="critical"),
        T("roll_back_failed", "rolling_back", "failed", when=(reason_given,), effects=(NOTICE,), severity="error"),
    ),
    deadlines={"proposed": Deadline(DECIDED_HOURS * HOUR_SECONDS, "expire")},
    links=(
        Link("run", type="run", context_key="run_id", inverse="regressions"),
        Link("culprit", type="patch_ledger", context_key="culprit_id", inverse="blamed_by"),
    ),
    fields=(
        Field("run_id", uuid, "the UUID of its run", required=True),
        Field("gate_id", uuid, "the UUID of the gate that failed", required=True),
        Field("gate", name, NAME_SAYS, required=True),
    ),
    birth_effects=(SEARCH,),
)
