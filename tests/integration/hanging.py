"""A machine for tests of hanging guards: its guard hangs as the trigger's data says."""

import time
from collections.abc import Mapping
from contextlib import suppress

from interlock.workflows.definition import Definition, Guard, T
from interlock.workflows.guard_context import Case
from tests.small_machines import small_machine

EVER = 600.0


def _hangs(case: Case) -> bool:
    how = case.metadata.get("how")
    if how == "waits":
        time.sleep(EVER)
    if how == "is deaf":
        with suppress(Exception):
            time.sleep(EVER)
        time.sleep(EVER)
    if how == "loops in C":
        sum(range(10**13))
    return True


CLOCK = small_machine(
    "clock",
    "May stand still.",
    "wound running | stopped",
    T("start", "wound", "running", when=(Guard("hangs", _hangs, "it goes"),)),
    T("stop", "running", "stopped"),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {("clock", "1.0.0"): CLOCK}
