"""The description of a part: one row of data, from which the supervisor can start, watch and stop it."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from interlock.workers.system.users import Account

Waits = Callable[[int], str | None]
"""Given the part's pid: None when it is ready, else what it still waits for."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Part:
    """One process, with its own children, and all that the supervisor needs to know about it.

    `before` runs before each start. `executed`: never a fork, which would have the supervisor's memory. To stop the
    part, the supervisor sends `stop_signal` to the process alone, after `stop_seconds` `last_signal`, and finally
    SIGKILL to its whole process group.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    waits_for: Waits
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    last_signal: signal.Signals = signal.SIGKILL
    before: Callable[[], None] = _nothing
    stdin: str = field(default="", repr=False)
    account: Account | None = None
    directory: Path | None = None
    executed: bool = False
