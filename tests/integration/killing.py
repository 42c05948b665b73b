"""A machine for tests of requests that end the process which applies them: its guard does as the data says."""

import os
import signal
from collections.abc import Mapping

from interlock.workflows.definition import Definition, Guard, T
from interlock.workflows.guard_context import Case
from tests.small_machines import small_machine


def _kills(case: Case) -> bool:
    if how := case.metadata.get("how"):
        os.kill(os.getpid(), signal.Signals[how])
    return True


MINE = small_machine(
    "mine",
    "Ends who steps on it.",
    "laid | cleared",
    T("step", "laid", "cleared", when=(Guard("kills", _kills, "it is harmless"),)),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {("mine", "1.0.0"): MINE}
