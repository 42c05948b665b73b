"""A module of definitions that writes down what the process which imports it is, for test_fork_server."""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time

WORKFLOWS: dict[str, object] = {}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)


def _stream(name: str) -> list[object] | None:
    stream = getattr(sys, name)
    return stream and [
        stream.encoding,
        stream.errors,
        stream.line_buffering,
        stream.write_through,
        stream.isatty(),
        type(stream.buffer).__name__,
    ]


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _handed_down() -> list[int]:
    """Descriptors that a program which we start would get."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.get_inheritable(number) and number > 2:
                found.append(number)
    return found


def described() -> dict[str, object]:
    return {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "directory": os.readlink("/proc/self/cwd"),
        "path": sys.path,
        "umask": _umask(),
        "limits": {
            name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"
        },
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": sorted(os.sched_getaffinity(0)),
        "streams": {name: _stream(name) for name in ("stdin", "stdout", "stderr")},
        "signals": {each.name: str(signal.getsignal(each)) for each in SIGNALS},
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "users": [os.getresuid(), os.getresgid(), os.getgroups()],
        "zone": time.tzname,
        "temporary": tempfile.gettempdir(),
        "handed down": _handed_down(),
    }


if report := os.environ.get("PROBE"):
    with open(report, "w") as _file:
        json.dump({"parent": os.getppid(), "pid": os.getpid(), **described()}, _file, default=str)
