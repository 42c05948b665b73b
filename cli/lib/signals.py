"""For commands that hold a worktree or a child process: clean up before a signal ends them."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_well() -> Iterator[None]:
    """Within this context SIGINT (Ctrl-C), SIGTERM and SIGHUP (closed terminal) raise `SystemExit`, so cleanup runs."""
    before = {number: signal.signal(number, _end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)  # as shells report it
