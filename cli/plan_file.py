"""A plan, read from a file or from standard input."""

import sys
from pathlib import Path

from workflows.errors import BadInput
from workflows.plan.parse import MAX_BYTES
from workflows.plan.plan import Plan
from workflows.plan.read import read_plan

STANDARD_INPUT = Path("-")


def read(file: Path) -> Plan:
    """The plan in a file; `-` is standard input.

    Raises:
        PlanInvalid: naming file, line and field of all that is wrong.
        BadInput: the file cannot be read.
    """
    if file == STANDARD_INPUT:
        return read_plan(sys.stdin.buffer.read(MAX_BYTES + 1), name="-")
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1)  # one byte past the limit is enough to be refused; /dev/zero has no end
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadInput(f"{file} cannot be read: {error}") from error
    return read_plan(text, name=str(file))


def directory_of(file: Path) -> Path:
    """What a plan's paths are relative to: its own folder, or the working directory."""
    return Path.cwd() if file == STANDARD_INPUT else file.absolute().parent
