"""The step from the shim to the command: fork, set limits, change the user, exec the command or its sandbox."""

import errno
import math
import os
import resource
import warnings  # noqa: F401 - execvpe imports it, and under its limits the command may open no file
from io import BytesIO

from interlock.workers.execution import confine
from interlock.workers.execution.plain_signal import signal
from interlock.workers.execution.shim_protocol import ShimOrder, packed, unpacked
from interlock.workers.system import process_tree

CANNOT_RUN, NOT_FOUND = 126, 127  # as POSIX shells define them (sh, 2.8.2)
UNWELCOME = b"1000"  # proc(5), oom_score_adj: when memory runs out, a command is killed before any server
_ADDRESS_SPACE = resource.RLIMIT_DATA if process_tree.LINUX else resource.RLIMIT_AS  # macOS accepts it and ignores it


def launch(order: ShimOrder) -> tuple[int, tuple[int, str] | None, int | None]:
    """Start the command as our child.

    Returns:
        Its pid. If it could not run, also the exit code (126, 127) and why; then only reap the pid. In a sandbox,
        also the descriptor for `was_started`: only after its end is it known whether the command was started there.
    """
    failure, failure_end = os.pipe()  # the exec closes it: end of file without data means that the command runs
    status, status_end = os.pipe()
    release_end, release = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(order, shim, failure_end, status_end, release_end)
    for end in (failure_end, status_end, release_end):
        os.close(end)
    with open(failure, "rb") as answer:
        report = answer.read()
    if order.sandbox and not report:
        _limit_and_release(order, status, release)
    os.close(release)
    return pid, unpacked(BytesIO(report)) if report else None, status if order.sandbox else None


def was_started(status: int) -> bool:
    """Whether a sandboxed command that has ended was ever started: only then does bubblewrap report its exit code."""
    os.set_blocking(status, False)
    try:
        return b'"exit-code"' in os.read(status, 4096)
    except BlockingIOError:
        return False


def _limit_and_release(order: ShimOrder, status: int, release: int) -> None:
    """Set the limit on processes, and let the command begin.

    The kernel counts a user's processes per user namespace only if the limit is set inside that namespace.
    """
    reported = os.read(status, 4096).partition(b'"child-pid": ')[2]  # empty: bubblewrap has failed
    if reported and order.processes is not None:
        pid = int(reported[: len(reported) - len(reported.lstrip(b"0123456789"))])
        highest = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        limit = order.processes if highest == resource.RLIM_INFINITY else min(order.processes, highest)
        confine.as_account(order.account, lambda: resource.prlimit(pid, resource.RLIMIT_NPROC, (limit, limit)))
    if reported:
        os.write(release, b"1")


def _become(order: ShimOrder, shim: int, failure_end: int, status: int, release: int) -> None:
    """Become the command. Never returns, not even when memory runs out: there must not be two shims."""
    try:
        os.write(failure_end, packed(_attempt(order, shim, status, release)))
    finally:
        os._exit(CANNOT_RUN)


def _attempt(order: ShimOrder, shim: int, status: int, release: int) -> tuple[int, str]:
    try:
        _detach()
        _limit(order)
        return _execute(order, shim, status, release)
    except Exception as fault:  # such as a NUL in a word, or a niceness we may not have
        return CANNOT_RUN, f"{type(fault).__name__}: {fault}"


def _detach() -> None:
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # Celery ignores some and Python others, and exec would pass that on
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _limit(order: ShimOrder) -> None:
    os.nice(order.nice)
    _bound(resource.RLIMIT_CORE, 0)
    _bound(resource.RLIMIT_NOFILE, order.open_files)
    _bound(resource.RLIMIT_CPU, order.cpu_seconds, margin=1)
    _bound(_ADDRESS_SPACE, order.memory_bytes)
    _bound(resource.RLIMIT_FSIZE, order.file_bytes)
    if order.sandbox is None and order.processes is not None:
        owner = order.account[0] if order.account else os.getuid()
        _bound(resource.RLIMIT_NPROC, order.processes + process_tree.threads_of(owner))
    process_tree.set_dumpable(True)  # or the next file would belong to root
    try:
        with open("/proc/self/oom_score_adj", "wb") as score:
            score.write(UNWELCOME)
    except OSError:  # not Linux, or a read-only /proc
        pass


def _bound(which: int, value: int | None, margin: int = 0) -> None:
    """Lower a limit. `margin`: from the soft limit, which warns, to the hard one."""
    if value is None:
        return
    highest = resource.getrlimit(which)[1]
    ceiling = math.inf if highest == resource.RLIM_INFINITY else highest
    resource.setrlimit(which, (int(min(value, ceiling)), int(min(value + margin, ceiling))))


def _execute(order: ShimOrder, shim: int, status: int, release: int) -> tuple[int, str]:
    """Become the program, or its sandbox. Returns only if refused, with the exit code and the reason."""
    if order.sandbox:
        program, words = confine.sandboxed(order, status, release)
        os.chdir("/")
        _be(order, shim)
        # Its variables are passed as arguments: bubblewrap, outside the sandbox, must not load what LD_PRELOAD names.
        os.execve(program, words, {order.mark: order.env[order.mark]})  # noqa: S606 - no shell
    _be(order, shim)
    try:
        os.chdir(order.cwd)
    except OSError as refused:
        return CANNOT_RUN, f"working directory {_shown(order.cwd)}: {refused.strerror}"
    try:
        os.execvpe(order.argv[0], order.argv, order.env)  # noqa: S606 - a shell only where one was asked for
    except OSError as refused:
        missing = refused.errno in {errno.ENOENT, errno.ENOTDIR}
        code = NOT_FOUND if missing else CANNOT_RUN
        there = missing and b"/" in order.argv[0] and os.path.exists(order.argv[0])
        more = " (the program that its first line names)" if there else ""
        return code, f"{_shown(order.argv[0])}: {refused.strerror}{more}"


def _be(order: ShimOrder, shim: int) -> None:
    """Become the command's user, then ask to die with the shim: a change of user would cancel that request."""
    if order.account:
        confine.drop(order.account)
    process_tree.control(process_tree.PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != shim:  # the shim died before the request
        os._exit(CANNOT_RUN)


def _shown(name: bytes) -> str:
    return name[:500].decode("utf-8", "replace")
