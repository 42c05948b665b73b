"""Commands that sleep for long, told apart from those of other tests and of another checkout's."""

import os

import psutil


def lasting(seconds: float) -> str:
    """What to tell `sleep`: so many seconds, and a fraction that only this process says."""
    return f"{seconds:.1f}{os.getpid():07}"


def sleepers(seconds: str) -> list[psutil.Process]:
    """The processes of this machine that sleep for exactly as long."""
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", seconds]]
