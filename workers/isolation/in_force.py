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
class IsolationReport:
    """How commands of plans run. `cure`: the setting that would help."""

    level: Literal["ok", "warn", "fail"]
    message: str
    cure: str = ""


def tested(settings: Settings) -> IsolationReport:
    """The isolation in force for this process's settings, on this machine."""
    try:
        found = boundary(settings)
    except BadInput as refused:
        return IsolationReport("fail", f"commands of plans are refused: {refused}", "INTERLOCK_COMMANDS_RUN_AS")
    if found.bubblewrap:
        return IsolationReport("ok", f"commands of plans run {found}")
    if settings.sandbox == "require":
        return IsolationReport("fail", f"commands of plans are refused: a sandbox is required, and {found.why}", CURE)
    return IsolationReport("warn", f"commands of plans run {found}", CURE)


def report(settings: Settings) -> str:
    """The same as text, for the ready file of a node that runs commands. A missing sandbox is logged as well."""
    found = tested(settings)
    if found.level != "ok":
        log.warning("commands_without_sandbox", reason=found.message, cure=found.cure)
    return json.dumps(asdict(found))


def reported(settings: Settings) -> Sequence[IsolationReport]:
    """The reports that this home's command-running nodes made at their start, equal ones once.

    If there are none, as in Compose, it is tested here, and the text says so.
    """
    reports = {each for file in (settings.home / "run").glob("*.ready") if (each := _read(file))}
    if reports:
        return sorted(reports, key=lambda each: each.message)
    here = tested(settings)
    return [replace(here, message=f"{here.message} (tested here: no worker has reported)")]


def _read(file: Path) -> IsolationReport | None:
    try:
        return IsolationReport(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):  # empty: a node that runs no commands
        return None
