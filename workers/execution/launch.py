"""The step from the warden to the command: fork, put on its limits, exec."""

import errno
import math
import os
import resource
import signal
import warnings  # noqa: F401 - execvpe imports it, and under its limits the command may open no file
from io import BytesIO

from workers.execution import tree
from workers.execution.order import Order, packed, unpacked

CANNOT_RUN, NOT_FOUND = 126, 127  # as POSIX shells say it (sh, 2.8.2)
_ADDRESS_SPACE = resource.RLIMIT_DATA if tree.LINUX else resource.RLIMIT_AS  # macOS takes it and ignores it


def launch(order: Order) -> tuple[int, tuple[int, str] | None]:
    """Start the command as our child.

    Returns:
        Its pid, and if it could not run the exit code (126, 127) and why; the pid then only has to be reaped.
    """
    told, tell = os.pipe()  # closed by the exec itself: end of file without a word means that the command runs
    warden = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(order, warden, tell)
    os.close(tell)
    with open(told, "rb") as answer:
        said = answer.read()
    return pid, unpacked(BytesIO(said)) if said else None


def _become(order: Order, warden: int, tell: int) -> None:
    """Be the command; never returns, not even for want of memory: there must not be two wardens."""
    try:
        os.write(tell, packed(_attempt(order, warden)))
    finally:
        os._exit(CANNOT_RUN)


def _attempt(order: Order, warden: int) -> tuple[int, str]:
    try:
        _detach(warden)
        _limit(order)
        return _execute(order)
    except Exception as fault:  # a NUL in a word, a niceness we may not have
        return CANNOT_RUN, f"{type(fault).__name__}: {fault}"


def _detach(warden: int) -> None:
    os.setsid()
    tree.die_with_parent()
    if os.getppid() != warden:  # it died before we asked to die with it
        os._exit(CANNOT_RUN)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # Celery ignores some and Python others: that would pass through exec
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _limit(order: Order) -> None:
    os.nice(order.nice)
    _bound(resource.RLIMIT_CORE, 0)
    _bound(resource.RLIMIT_NOFILE, order.open_files)
    _bound(resource.RLIMIT_CPU, order.cpu_seconds, margin=1)
    _bound(_ADDRESS_SPACE, order.memory_bytes)


def _bound(which: int, value: int | None, margin: int = 0) -> None:
    """Lower a limit; `margin` is from the soft one, which warns, to the hard one."""
    if value is None:
        return
    highest = resource.getrlimit(which)[1]
    ceiling = math.inf if highest == resource.RLIM_INFINITY else highest
    resource.setrlimit(which, (int(min(value, ceiling)), int(min(value + margin, ceiling))))


def _execute(order: Order) -> tuple[int, str]:
    """Become the program; comes back only when refused, with the exit code and why."""
    try:
        os.chdir(order.cwd)
    except OSError as refused:
        return CANNOT_RUN, f"working directory {_shown(order.cwd)}: {refused.strerror}"
    try:
        os.execvpe(order.argv[0], order.argv, order.env)  # noqa: S606 - a shell only where one was asked for
    except OSError as refused:
        missing = refused.errno in {errno.ENOENT, errno.ENOTDIR}
        code = NOT_FOUND if missing else CANNOT_RUN
        return code, f"{_shown(order.argv[0])}: {refused.strerror}{_hint(order, missing)}"


def _hint(order: Order, missing: bool) -> str:
    if missing and b"/" in order.argv[0] and os.path.exists(order.argv[0]):
        return " (the program that its first line names)"
    return ""


def _shown(name: bytes) -> str:
    return name[:500].decode("utf-8", "replace")
