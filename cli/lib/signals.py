"""Commands that have something open, a worktree or a command that runs: whatever ends them, they close it first."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_well() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a terminal that is closed (SIGHUP) end what runs inside as an exception does."""
    before = {number: signal.signal(number, _end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)  # as shells report it
