"""What `interlock` starts: asks the fork server of the home to run the command, or else runs it itself.

Most of a command's time goes into importing its modules. The fork server (`server.py`, a part of `interlock up`) has
imported them already; its fork takes over this process's arguments, environment, directory and streams. This process
then waits and forwards signals. Whenever a fork could not behave exactly like this process (nothing is running, another
version, a sandbox, a closed stream), this process runs the command. It imports only a few light modules of Python.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from types import FrameType

from interlock.cli import COMPLETING
from interlock.cli.fork_server.confinement import is_alike

NOT_FORKED = frozenset({"up", "down", "migrate", "backup", "restore", "metrics"})  # they start, stop or are servers
SOCKET = "commands.sock"  # in the home's `run`
READY = b"?"
STARTED = b"+"
# Sent by the launcher after STARTED. If it is not sent, the launcher runs the command itself and the fork must not.
GO = b"!"
ANSWER_SECONDS = 10  # then the fork server is taken for stuck
STREAMS = 3
LENGTH_BYTES = 4
# Other variables that begin with PYTHON change how Python itself starts, which a fork has behind it. PYTHON is make's.
HARMLESS = {"PYTHON", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP, so that a stopped command is continued, too
LOST = "the process that ran this command was killed before its end; what it had committed stays"


def main() -> None:
    """Run the command line; never returns."""
    try:
        with contextlib.suppress(OSError):
            if started := ask(sys.argv[1:]):
                sys.exit(_follow(*started))
    except KeyboardInterrupt:
        sys.exit(130)  # as shells report SIGINT
    from interlock.cli.main import main as command  # noqa: PLC0415 - slow, and not needed if a fork has run it

    command()


def ask(words: list[str]) -> tuple[socket.socket, int] | None:
    """Ask the fork server to run a command with this process's environment, directory and streams.

    Returns the connection, which will carry the exit code as one byte, and the fork's pidfd (pidfd_open(2)); None if
    this process must run the command. Raises OSError if there is no fork server.
    """
    named = words[0] if words else os.environ.get(COMPLETING)  # which, a shell that completes, has no words
    if sys.platform != "linux" or not named or named in NOT_FORKED or not _is_plain(words):
        return None
    with contextlib.ExitStack() as either_way:
        connection = either_way.enter_context(socket.socket(socket.AF_UNIX))
        _limit(connection, ANSWER_SECONDS)
        _connect(connection)
        if connection.recv(1) != READY:  # before it has our streams: what waits for a stuck server stays open
            return None
        here = os.open(".", os.O_PATH | os.O_DIRECTORY)
        either_way.callback(os.close, here)
        request = json.dumps(_described(words)).encode()
        socket.send_fds(connection, [len(request).to_bytes(LENGTH_BYTES, "big")], [*range(STREAMS), here])
        connection.sendall(request)
        answer, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if answer != STARTED:
            return None
        connection.sendall(GO)
        _limit(connection, 0)
        return connection.dup(), descriptors[0]


@contextlib.contextmanager
def address(directory: str | os.PathLike[str]) -> Iterator[str]:
    """The path of the fork server's socket in a directory, by way of a descriptor: it may have 107 bytes only."""
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


def code() -> list[object]:
    """Which Python and which installation of Interlock this process runs: its fork must run the same."""
    import interlock  # noqa: PLC0415 - for its path

    found = os.stat(interlock.__file__)
    return [sys.version, sys.prefix, interlock.__file__, found.st_ino, found.st_mtime_ns]


def _is_plain(words: list[str]) -> bool:
    """Whether this process has no option, stream or inherited file that a fork of another process cannot have."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return (
        all(stream is not None and stream.encoding.lower() == "utf-8" for stream in streams)
        and not any(name.startswith("PYTHON") and name not in HARMLESS for name in os.environ)
        and not any("/fd/" in word for word in words)  # a file that only this process has open, as bash's `<(…)`
        and sys.gettrace() is None
    )


def _limit(connection: socket.socket, seconds: int) -> None:
    """Let the kernel end calls with `BlockingIOError` after that time; 0: never. It counts for connect(2), too."""
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def _connect(connection: socket.socket) -> None:
    home = next((value for name, value in os.environ.items() if name.upper() == "INTERLOCK_HOME"), ".interlock")
    with address(os.path.join(home, "run")) as socket_path:
        connection.connect(socket_path)
    if not is_alike(connection):
        raise PermissionError("the server is another user's or confined, and must not see this environment")


def _described(words: list[str]) -> dict[str, object]:
    return {
        "words": words,
        "environment": dict(os.environ),
        "path": sys.path,
        "errors": [stream.errors for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "unbuffered": bool(os.environ.get("PYTHONUNBUFFERED")),
        "code": code(),
    }


def _follow(connection: socket.socket, command: int) -> int:
    """Wait until the command ends, forwarding signals; returns its exit code."""
    sent: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        sent.append(number)
        _signal(command, number)

    def stop(number: int, _frame: FrameType | None) -> None:
        _signal(command, signal.SIGSTOP)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # not SIGSTOP: where no shell could continue it, the kernel does not stop it
        signal.signal(number, stop)
        _signal(command, signal.SIGCONT)

    for number, handler in {**dict.fromkeys(FORWARDED, forward), signal.SIGTSTP: stop}.items():
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    if ended := connection.recv(1):
        return ended[0]
    for last in sent[-1:]:  # it ended the command, so it ends this process as well
        signal.signal(last, signal.SIG_DFL)
        os.kill(os.getpid(), last)
    from interlock.cli.lib.output import FAILED, fail  # noqa: PLC0415 - slow, and rare

    return fail("CommandLost", LOST, FAILED, as_json="--json" in sys.argv)


def _signal(command: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(command, number)


if __name__ == "__main__":
    main()
