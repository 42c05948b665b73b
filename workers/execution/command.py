"""A command to run: the program, its directory, its environment and its limits."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwuid
from uuid import uuid4

from interlock.workers.execution.shim_protocol import ShimOrder
from interlock.workers.sandbox.sandbox import HOME, Sandbox, confinement
from interlock.workers.system.users import Account
from interlock.workflows.errors import BadInput

# The variables that a command inherits from us; all others must be named in `env`.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
OURS = ("HOME", "TMPDIR")  # those whose directories another user, or a sandbox, cannot use
NOWHERE = {"HOME": "/nonexistent"}  # as system users have it
PRIVATE = {"HOME": HOME, "TMPDIR": "/tmp"}  # noqa: S108 - a sandbox's own
MARK = "INTERLOCK_COMMAND"  # in the environment of all processes of a command: its owner, and its id
LIMITS = ("memory_bytes", "cpu_seconds", "open_files", "file_bytes", "processes", "tree_bytes", "disk_bytes")


@dataclass(frozen=True)
class Command:
    """One program with its arguments, or one shell line. Raises `BadInput` if it contradicts itself.

    Attributes:
        argv: the program and its arguments; with `shell`, one element: a line for `/bin/sh -c`.
        cwd: where it runs; a relative program path with a slash starts here. If missing: refused (exit code 126).
        env: variables beside those it inherits (`INHERITED`), over which these win, and `MARK`.
        timeout_seconds: from its start to SIGTERM; None: no time limit.
        grace_seconds: from SIGTERM to SIGKILL.
        output_limit_bytes: how much is kept of stdout and of stderr: half from the beginning, half from the end.
        memory_bytes: what each of its processes may allocate (RLIMIT_DATA on Linux, which does not count address space
            merely reserved, as Go, Java and Node.js do; RLIMIT_AS elsewhere). Not a limit on all of them together.
        cpu_seconds: CPU time of each of its processes (RLIMIT_CPU: SIGXCPU, a second later SIGKILL).
        open_files: file descriptors each of its processes may have (RLIMIT_NOFILE).
        nice: added to our own niceness.
        file_bytes: the longest file that it may write (RLIMIT_FSIZE: SIGXFSZ).
        processes: how many processes and threads it may have at once (RLIMIT_NPROC: more cannot be started). Without a
            sandbox, how many more than its user has when it begins.
        tree_bytes: memory that all its processes may use together; it is ended beyond. Checked four times a second, on
            Linux only, as is the next one.
        disk_bytes: what it may write below `writes`; it is ended beyond.
        writes: the directories that it may change; if empty: `cwd`.
        account: the user that it runs as; None: ours. Needs root's rights.
        sandbox: what it sees; None: everything that its user may see.
        mark: its owner: with an id of its own, the value of `MARK`.
        secrets: values that are masked in its output.

    A limit above our own is lowered to ours. Core dumps are off; stdin is empty.
    """

    argv: tuple[str, ...]
    cwd: Path
    shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float | None = 1800.0  # TASK-8
    grace_seconds: float = 5.0
    output_limit_bytes: int = 1 << 20
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    open_files: int | None = None
    nice: int = 0
    file_bytes: int | None = None
    processes: int | None = None
    tree_bytes: int | None = None
    disk_bytes: int | None = None
    writes: tuple[Path, ...] = ()
    account: Account | None = None
    sandbox: Sandbox | None = None
    mark: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        words = isinstance(self.argv, tuple) and all(isinstance(word, str) for word in self.argv)
        if not words or not self.argv or not self.argv[0]:
            raise BadInput(f"argv: expected a tuple of strings that begins with the program, got {self.argv!r}")
        if self.shell and len(self.argv) != 1:
            raise BadInput(f"argv: with shell=True expected one line, got {len(self.argv)} words")
        for name in ("timeout_seconds", *LIMITS):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise BadInput(f"{name}: expected a positive, finite number, or None for no limit; got {value}")
        for name in ("grace_seconds", "output_limit_bytes", "nice"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise BadInput(f"{name}: expected a finite number from 0 on; got {value}")


def environment(command: Command) -> dict[str, str]:
    """Every variable the command will see."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    if command.sandbox or command.account:
        inherited = {name: value for name, value in inherited.items() if name not in OURS}
        inherited |= PRIVATE if command.sandbox else NOWHERE
    return {**inherited, **command.env, MARK: f"{command.mark}/{uuid4().hex}"}


def order(command: Command) -> ShimOrder:
    """The command in the form that its shim needs. Raises `BadInput` if a word or variable cannot be encoded."""
    argv = ("/bin/sh", "-c", *command.argv) if command.shell else command.argv
    same = {name: getattr(command, name) for name in ("timeout_seconds", "grace_seconds", "nice", *LIMITS)}
    same["cpu_seconds"] = command.cpu_seconds and math.ceil(command.cpu_seconds)
    return ShimOrder(
        **same,
        argv=[_encoded(word) for word in argv],
        cwd=_encoded(str(command.cwd.absolute())),
        env={_encoded(name): _encoded(value) for name, value in environment(command).items()},
        asking=os.getpid(),
        writes=[_encoded(str(each.absolute())) for each in command.writes or (command.cwd,)],
        mark=_encoded(MARK),
        account=(command.account.uid, command.account.gid) if command.account else None,
        sandbox=confinement(command.sandbox, command.cwd.resolve(), _user(command)) if command.sandbox else None,
    )


def _user(command: Command) -> tuple[str, int, int]:
    if command.account:
        return command.account.name, command.account.uid, command.account.gid
    try:
        name = getpwuid(os.getuid()).pw_name
    except KeyError:  # as in containers that run under a bare uid
        name = "user"
    return name, os.getuid(), os.getgid()


def _encoded(word: str) -> bytes:
    try:
        return os.fsencode(word)
    except UnicodeEncodeError as unfit:
        raise BadInput(f"{word!a}: expected text that this system can encode ({unfit.reason})") from unfit
