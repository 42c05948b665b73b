"""A process that relays into a journal in children which die by SIGKILL: at their N-th system call, or after a time.

Lines on standard input: `call N BEFORE|HALF|AFTER` or `time SECONDS`; on standard output, how each child ended. Only
a write has a half: whoever is to end within another call ends after it.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from interlock.workers.relay.journal import Journal
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings

CALLS = ("write", "fsync", "rename", "ftruncate", "open", "close", "fchmod")
MAX_BYTES = 4_000  # so that parts are set aside all the time


def main(directory: Path) -> None:
    with closing(Runtime(Settings())) as runtime:
        with runtime.database.connect():
            pass  # so that no child need import what a connection takes, nor ask what server this is
        runtime.database.dispose()  # or all children would talk over that one connection
        gc.freeze()
        for line in sys.stdin:
            how, number, *where = line.split()
            pid = os.fork()
            if pid == 0:
                _relay(runtime, directory, how, float(number), where[0] if where else "")
            _, status = os.waitpid(pid, 0)
            print("killed" if os.WIFSIGNALED(status) else f"ended {os.WEXITSTATUS(status)}", flush=True)


def _relay(runtime: Runtime, directory: Path, how: str, number: float, where: str) -> None:
    with runtime.database.connect():
        pass  # connecting takes longer than all that follows
    if how == "call":
        _die_at_call(int(number), where)
    else:
        threading.Timer(number, _die).start()
    while True:
        relay(runtime.database, [Journal(directory, max_bytes=MAX_BYTES, daily=True)])
        if how == "call":
            os._exit(0)


def _die_at_call(number: int, where: str) -> None:
    left = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and where == "BEFORE":
                _die()
            if left[0] == 0 and where == "HALF" and real is write:
                write(given[0], given[1][: len(given[1]) // 2])
                write(1, b"half ")
                _die()
            answer = real(*given)
            if left[0] == 0:
                _die()
            return answer

        return call

    write = os.write
    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
