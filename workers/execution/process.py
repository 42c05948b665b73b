"""A command while it runs, seen from the process that asked: its warden, its output, its end."""

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from signal import SIGKILL

from workers.execution.capture import Capture
from workers.execution.command import Command, order
from workers.execution.ears import CANCEL
from workers.execution.finished import Finished, finished
from workers.execution.order import packed, unpacked
from workflows.errors import InterlockError

_CHUNK_BYTES = 1 << 16
_DRAIN_CHUNKS = 16  # the most that a pipe holds, unless root made it larger
_ROOT = Path(__file__).parents[2]
_BARE = ("-I", "-S", "-X", "utf8")  # no site-packages, nothing of the user's: starts in half the time
# Ours comes last on the path, so that it hides nothing of the standard library.
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from workers.execution.warden import main; main(int(sys.argv[2]))"


class WardenLost(InterlockError):
    """The process that watched a command died (out of memory? killed?), so how the command ended is not known.

    The command and its process group were killed. Try again; if it repeats, look for the kernel's OOM messages.
    """


class Running:
    """One command with its warden and what both have said so far."""

    def __init__(self, control: socket.socket, outputs: dict[int, Capture]) -> None:
        self.ended = False
        self._control = control
        self._outputs = outputs
        self._said = bytearray()
        self._selector = selectors.DefaultSelector()
        for stream in (control.fileno(), *outputs):
            self._selector.register(stream, selectors.EVENT_READ)

    def tend(self, seconds: float) -> None:
        """Take in what is said, for `seconds` or until the command has ended."""
        until = time.monotonic() + seconds
        while not self.ended and (left := until - time.monotonic()) > 0:
            for ready, _ in self._selector.select(left):
                self._take(ready.fd)

    def _take(self, stream: int) -> None:
        said = _read(stream)
        if stream in self._outputs:
            self._outputs[stream].take(said)
        else:
            self._said += said
            self.ended = not said  # the warden's end, and it is the last to go
        if not said:
            self._selector.unregister(stream)

    def cancel(self) -> None:
        """Have the tree ended: SIGTERM, the grace, SIGKILL."""
        with suppress(ConnectionError):  # it is ending already
            self._control.send(CANCEL)

    def finished(self) -> Finished:
        """How it ended. Raises `WardenLost`."""
        reports = BytesIO(self._said)
        started = unpacked(reports) if self._said else {}
        try:
            report = unpacked(reports)
        except EOFError:
            raise WardenLost(f"the warden of the command died before it did{self._bury(started.get('pid'))}") from None
        self._drain()
        return finished(started["refusal"], report, *self._outputs.values())

    def _bury(self, leader: int | None) -> str:
        """Kill what a dead warden left; what it had to say, if anything."""
        if leader is not None:
            with suppress(ProcessLookupError):
                os.killpg(leader, SIGKILL)
        self._drain()
        return "".join(f": {said}" for capture in self._outputs.values() if (said := capture.text().strip()))

    def _drain(self) -> None:
        """Take what lies in the pipes. Nobody writes any more, unless it could not be killed."""
        for stream in self._outputs.keys() & self._selector.get_map().keys():
            os.set_blocking(stream, False)
            with suppress(BlockingIOError, KeyError):  # empty; at its end
                for _ in range(_DRAIN_CHUNKS):
                    self._take(stream)

    def close(self) -> None:
        """Let go of the warden; it kills what still runs."""
        self._selector.close()
        self._control.close()


def _read(stream: int) -> bytes:
    try:
        return os.read(stream, _CHUNK_BYTES)
    except ConnectionResetError:  # the warden ended before it read all our cancels; what it said we have
        return b""


@contextmanager
def running(command: Command) -> Iterator[Running]:
    """Start a command; leaving the context ends it, and comes back when its tree is gone.

    Raises:
        BadInput: a word or variable of it cannot be encoded.
        OSError: this machine has no process or file descriptor left.
    """
    told = packed(vars(order(command)))
    with ExitStack() as closing:
        ours, theirs = socket.socketpair()
        closing.enter_context(ours)
        with theirs:
            warden = closing.enter_context(_spawn(theirs.fileno()))
        limit = command.output_limit_bytes
        begun = Running(ours, {end.fileno(): Capture(limit) for end in (warden.stdout, warden.stderr) if end})
        closing.callback(begun.close)  # entered last: the warden must hear of it before it is waited for
        _instruct(warden, told)
        yield begun


def _spawn(control: int) -> "subprocess.Popen[bytes]":
    """Start a warden. Its stdout and stderr are the command's; its session of its own spares it our Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, *_BARE, "-c", _PROGRAM, str(_ROOT), str(control)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(control,),
        start_new_session=True,
    )


def _instruct(warden: "subprocess.Popen[bytes]", told: bytes) -> None:
    assert warden.stdin
    with suppress(BrokenPipeError), warden.stdin:  # one that is dead already is found out by its silence
        warden.stdin.write(told)
