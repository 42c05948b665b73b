"""What a part of Interlock is: one row of data that the supervisor can start, watch and stop."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.accounts import Account

Waits = Callable[[int], str | None]
"""Given the part's pid: None when it is ready, else what it still waits for."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Part:
    """One process (with the children it makes itself), and all the supervisor needs to know about it.

    `before` runs ahead of each start. To stop it, `stop_signal` goes to the process alone; after `stop_seconds`
    `last_signal` follows, and SIGKILL to its whole process group.
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
