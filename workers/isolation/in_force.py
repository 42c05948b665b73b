"""The isolation of plans' commands, as reported by the workers that run them: other processes' settings may differ."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import structlog

from interlock.workers.isolation.boundary import CURE, boundary
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InForce:
    """How commands of plans run. `cure`: the setting that would help."""

    level: Literal["ok", "warn", "fail"]
    message: str
    cure: str = ""


def tried_out(settings: Settings) -> InForce:
    """The isolation in force for this process's settings, on this machine."""
    try:
        found = boundary(settings)
    except BadInput as refused:
        return InForce("fail", f"commands of plans are refused: {refused}", "INTERLOCK_COMMANDS_RUN_AS")
    if found.bubblewrap:
        return InForce("ok", f"commands of plans run {found}")
    if settings.sandbox == "require":
        return InForce("fail", f"commands of plans are refused: a sandbox is required, and {found.why}", CURE)
    return InForce("warn", f"commands of plans run {found}", CURE)


def report(settings: Settings) -> str:
    """The same as text, for the ready file of a node that runs commands. A missing sandbox is logged as well."""
    found = tried_out(settings)
    if found.level != "ok":
        log.warning("commands_without_sandbox", reason=found.message, cure=found.cure)
    return json.dumps(asdict(found))


def told(settings: Settings) -> Sequence[InForce]:
    """The reports that this home's command-running nodes made at their start, equal ones once.

    If there are none, as in Compose, it is tested here, and the text says so.
    """
    reports = {each for file in (settings.home / "run").glob("*.ready") if (each := _read(file))}
    if reports:
        return sorted(reports, key=lambda each: each.message)
    here = tried_out(settings)
    return [replace(here, message=f"{here.message} (tested here: no worker has reported)")]


def _read(file: Path) -> InForce | None:
    try:
        return InForce(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):  # empty: a node that runs no commands
        return None
