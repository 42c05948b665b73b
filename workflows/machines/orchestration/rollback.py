"""A rollback of a landed patch that an operator ordered, and that workers carry out (docs/spec/rollback.md).

proposed → rolling_back → rolled_back
           rolling_back → failed

It begins in the commit in which it is ordered. Its context says of which patch and how, and never changes.
"""

import re
from collections.abc import Mapping

from interlock.workflows.definition import Definition, Effect, Field, Link, T
from interlock.workflows.machines.orchestration.fields import uuid
from interlock.workflows.machines.orchestration.metadata_guards import reason_given

NOTICE = Effect("notice")
# One at a time in a run, as the rollback of a regression.
ROLL_BACK = Effect("roll_back_patch", failed="roll_back_failed", exclusive="run_id")


def _commit(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{7,64}", value) is not None


ROLLBACK = Definition(
    type="rollback",
    version="1.0.0",
    summary="An operator ordered that a landed patch is rolled back.",
    initial="proposed",
    terminal=frozenset({"rolled_back", "failed"}),
    order=(("proposed",), ("rolling_back",), ("rolled_back", "failed")),
    by="effect",
    transitions=(
        T(
            "roll_back",
            "proposed",
            "rolling_back",
            by="operator",
            when=(reason_given,),
            effects=(ROLL_BACK,),
            severity="warning",
        ),
        T("roll_back_succeeded", "rolling_back", "rolled_back", effects=(NOTICE,), severity="critical"),
        T("roll_back_failed", "rolling_back", "failed", when=(reason_given,), effects=(NOTICE,), severity="error"),
    ),
    links=(
        Link("run", type="run", context_key="run_id", inverse="rollbacks"),
        Link("patch", type="patch_ledger", context_key="ledger_id", inverse="rollbacks"),
    ),
    fields=(
        Field("run_id", uuid, "the UUID of the patch's run", required=True),
        Field("ledger_id", uuid, "the UUID of the ledger entry", required=True),
        Field("plan", lambda value: isinstance(value, Mapping), "a compensation plan"),
        Field("commit_sha", _commit, "the commit by which people undid the patch"),
    ),
)
