"""A command as it is asked for: what to run, where, with which environment, and how much it may use."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.execution.order import Order
from workflows.errors import BadInput

# What a command gets of our own environment; everything else must be named in `env`.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True)
class Command:
    """One program with its arguments, or one shell line. Raises `BadInput` where it contradicts itself.

    Attributes:
        argv: the program and its arguments; with `shell`, one element: a line for `/bin/sh -c`.
        cwd: where it runs; a program named with a slash is found from here. Missing: it is refused (exit code 126).
        env: its whole environment, together with what it inherits (`INHERITED`); these win.
        timeout_seconds: from its start to SIGTERM; None: it may run for ever.
        grace_seconds: from SIGTERM to SIGKILL.
        output_limit_bytes: how much of each, stdout and stderr, is kept: half from the beginning, half from the end.
        memory_bytes: what each of its processes may allocate (RLIMIT_DATA on Linux, which does not count address space
            merely reserved, as Go, Java and Node.js do; RLIMIT_AS elsewhere). Not a limit on all of them together.
        cpu_seconds: what each of its processes may compute (RLIMIT_CPU: SIGXCPU, a second later SIGKILL).
        open_files: file descriptors each of its processes may have (RLIMIT_NOFILE).
        nice: added to the niceness we run at.

    A limit above the one that we are under ourselves becomes that one. Core dumps are off; stdin is empty.
    """

    argv: tuple[str, ...]
    cwd: Path
    shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float | None = 1800.0  # SSOT 6: tasks.timeout_sec
    grace_seconds: float = 5.0
    output_limit_bytes: int = 1 << 20
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    open_files: int | None = None
    nice: int = 0

    def __post_init__(self) -> None:
        words = isinstance(self.argv, tuple) and all(isinstance(word, str) for word in self.argv)
        if not words or not self.argv or not self.argv[0]:
            raise BadInput(f"argv: expected a tuple of strings that begins with the program, got {self.argv!r}")
        if self.shell and len(self.argv) != 1:
            raise BadInput(f"argv: with shell=True expected one line, got {len(self.argv)} words")
        for name in ("timeout_seconds", "memory_bytes", "cpu_seconds", "open_files"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise BadInput(f"{name}: expected a positive number or None, got {value}")
        for name in ("grace_seconds", "output_limit_bytes", "nice"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise BadInput(f"{name}: expected zero or more, got {value}")


def environment(command: Command) -> dict[str, str]:
    """Every variable the command will see."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, **command.env}


def order(command: Command) -> Order:
    """The command as its warden needs it. Raises `BadInput` where a word or variable cannot be encoded."""
    argv = ("/bin/sh", "-c", *command.argv) if command.shell else command.argv
    return Order(
        argv=[_encoded(word) for word in argv],
        cwd=_encoded(str(command.cwd.absolute())),
        env={_encoded(name): _encoded(value) for name, value in environment(command).items()},
        asking=os.getpid(),
        timeout_seconds=command.timeout_seconds,
        grace_seconds=command.grace_seconds,
        memory_bytes=command.memory_bytes,
        cpu_seconds=None if command.cpu_seconds is None else math.ceil(command.cpu_seconds),
        open_files=command.open_files,
        nice=command.nice,
    )


def _encoded(word: str) -> bytes:
    try:
        return os.fsencode(word)
    except UnicodeEncodeError as unfit:
        raise BadInput(f"{word!a}: expected text that this system can encode ({unfit.reason})") from unfit
