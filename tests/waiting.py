"""Wait for a condition that another process brings about, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], timeout: float = 30, every: float = 0.05) -> T:
    """Call `check` until it returns a true value, and return that.

    An exception counts as "not yet". After `timeout` seconds the last one is raised, or AssertionError.
    """
    deadline = time.monotonic() + timeout
    while True:
        fault: Exception | None = None
        try:
            if found := check():
                return found
        except Exception as not_yet:
            fault = not_yet
        if time.monotonic() > deadline:
            raise fault or AssertionError(f"not so within {timeout} s: {check}")
        time.sleep(every)
