"""Runs a command to its end, seen from the process that started it: its shim, its output, its end."""

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from signal import SIGKILL

from interlock.workers.execution.command import MARK, Command, order
from interlock.workers.execution.output import Capture
from interlock.workers.execution.result import Finished, finished
from interlock.workers.execution.shim_events import CANCEL
from interlock.workers.execution.shim_protocol import packed, unpacked
from interlock.workers.system.process_privacy import SUPERVISED, marked
from interlock.workflows.errors import InterlockError

_CHUNK_BYTES = 1 << 16
_DRAIN_CHUNKS = 16  # the most that a pipe holds, unless root enlarged it
SHIMS = ("LD_LIBRARY_PATH", SUPERVISED)  # of our environment; the rest holds secrets, and the shim needs none
PACKAGES = str(Path(__file__).parents[3])
BARE = ("-I", "-S", "-X", "utf8")  # no site-packages, nothing of the user's: starts in half the time
# Our directory is last on the path, so that it hides nothing of the standard library.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from interlock.workers.execution.shim import main; main(sys.argv[2:])"
)


class ShimLost(InterlockError):
    """A command's shim died (out of memory? killed?), so how the command ended is not known.

    The command was killed, with all processes that have its mark. Try again; if it repeats, look for the kernel's OOM
    messages.
    """


class Running:
    """One command with its shim, and the output of both so far."""

    def __init__(self, control: socket.socket, outputs: dict[int, Capture], mark: str) -> None:
        self.ended = False
        self._control = control
        self._outputs = outputs
        self._mark = mark
        self._reports = bytearray()
        self._selector = selectors.DefaultSelector()
        for stream in (control.fileno(), *outputs):
            self._selector.register(stream, selectors.EVENT_READ)

    def tend(self, seconds: float) -> None:
        """Read output for `seconds`, or until the command has ended."""
        until = time.monotonic() + seconds
        while not self.ended and (left := until - time.monotonic()) > 0:
            for ready, _ in self._selector.select(left):
                self._take(ready.fd)

    def _take(self, stream: int) -> None:
        data = _read(stream)
        if stream in self._outputs:
            self._outputs[stream].take(data)
        else:
            self._reports += data
            self.ended = not data  # the shim has ended, and it ends last
        if not data:
            self._selector.unregister(stream)

    def cancel(self) -> None:
        """End the process tree: SIGTERM, then SIGKILL after the grace period."""
        with suppress(ConnectionError):  # it is ending already
            self._control.send(CANCEL)

    def finished(self) -> Finished:
        """How it ended. Raises `ShimLost`."""
        reports = BytesIO(self._reports)
        started = unpacked(reports) if self._reports else {}
        try:
            report = unpacked(reports)
        except EOFError:
            raise ShimLost(
                f"the process that watches the command died before the command ended{self._bury(started.get('pid'))}"
            ) from None
        self._drain()
        return finished(started["refusal"], report, *self._outputs.values())

    def _bury(self, leader: int | None) -> str:
        """Kill the processes that a dead shim left. Returns its output, if there is any."""
        if leader is not None:
            with suppress(ProcessLookupError):
                os.killpg(leader, SIGKILL)
        from interlock.workers.execution.orphans import end_marked  # noqa: PLC0415 - the client alone has no psutil

        end_marked(MARK, self._mark)
        self._drain()
        return "".join(f": {output}" for capture in self._outputs.values() if (output := capture.text().strip()))

    def _drain(self) -> None:
        """Read what is left in the pipes. Nobody writes any more, except a process that could not be killed."""
        for stream in self._outputs.keys() & self._selector.get_map().keys():
            os.set_blocking(stream, False)
            with suppress(BlockingIOError, KeyError):  # empty; at its end
                for _ in range(_DRAIN_CHUNKS):
                    self._take(stream)

    def close(self) -> None:
        """Close the connection to the shim, which then kills all that still runs."""
        self._selector.close()
        self._control.close()


def _read(stream: int) -> bytes:
    try:
        return os.read(stream, _CHUNK_BYTES)
    except ConnectionResetError:  # the shim ended before it read all our cancels; we have its reports
        return b""


def run(
    command: Command,
    *,
    on_tick: Callable[[], object] | None = None,
    cancelled: Callable[[], bool] | None = None,
    tick_seconds: float = 1.0,
    keep: tuple[int, ...] = (),
    into: Callable[[bytes], object] | None = None,
) -> Finished:
    """Run `command` and wait for the end of everything it started.

    Every way the command can end is a value: not found, refused, failed, timed out, killed. If an exception leaves this
    call (from `on_tick`, or Celery's time limit), or its process dies, the process tree is killed at once.

    Args:
        command: what to run.
        on_tick: called in this thread about every `tick_seconds`, for heartbeats or renewing a lease. Output waits
            while it runs; the command's own time limit does not depend on it.
        cancelled: called as often; once it returns True, the tree gets SIGTERM, and SIGKILL after the grace period.
        tick_seconds: the time between ticks.
        keep: descriptors, of locks, that the shim holds open until the tree is gone, even if this process dies.
        into: gets everything that the command writes to stdout and stderr, as it comes, with its secrets masked.

    Raises:
        BadInput: a word or variable of the command cannot be encoded.
        ShimLost: the shim was killed; the command is killed, its outcome unknown.
        OSError: this machine has no process or file descriptor left.
    """
    with running(command, keep, into) as process:
        next_tick = time.monotonic() + tick_seconds
        while not process.ended:
            process.tend(next_tick - time.monotonic())
            if not process.ended:
                next_tick = time.monotonic() + tick_seconds
                if on_tick:
                    on_tick()
                if cancelled and cancelled():
                    process.cancel()
        return process.finished()


@contextmanager
def running(
    command: Command, keep: tuple[int, ...] = (), into: Callable[[bytes], object] | None = None
) -> Iterator[Running]:
    """Start a command. Leaving the context ends it, and returns when its process tree is gone.

    The shim keeps the descriptors `keep`, which hold locks, open until then. `into` gets what the command writes.

    Raises:
        BadInput: a word or variable of the command cannot be encoded.
        OSError: this machine has no process or file descriptor left.
    """
    shim_order = order(command)
    packed_order, mark = packed(vars(shim_order)), os.fsdecode(shim_order.env[MARK.encode()])
    with ExitStack() as closing:
        parent_end, shim_end = socket.socketpair()
        closing.enter_context(parent_end)
        with shim_end:
            shim = closing.enter_context(_spawn(shim_end.fileno(), keep))
        limit = command.output_limit_bytes
        captures = {end.fileno(): Capture(limit, command.secrets, into) for end in (shim.stdout, shim.stderr) if end}
        process = Running(parent_end, captures, mark)
        closing.callback(process.close)  # entered last, so that the shim is told to end before we wait for it
        assert shim.stdin
        with suppress(BrokenPipeError), shim.stdin:  # if the shim is dead already, its missing report shows that
            shim.stdin.write(packed_order)
        yield process


def _spawn(control: int, keep: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    """Start a shim. Its stdout and stderr are the command's; in a session of its own it does not get our Ctrl-C."""
    mark = marked(os.environ[SUPERVISED]) if SUPERVISED in os.environ else ()
    return subprocess.Popen(
        [sys.executable, *BARE, *mark, "-c", _PROGRAM, PACKAGES, *map(str, (control, *keep))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: os.environ[name] for name in SHIMS if name in os.environ},
        pass_fds=(control, *keep),
        start_new_session=True,
    )
