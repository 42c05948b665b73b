"""Start a supervisor in the background, and stop one started anywhere."""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence

from interlock.supervisor import orphans
from interlock.supervisor.environment import DIRECTORY, PYTHON, UMASK, environment
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes import lock
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.processes.process import open_log, tail
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from interlock.workflows.errors import AlreadyRunning, BadInput, ServerFault

READY_SECONDS = 60.0
STOP_SECONDS = 60.0

Progress = Callable[[], None]
"""Called about ten times a second while waiting."""


def launch(
    settings: Settings,
    *,
    without: Collection[str] = (),
    prepare: Sequence[str] = (),
    tether: int | None = None,
    ephemeral: bool = False,
    inherits: Sequence[int] = (),
    progress: Progress = lambda: None,
) -> subprocess.Popen[bytes]:
    """Start a supervisor in its own session and return it once all its parts are ready.

    `tether`: the supervisor stops when the other end of this pipe closes. `ephemeral`: it deletes the home's data when
    it stops. `inherits`: descriptors that it keeps open until its end. Raises `AlreadyRunning`, or `ServerFault` with
    the supervisor's message if a part is not ready in 60 s.
    """
    home = home_of(settings)
    home.create()
    if lock.holder(home) is not None:
        raise AlreadyRunning(lock.already(home))
    report_reader, report_writer = os.pipe()
    passed = [report_writer, *inherits, *([] if tether is None else [tether])]
    options = ["--without", ",".join(without), "--prepare", shlex.join(prepare), "--report", str(report_writer)]
    options += ["--tether", str(tether)] if tether is not None else []
    options += ["--ephemeral"] if ephemeral else []
    try:
        with open_log(home.log("supervisor")) as log:
            process = subprocess.Popen(
                [
                    *PYTHON,
                    *process_privacy.marked(home.path, process_privacy.SUPERVISOR),
                    "-m",
                    "interlock.supervisor",
                    *options,
                ],
                env=environment(settings),
                cwd=DIRECTORY,
                umask=UMASK,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
                start_new_session=True,
            )
        os.close(report_writer)
        _until_ready(home, process, report_reader, progress)
    finally:
        os.close(report_reader)
    return process


def _until_ready(home: Home, process: subprocess.Popen[bytes], report_reader: int, progress: Progress) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not select.select([report_reader], [], [], 0.1)[0]:
        progress()
        if time.monotonic() > deadline:
            process.terminate()
            process.wait()
            log = home.log("supervisor")
            raise ServerFault(f"not ready after {READY_SECONDS:.0f} s:\n{tail(log)}\nMore in {log.parent}")
    message = json.loads(os.read(report_reader, 65_536) or "{}")
    if message.get("ready"):
        return
    process.wait()
    error = message.get("error") or f"the supervisor ended: {tail(home.log('supervisor'))}"
    if message.get("kind") == AlreadyRunning.__name__:
        raise AlreadyRunning(error)
    raise (BadInput if message.get("refused") else ServerFault)(error)


def stop(settings: Settings, progress: Progress = lambda: None) -> bool:
    """Stop the supervisor of this home and all its remaining processes. Returns whether there were any."""
    home = home_of(settings)
    pid = lock.holder(home)
    if pid is not None:
        _stop_supervisor(home, progress)
    strays_left = orphans.end_all(home, data_places(home))
    return pid is not None or strays_left


def _stop_supervisor(home: Home, progress: Progress) -> None:
    """Send SIGTERM, and SIGKILL after 60 s."""
    started_at, signalled = time.monotonic(), False
    while (pid := lock.holder(home)) is not None:
        if pid and not signalled:  # 0: it is just starting and has not written its pid into the lock
            signalled = _signal(pid, signal.SIGTERM)
        if pid and time.monotonic() - started_at > STOP_SECONDS:
            _signal(pid, signal.SIGKILL)
        progress()
        time.sleep(0.1)


def _signal(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True
