"""Run parts that are our own Python programs as forks of the supervisor, so that shared modules are imported once.

Starting a part then takes a tenth of a second instead of more than one, and its memory is shared with the others until
it is written to. A fork behaves like `python -m MODULE …`: it has its own session, environment, directory and output,
and none of the supervisor's other open files. Its command line stays the supervisor's, which names the home; its
process name (`ps -o comm`) is the part's.
"""

import atexit
import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import BinaryIO

from interlock.supervisor.environment import DIRECTORY, UMASK
from interlock.supervisor.processes.importing import without_collections
from interlock.workers.settings import Settings, settings
from interlock.workers.system.process_tree import name_process

# Modules that worker nodes, beat, Flower and the others import anyway.
SHARED = (
    "billiard.popen_fork",
    "billiard.sharedctypes",
    "billiard.synchronize",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.log",
    "celery.app.routes",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "celery.concurrency.solo",
    "celery.events",
    "celery.fixups.django",
    "celery.worker.autoscale",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "kombu.transport.redis",
    "prometheus_client",
    "psycopg",
    "psycopg_binary",
    "sqlalchemy.dialects.postgresql.psycopg",
    "interlock.workers.audit.backup_drills",
    "interlock.workers.audit.kept_backups",
    "interlock.workers.broker.beat_scheduler",
    "interlock.workers.broker.event_batching",
    "interlock.workers.broker.pubsub",
    "interlock.workers.node",
)
UNREAD = {"INTERLOCK_READY_FILE", "FLOWER_BASIC_AUTH"}  # variables by which parts differ, and which are no settings
HANDLED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}  # signals that the supervisor handles
WAIT_SECONDS = 0.01
CAN_FORK = sys.platform == "linux"


_prepared: dict[str, str] = {}  # the environment whose settings this process's forks find already read


def preload(environment: Mapping[str, str]) -> None:
    """Do what the parts would do each: import the shared modules, read their settings, make their app, and so on.

    All of it is frozen for the garbage collector, whose writes would copy its memory.

    Args:
        environment: of most parts. A fork with other settings reads its own; it is not to use the app.

    Raises:
        BadInput: the settings in it are wrong.
    """
    own = dict(os.environ)
    settings.cache_clear()
    _replace_environment(environment)
    try:
        with without_collections():
            for name in SHARED:
                import_module(name)
            _compose(settings())
    finally:
        _replace_environment(own)
    _prepared.update(environment)


def _compose(chosen: Settings) -> None:
    """Make once what each part makes for itself, so that what this computes and caches is there before the forks.

    A module of a user may start threads, so definitions are left to the parts if there are such modules.
    """
    from interlock.workers.main import app  # noqa: PLC0415 - a shared module
    from interlock.workers.runtime import Runtime  # noqa: PLC0415 - likewise
    from interlock.workflows.catalogue import ENTRY_POINTS  # noqa: PLC0415 - likewise

    made, own = Runtime(chosen), chosen.definitions or entry_points(group=ENTRY_POINTS)
    attrgetter("database" if own else "catalogue", "database")(made)  # all are made on first use
    attrgetter("amqp.queues", "control", "events")(app)
    made.close()


def _replace_environment(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


class Fork:
    """A fork of this process, with the parts of `subprocess.Popen`'s interface that the supervisor uses."""

    stdin = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative if a signal ended it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit code. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
            time.sleep(WAIT_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended: its pid may belong to another process by then."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


def is_module(command: Sequence[str]) -> bool:
    """Whether a command runs a module with this Python, so that a fork can run it instead."""
    return CAN_FORK and command[:1] == (sys.executable,) and "-m" in command


def fork(
    name: str,
    program: Callable[[], None],
    environment: Mapping[str, str],
    output: BinaryIO,
    *,
    first: Callable[[], None] = lambda: None,
) -> Fork:
    """Run one of our programs in a fork. Only for a process with one thread.

    Args:
        name: the process name.
        program: the program, such as `module(…)`.
        environment: its whole environment.
        output: the file for stdout and stderr.
        first: called in the fork, before anything else.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # until the fork has set its own handlers
    if pid := os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return Fork(pid)
    code = 1
    try:
        name_process(name)
        first()
        _become(environment, output.fileno())
        code = ended(program)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(environment: Mapping[str, str], output: int) -> None:
    os.setsid()  # so that Ctrl-C reaches only the supervisor, and SIGKILL the part's whole group
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.umask(UMASK)
    os.chdir(DIRECTORY)
    _replace_environment(environment)
    if {name for name, _ in _prepared.items() ^ environment.items()} - UNREAD:
        settings.cache_clear()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def module(command: Sequence[str]) -> Callable[[], None]:
    """A program that does the same as `python … -m MODULE ARGUMENTS`, with this process's Python options."""
    name, *arguments = command[command.index("-m") + 1 :]

    def program() -> None:
        sys.argv = [name, *arguments]
        sys.modules.pop(name, None)  # if this process has it already, runpy would warn of a second one
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    return program


def ended(program: Callable[[], None]) -> int:
    """Run a program to its end; returns the exit code that Python would end with."""
    try:
        program()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code
