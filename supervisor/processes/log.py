"""One line for each state change of a part: on the terminal of `interlock up`, or in `supervisor.log` if detached."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from interlock.supervisor.processes.process import PartReport
from interlock.workflows.output.escaping import json_text


def narrator(report: Callable[[PartReport], None]) -> Callable[[list[PartReport]], None]:
    """A `watch` for `supervise` that reports each change of state once."""
    states: dict[str, str] = {}

    def watch(parts: list[PartReport]) -> None:
        for part in parts:
            if states.get(part.name, "stopped") != part.state:
                states[part.name] = part.state
                report(part)

    return watch


def as_text(part: PartReport) -> str:
    """A change of state as text for a terminal."""
    return f"{part.name} {part.state}" + (f": {part.detail}" if part.state == "restarting" else "")


def logged(part: PartReport) -> str:
    """A change of state as a log line, with the same fields as `workers.telemetry.logs` writes."""
    fields: dict[str, Any] = {"part": part.name, "pid": part.pid, "restarts": part.restarts}
    if part.state == "restarting":
        return line("restarting", level="warning", **fields, detail=part.detail)
    return line(part.state, **fields)


def line(event: str, *, level: str = "info", **fields: object) -> str:
    """A log line as JSON, without a logging library, to keep the supervisor small and its imports few."""
    stamp = {"level": level, "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    return json_text({**fields, "event": event, **stamp})
