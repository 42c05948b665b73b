"""What happens to the parts, one line each: on the terminal of `interlock up`, in `supervisor.log` when detached."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from supervisor.child import Report


def narrator(tell: Callable[[Report], None]) -> Callable[[list[Report]], None]:
    """A `watch` for `supervise` that tells each change of state once."""
    said: dict[str, str] = {}

    def watch(parts: list[Report]) -> None:
        for part in parts:
            if said.get(part.name, "stopped") != part.state:
                said[part.name] = part.state
                tell(part)

    return watch


def spoken(part: Report) -> str:
    """A change of state for a terminal."""
    return f"{part.name} {part.state}" + (f": {part.detail}" if part.state == "restarting" else "")


def logged(part: Report) -> str:
    """A change of state as a line of a log, with the fields that `workers.logs` writes too."""
    about: dict[str, Any] = {"part": part.name, "pid": part.pid, "restarts": part.restarts}
    if part.state == "restarting":
        return line("restarting", level="warning", **about, detail=part.detail)
    return line(part.state, **about)


def line(event: str, *, level: str = "info", **said: object) -> str:
    """One JSON object. The supervisor writes it itself: it stays small, and imports no more than it must."""
    stamp = {"level": level, "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    return json.dumps({**said, "event": event, **stamp}, ensure_ascii=False)
