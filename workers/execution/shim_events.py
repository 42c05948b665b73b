"""The events that the shim waits for: a cancel, signals, and the end of the process that asked."""

import os
import select

from interlock.workers.execution.plain_signal import signal

CANCEL = b"c"
_LONGEST_SECONDS = 3600.0  # poll(2) counts milliseconds in 32 bits
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Events. No `Enum`: importing it takes a quarter of the shim's start-up time.
NOTHING = 0  # the time is up, or a child ended
CANCELLED = 1
ALONE = 2  # the process that asked is gone, so nobody reads the outcome


class EventSource:
    """One poll of the control socket, this process's signals, and the pidfd of the asking process.

    The end of that process also closes the socket, unless a fork of it holds a copy; hence the pidfd, where available.
    """

    def __init__(self, control: int, asking: int) -> None:
        self._control = control
        self._signals = _woken_by_signals()
        self._asking = _pidfd(asking)
        self._poll = select.poll()
        for ear in (self._control, self._signals, self._asking):
            if ear is not None:
                self._poll.register(ear, select.POLLIN)

    def next_event(self, seconds: float) -> int:
        """Wait for an event, for at most `seconds` or an hour."""
        ready = {ear for ear, _ in self._poll.poll(min(seconds, _LONGEST_SECONDS) * 1000)}
        command = self._read_control() if self._control in ready else None
        if self._asking in ready or command == b"":
            self._forget()
            return ALONE
        signals = os.read(self._signals, 4096) if self._signals in ready else b""
        asked_to_end = any(number != signal.SIGCHLD for number in signals)
        return CANCELLED if asked_to_end or command == CANCEL else NOTHING

    def _read_control(self) -> bytes:
        try:
            return os.read(self._control, 1)
        except ConnectionResetError:  # the other end was closed before our first report was read
            return b""

    def _forget(self) -> None:
        """Wait for signals only from now on: the end of the process that asked would be reported again and again."""
        for ear in (self._control, self._asking):
            if ear is not None:
                self._poll.unregister(ear)
        self._asking = None


def _woken_by_signals() -> int:
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)  # a default action would end us, and ignored signals do not wake us
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # nor do signals that our parent had blocked
    return woken


def _pidfd(pid: int) -> int | None:
    """The pidfd of a process; None if unavailable (not Linux, or older than 5.3) or if the process is gone."""
    try:
        opened = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    return opened if os.getppid() == pid else None
