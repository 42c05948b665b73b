"""Runs a program of somebody else's, which must not hold us up: after a time it is killed, with all it started."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from signal import SIGKILL
from typing import Any


@contextmanager
def helper(arguments: Sequence[str], timeout_message: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A program for the duration of a block, which waits for it by `communicate`. No shell is involved.

    Args:
        arguments: the program and its arguments.
        timeout_message: of the error, if it does not end in time.
        options: of `subprocess.Popen`.

    Raises:
        ValueError: it did not end in the time that the block gave it.
        OSError: it cannot be started.
    """
    with subprocess.Popen(arguments, start_new_session=True, **options) as process:
        try:
            yield process
        except subprocess.TimeoutExpired:
            raise ValueError(timeout_message) from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, SIGKILL)
