"""Find and end processes of this home that outlived their supervisor. No other process is ever signalled.

A process belongs to this home if it runs as one of the home's users (the home's owner, the current user; for root also
the users configured for servers and for commands), and

- has the home's mark in its environment, as every part and the shim of every command has. Most of these hide their
  environment even from their own user; if it cannot be read, the mark is taken from the command line; or
- is a server: its program is PostgreSQL's or Valkey's, its working directory is one of the home's data directories,
  and it runs as the owner of that directory. PostgreSQL's processes overwrite their environment, so they have no mark.

A shell whose working directory is a data directory is therefore left alone, and so is another user's process with the
mark, which anybody can copy. A pid alone proves nothing, because pids are reused: psutil compares a process's start
time before it signals it.
"""

import contextlib
import os
import pwd
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from interlock.supervisor.home import Home
from interlock.workers.settings import settings
from interlock.workers.system import process_privacy
from interlock.workflows.errors import ServerFault

MARK = process_privacy.SUPERVISED  # variable in the environment of every part: its home
SERVERS = {"postgres", "valkey-server"}
STANDALONE = {"--boot", "--single"}  # first option of a PostgreSQL that ends at the end of its standard input
FIRST_SIGNALS = {
    "postgres": signal.SIGINT,  # a postmaster stops cleanly at once; at SIGTERM it would wait for every client
    "initdb": signal.SIGKILL,  # at SIGTERM it would delete the files of the PostgreSQL that it runs
}
PREFIX = "il-"  # prefix of the process names of parts that are forks
POLITE_SECONDS = 8.0
ROUNDS = 3
GONE = " (deleted)"  # added by Linux to the path of a process's file or directory that was deleted


def of_home(home: Home, data: Iterable[Path]) -> list[psutil.Process]:
    """Every process of this home; `data`: the data directories of its servers."""
    users = _users(home)
    directories = {str(directory): _owners(directory, users) for directory in data}
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid()
        and (_is_server(process, directories) or (_user(process) in users and mark(process) == str(home.path)))
    ]


def _users(home: Home) -> frozenset[int]:
    users = {os.geteuid()}
    with contextlib.suppress(OSError):
        users.add(home.path.stat().st_uid)
    if os.geteuid() == 0:
        for name in (settings().run_as, settings().commands_run_as):
            with contextlib.suppress(KeyError):
                users.add(pwd.getpwnam(name).pw_uid)
    return frozenset(users)


def _owners(data: Path, otherwise: frozenset[int]) -> frozenset[int]:
    """The user of a server in `data`: the directory's owner, or any user of the home if it was deleted."""
    try:
        return frozenset({data.stat().st_uid})
    except OSError:
        return otherwise


# Processes that cannot be inspected, are gone or are zombies do not count.


def _is_server(process: psutil.Process, directories: Mapping[str, frozenset[int]]) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        program = Path(process.exe().removesuffix(GONE)).name
        return program in SERVERS and _user(process) in directories.get(process.cwd().removesuffix(GONE), ())
    return False


def mark(process: psutil.Process, name: str = MARK) -> str | None:
    """The value of that variable in a process's environment; if it is hidden, the home in its command line.

    A part that is a fork shows the environment and command line of its supervisor, but has a process name of its own.
    """
    with contextlib.suppress(psutil.Error, OSError):
        if process.name().startswith(PREFIX) and name == MARK:
            supervised = process_privacy.marked_home(process.cmdline(), process_privacy.SUPERVISOR)
            if supervised is not None:
                return supervised
        try:
            return process.environ().get(name)  # type: ignore[no-any-return]
        except psutil.AccessDenied:
            return process_privacy.marked_home(process.cmdline())
    return None


def _user(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error):
        return int(process.uids().real)
    return None


def end_all(home: Home, data: Iterable[Path]) -> bool:
    """Stop every process of this home, and those they started meanwhile. Returns whether there was any.

    Raises `ServerFault` if some survive SIGKILL (for example, stuck in the kernel).
    """
    places = list(data)
    for round_number in range(ROUNDS):
        left = of_home(home, places)
        if not left:
            return round_number > 0
        end(left)
    raise ServerFault(f"these processes of {home.path} cannot be stopped: {[process.pid for process in left]}")


def end(found: list[psutil.Process]) -> None:
    """Ask the processes to stop, then kill those that are left. Returns when none of them runs."""
    for process in found:
        if first := _first_signal(process):
            _signal(process, first)
    _, stubborn = psutil.wait_procs(found, timeout=POLITE_SECONDS)
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=POLITE_SECONDS)


def end_backends(data: Path) -> None:
    """Stop the backends that a killed postmaster left in `data`, and delete its pid file.

    Its shared memory stays in use until the last backend is gone, and no postmaster can start before. Idle backends
    end by themselves; a backend inside a long statement does not.
    """
    directory = {str(data): _owners(data, frozenset())}
    orphans = [process for process in psutil.process_iter() if _is_server(process, directory)]
    for orphan in orphans:
        _signal(orphan, signal.SIGQUIT)
    _, stubborn = psutil.wait_procs(orphans, timeout=1.0)
    for orphan in stubborn:
        _signal(orphan, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=POLITE_SECONDS)
    # No server runs in `data` now. The pid in the file may by now belong to another process, which PostgreSQL would
    # take for a live postmaster (the usual case in a container, where pids start over).
    (data / "postmaster.pid").unlink(missing_ok=True)


def _is_of_a_pool(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        node = process.parent()
        return node is not None and process.name().startswith(PREFIX) and node.name() == process.name()
    return False


def _first_signal(process: psutil.Process) -> signal.Signals | None:
    """What asks a process to stop; None: it stops when another does, and must not be asked itself."""
    if _is_of_a_pool(process):
        return None  # its node ends it, and finishes or ends its current work first
    words: list[str] = []
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
    program = Path(words[0]).name if words else ""
    if program == "postgres" and STANDALONE.intersection(words[1:2]):
        return None  # it ends with initdb; a signal would end it before it has deleted its shared memory
    return FIRST_SIGNALS.get(program, signal.SIGTERM)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # `end_all` reports processes that stay
        process.send_signal(number)
