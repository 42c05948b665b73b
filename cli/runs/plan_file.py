"""Read a plan from a file or standard input."""

import sys
from pathlib import Path

from interlock.cli.lib.output import errors, say
from interlock.workers.effects.plan_files import installation_phases
from interlock.workers.settings import settings
from interlock.workflows.errors import BadInput
from interlock.workflows.output.escaping import shown
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.read import read_plan
from interlock.workflows.plan.warnings import warnings
from interlock.workflows.plan.yaml_text import MAX_BYTES

STANDARD_INPUT = Path("-")


def read(file: Path) -> Plan:
    """The plan in a file; `-` is standard input. Warnings about the plan are printed on standard error.

    Raises:
        PlanInvalid: the plan has faults; the message names file, line and field of each.
        BadInput: the file cannot be read.
    """
    plan = _read(file)
    for each in warnings(plan):
        say(("warning:", "yellow"), f" {each}", to=errors)
    return plan


def _read(file: Path) -> Plan:
    phases = installation_phases(settings())
    if file == STANDARD_INPUT:
        return read_plan(sys.stdin.buffer.read(MAX_BYTES + 1), name="-", phases=phases)
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)  # one byte past the limit is enough to refuse it; /dev/zero never ends
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadInput(f"{shown(file)} cannot be read: {error}") from error
    return read_plan(text, name=shown(file), phases=phases)


def directory_of(file: Path) -> Path:
    """The directory that a plan's paths are relative to: the file's own, or the working directory for `-`."""
    return Path.cwd() if file == STANDARD_INPUT else file.absolute().parent
