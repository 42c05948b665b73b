"""A machine for tests of guards that never answer: its guard hangs, or ends its process, as the trigger's data says."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from interlock.workflows.definition import Definition, Guard, T
from interlock.workflows.guard_context import Case
from tests.small_machines import small_machine

EVER = 600.0


def _hangs_or_kills(case: Case) -> bool:
    how = case.metadata.get("how")
    if how == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "waits":
        time.sleep(EVER)
    if how == "is deaf":
        with suppress(Exception):
            time.sleep(EVER)
        time.sleep(EVER)
    if how == "loops in C":
        sum(range(10**13))
    return True


MINE = small_machine(
    "mine",
    "Holds or ends who steps on it.",
    "laid | cleared",
    T("step", "laid", "cleared", when=(Guard("hangs_or_kills", _hangs_or_kills, "it is harmless"),)),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {("mine", "1.0.0"): MINE}
