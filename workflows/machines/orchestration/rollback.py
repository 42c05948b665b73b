"""A rollback of a landed patch that an operator ordered, and that workers carry out (docs/spec/rollback.md).

proposed → rolling_back → rolled_back
           rolling_back → failed

It begins in the commit in which it is ordered. Its context says of which patch and how, and never changes.
"""

import re
from collections.abc import Mapping

from interlock.workflows.definition import Definition, Field, Link
from interlock.workflows.machines.orchestration.fields import uuid
from interlock.workflows.machines.orchestration.rolling_back import ENDS, carried_out_by, ordered


def _commit(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{7,64}", value) is not None


ROLLBACK = Definition(
    type="rollback",
    version="1.0.0",
    summary="An operator ordered that a landed patch is rolled back.",
    order=(("proposed",), ("rolling_back",), ("rolled_back", "failed")),
    initial="proposed",
    terminal=frozenset({"rolled_back", "failed"}),
    by="effect",
    transitions=(ordered("roll_back", carried_out_by("roll_back_patch")), *ENDS),
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
