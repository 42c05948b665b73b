"""Whether a process is ready, for the supervisor that started it."""

import os
from collections.abc import Callable
from pathlib import Path


def announce_ready(text: Callable[[], str] = str) -> None:
    """Create the file that INTERLOCK_READY_FILE names, with what `text` gives; without that variable, do nothing."""
    if path := os.environ.get("INTERLOCK_READY_FILE"):
        Path(path).write_text(text())
