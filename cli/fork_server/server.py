"""Forks a process for each command, from one that has imported what commands need.

A command is asked for on a socket in the home, which only the home's user can reach. The fork becomes what its caller
(`launcher.py`) is: arguments, environment, directory, streams, limits and priority. It ends instead if it cannot, or if
the caller is confined in another way than it is itself, because the command would then be allowed more than its caller;
the caller runs the command itself.

Sources: unix(7) for `SCM_RIGHTS` and `SO_PEERCRED`; Mercurial's `chg`, which serves commands in the same way.
"""

import contextlib
import fcntl
import io
import json
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from interlock.cli.fork_server.confinement import is_alike, peer
from interlock.cli.fork_server.launcher import GO, LENGTH_BYTES, READY, STARTED, STREAMS, code
from interlock.cli.index import SECTIONS, loaded
from interlock.cli.lib import output
from interlock.cli.main import main as command
from interlock.db.schema import DEFAULT, SCHEMA, VARIABLE
from interlock.supervisor.processes.fork import ended
from interlock.supervisor.processes.importing import without_collections
from interlock.supervisor.processes.log import line
from interlock.workers.settings import Settings, settings
from interlock.workers.system.process_tree import name_process
from interlock.workflows.catalogue import SHIPPED, Catalogue

# What agents call. Other commands are rare, and import more (Alembic, Markdown).
OFTEN = ("Instances and their triggers", "Plans, and who carries them out")
IMPORTED_LATE = (
    "interlock.cli.lib.errors",
    "kombu.transport.redis",
    "psycopg_binary",
    "sqlalchemy.dialects.postgresql.psycopg",
)
NAME = "interlock"  # not a part's name: `interlock down` does not end commands
REQUEST_SECONDS = 10  # for the whole request, however slowly it comes
CODE = code()  # now, because an upgrade replaces the files while this process keeps what it has imported
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


def serve(listening: socket.socket, idle_seconds: float) -> None:
    """Fork for each connection; returns after `idle_seconds` without one."""
    with without_collections():  # what each fork would make again
        for name in (name for section in OFTEN for name in SECTIONS[section]):
            loaded(name)
        for module in IMPORTED_LATE:
            import_module(module)
        Settings()  # builds the validators
        Catalogue(SHIPPED)  # checks the definitions
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks need not be waited for
    while select.select([listening], [], [], idle_seconds)[0]:
        connection, _ = listening.accept()
        with connection:
            try:
                pid = os.fork()
            except OSError as reason:  # too many processes
                _decline(reason)
                continue
            if not pid:
                listening.close()
                _run(connection)


def _run(connection: socket.socket) -> None:
    """Become the command that a caller asks for, or end; never returns."""
    signal.alarm(REQUEST_SECONDS)
    try:
        take_streams = _become_caller(connection)
        _begin(connection)
        signal.alarm(0)
    except BaseException as reason:
        _decline(reason)
        os._exit(0)
    exit_code = 1
    try:
        take_streams()
        name_process(NAME)
        exit_code = ended(command)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):  # what cannot be written was reported by the command
        sys.stdout.flush()
        sys.stderr.flush()
    with contextlib.suppress(OSError):  # the caller is gone
        connection.send(bytes([exit_code & 0xFF]))
    os._exit(0)


def _decline(reason: BaseException) -> None:
    with contextlib.suppress(OSError):  # a full disk
        print(line("declined", reason=f"{type(reason).__name__}: {reason}"), flush=True)


class _Declined(Exception):
    """Why the caller must run the command itself."""


def _become_caller(connection: socket.socket) -> Callable[[], None]:
    """Take over all that the caller at the other end of a connection is, but for its streams.

    Returns what takes them over, too. Raises `_Declined` or OSError if it cannot.
    """
    caller = peer(connection)
    limits = {limit: resource.prlimit(caller, limit) for limit in LIMITS}
    priority, processors = os.getpriority(os.PRIO_PROCESS, caller), os.sched_getaffinity(caller)
    if not is_alike(connection):  # last, since it also proves that all this was the caller's
        raise _Declined("the caller is another user's, or may be confined in another way")
    connection.sendall(READY)
    asked, (*streams, directory) = _received(connection)
    if asked["code"] != CODE:
        raise _Declined("the caller is of another installation of Interlock")
    if (asked["environment"].get(VARIABLE) or DEFAULT) != SCHEMA:
        raise _Declined(f"the caller's {VARIABLE} is not {SCHEMA}")
    for limit, value in limits.items():
        resource.setrlimit(limit, value)
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    os.sched_setaffinity(0, processors)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()  # the end of the fork server does not end commands
    os.fchdir(directory)
    os.close(directory)
    os.environ.clear()
    os.environ.update(asked["environment"])
    settings.cache_clear()
    time.tzset()
    tempfile.tempdir = None
    sys.argv, sys.path[:] = ["interlock", *asked["words"]], asked["path"]
    return partial(_take_streams, streams, asked["errors"], bool(asked["unbuffered"]))


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    length, descriptors, _, _ = socket.recv_fds(connection, LENGTH_BYTES, STREAMS + 1)
    with connection.makefile("rb") as request:
        asked = request.read(int.from_bytes(length, "big"))
    try:
        return json.loads(asked), descriptors
    except ValueError:
        raise _Declined("its request was cut short") from None


def _begin(connection: socket.socket) -> None:
    """Agree with the caller that this process runs the command. Raises `_Declined` if the caller no longer waits."""
    itself = os.pidfd_open(os.getpid())
    socket.send_fds(connection, [STARTED], [itself])
    os.close(itself)
    answer = connection.recv(1)
    _end_with_caller(connection)
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        answer = connection.recv(1)  # nothing, if it was closed before the kernel would have told us
    connection.setblocking(True)
    if answer != GO:
        raise _Declined("the caller no longer waits")


def _end_with_caller(connection: socket.socket) -> None:
    """Have the kernel send SIGHUP to this process once the other end is closed (fcntl(2), `F_SETSIG`)."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGHUP)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)


def _take_streams(given: list[int], errors: list[str], unbuffered: bool) -> None:
    """Replace this process's three standard streams, and open them as Python itself does."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(given[number], number)
        os.close(given[number])
        raw = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
        buffered: Any = io.BufferedReader(raw) if name == "stdin" else raw if unbuffered else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(
            buffered,
            encoding="utf-8",
            errors=errors[number],
            newline="\n",
            line_buffering=not unbuffered and (name == "stderr" or raw.isatty()),
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    output.begin()
