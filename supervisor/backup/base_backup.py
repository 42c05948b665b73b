"""`pg_basebackup`: run it, report its progress, turn its errors into one line, and leave no process of it behind."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from interlock.supervisor.servers import postgres
from interlock.workers.system.uninterrupted import uninterrupted
from interlock.workflows.errors import InterlockError

ERROR = re.compile(rb"pg_basebackup: (?:error|detail|hint): (.*)")
DONE = re.compile(rb"(\d+)/(\d+) kB")
LIBPQ = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
}

Progress = Callable[[int, int], None]
"""Called with (done, total), in any unit."""


class BackupFailed(InterlockError):
    """A backup could not be taken, and nothing of it is left. The message is that of pg_basebackup."""


def copy(url: str, draft: Path, progress: Progress, lock: int) -> None:
    """Write a base backup into a new directory.

    Args:
        url: for libpq, with a role that has REPLICATION.
        draft: the directory.
        progress: called with kilobytes.
        lock: a descriptor that pg_basebackup inherits.

    Raises:
        BackupFailed: pg_basebackup failed, and says why.
    """
    parameters = conninfo_to_dict(url)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"} | {
        LIBPQ[name]: str(value) for name, value in parameters.items() if name in LIBPQ
    }
    command = [str(postgres.programs() / "pg_basebackup"), f"--pgdata={draft}", "--format=tar"]
    command += ["--compress=client-gzip:1", "--wal-method=stream", "--checkpoint=fast", "--progress", "--no-password"]
    line = b""
    errors: list[str] = []
    with contextlib.ExitStack() as ends:
        with uninterrupted():  # a process that nobody ends would go on writing into the draft
            group = ends.enter_context(_killed_with_us())
            process = ends.enter_context(
                subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, pass_fds=[lock], process_group=group)
            )
            ends.enter_context(_followed(process, group))
        assert process.stderr is not None  # it is a PIPE
        for line in _lines(process.stderr):
            if found := DONE.search(line):
                progress(int(found[1]), int(found[2]))
            elif found := ERROR.match(line):
                errors.append(found[1].decode(errors="replace").strip())
        process.wait()
    if process.returncode != 0:
        killed = f"pg_basebackup was ended by signal {-process.returncode}" if process.returncode < 0 else ""
        raise BackupFailed(_reason("; ".join(errors) or killed or line.decode(errors="replace").strip()))


@contextlib.contextmanager
def _followed(process: "subprocess.Popen[bytes]", group: int) -> Iterator[None]:
    """After a program's end, kill those it started: the log's receiver would go on for ever, and hold its output open.

    At the block's end the program is killed, unless it has ended; then none of them can write any more.
    """

    def follow() -> None:
        process.wait()
        os.killpg(group, signal.SIGKILL)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield
    finally:
        process.kill()
        follower.join()
        assert process.stderr is not None
        process.stderr.read()  # all of them hold it open


@contextlib.contextmanager
def _killed_with_us() -> Iterator[int]:
    """During a block, a process waits to kill its process group, which is yielded, should this process be killed.

    The process with which pg_basebackup receives the log would otherwise go on for ever, and hold the lock. So the
    group is there first: what joins it holds the pipe open until it has joined.
    """
    ends, held = os.pipe()
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", "read _; kill -KILL 0"],
            stdin=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    finally:
        os.close(ends)
    try:
        yield guard.pid
    finally:
        with uninterrupted():
            guard.kill()
            guard.wait()
            os.close(held)


def _reason(output: str) -> str:
    if "No space left" in output:
        return f"{output}. Make room there, or name another directory: interlock backup take DIR"
    if "FATAL" in output or "server version" in output:
        return (
            f"{output}. The role must be allowed to replicate and the server be PostgreSQL {postgres.MAJOR} or older; "
            "of a managed one, use the provider's own backups."
        )
    return output


def _lines(stream: Any) -> Iterator[bytes]:
    """A program's output, split at carriage returns and line ends."""
    held = b""
    while chunk := stream.read1(4096):
        *whole, held = re.split(rb"[\r\n]", held + chunk)
        yield from filter(None, whole)
    if held:
        yield held
