"""A machine for tests that must hit a certain moment: its guard takes as long, or breaks, as the trigger's data says.

Named by INTERLOCK_DEFINITIONS, so the workers load it like any user's.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from interlock.workflows.definition import Deadline, Definition, Guard, T
from interlock.workflows.guard_context import Case
from tests.small_machines import small_machine, tells

DOZE_SECONDS = 1.0


def _in_no_hurry(case: Case) -> bool:
    # Not pure, on purpose: the transaction is open, and the test is looking for it.
    time.sleep(float(case.metadata.get("takes_seconds", 0)))
    if Path(case.metadata.get("broken_while", "/nonexistent")).exists():
        raise ValueError("broken for now")
    return True


in_no_hurry = Guard("in_no_hurry", _in_no_hurry, "it takes as long as it takes")

TICKET = small_machine(
    "ticket",
    "Slow to take, told to the world, and waking by a timer.",
    "open taken telling dozing | closed",
    T("take", "open", "taken", when=(in_no_hurry,)),
    *tells("notice", "taken tell telling", done="told taken", failed="not_told taken"),
    T("give_back", "taken", "open"),
    T("doze", "taken", "dozing"),
    T("wake", "dozing", "taken"),
    T("close", "taken", "closed"),
    deadlines=MappingProxyType({"dozing": Deadline(DOZE_SECONDS, "wake")}),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {("ticket", "1.0.0"): TICKET}
