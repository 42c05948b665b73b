"""Run the git command line: our own arguments, our own environment, a time limit, and an answer that fits in memory.

The command line rather than a binding: `git apply`, `worktree` and `bundle` exist nowhere else complete (pygit2 has no
three-way apply, GitPython runs the same commands), and what git refuses here it would refuse to the user as well.
"""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from workflows.errors import InterlockError

TIMEOUT_SECONDS = 300.0
ANSWER_BYTES = 64 * 1024 * 1024
WORDS = 4_000
STALE_LOCK_SECONDS = 60.0
LOCKED = re.compile(r"Unable to create '(?P<path>[^']+\.lock)': File exists")

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.protectHFS": "true",  # names that some file system would take for .git are refused on every system
    "core.protectNTFS": "true",
    "core.filesRefLockTimeout": "2000",
    "core.packedRefsTimeout": "2000",
    "commit.gpgSign": "false",
    "gc.auto": "0",  # it would outlive us, in the background, with our lock in its hands
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}


class GitFault(InterlockError):
    """Git failed where nobody expected it; the message has its own words. Mend what they name, then let it be tried
    again: nothing was half done that a retry would not finish."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who stands in a commit as its author and committer."""

    name: str = "Interlock"
    email: str = "interlock@localhost"


@dataclass(frozen=True, slots=True)
class Said:
    """What git answered: its exit status, what it printed, and its complaints."""

    status: int
    out: bytes
    err: str

    @property
    def words(self) -> str:
        """All it said, as far as a reason needs it."""
        return (self.err.strip() or self.out.decode(errors="replace").strip())[:WORDS]


@dataclass(frozen=True, slots=True)
class Git:
    """Git in one directory.

    `keep` are the descriptors of locks we hold. Git inherits them: should we die, the lock lasts until git is done too.
    """

    directory: Path
    identity: Identity = Identity()
    keep: tuple[int, ...] = ()
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    timeout_seconds: float = TIMEOUT_SECONDS

    def run(self, *arguments: str, given: bytes = b"", accept: tuple[int, ...] | None = (0,)) -> Said:
        """Run one command.

        Args:
            arguments: the subcommand and its arguments, never through a shell.
            given: what it reads from standard input.
            accept: the exit statuses that are answers (None: all); others are faults.

        Raises:
            GitFault: another status, no git at all, out of time (seconds), or an answer over `ANSWER_BYTES`.
        """
        said = self._once(arguments, given)
        if said.status != 0 and self.keep and _cleared(said):
            said = self._once(arguments, given)
        if accept is not None and said.status not in accept:
            raise GitFault(f"git {arguments[0]} in {self.directory} ended with {said.status}: {said.words}")
        return said

    def line(self, *arguments: str) -> str:
        """The one line a command prints."""
        return os.fsdecode(self.run(*arguments).out).removesuffix("\n")

    def records(self, *arguments: str) -> tuple[str, ...]:
        """What a command prints with `-z`: strings between NULs."""
        return split(self.run(*arguments).out)

    def at(self, directory: Path) -> "Git":
        """The same git in another directory."""
        return replace(self, directory=directory)

    def holding(self, lock: int) -> "Git":
        """The same git, with one more lock to keep."""
        return replace(self, keep=(*self.keep, lock))

    def given(self, **environment: str) -> "Git":
        """The same git with more in its environment."""
        return replace(self, extra=MappingProxyType(dict(self.extra) | environment))

    def _once(self, arguments: tuple[str, ...], given: bytes) -> Said:
        with tempfile.TemporaryFile() as feed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            feed.write(given)
            feed.seek(0)
            status = self._wait(self._start(arguments, feed, out, err), arguments[0])
            if out.seek(0, os.SEEK_END) > ANSWER_BYTES:
                raise GitFault(f"git {arguments[0]} in {self.directory} printed more than {ANSWER_BYTES} bytes")
            out.seek(0)
            err.seek(0)
            return Said(status, out.read(), err.read(WORDS * 4).decode(errors="replace"))

    def _start(
        self, arguments: tuple[str, ...], feed: IO[bytes], out: IO[bytes], err: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        try:
            return subprocess.Popen(
                ["git", *settings, *arguments],
                cwd=self.directory,
                env=self._environment(),
                stdin=feed,
                stdout=out,
                stderr=err,
                pass_fds=self.keep,
                process_group=0,  # so that a time limit ends git's own children too
            )
        except OSError as error:
            raise GitFault(f"git {arguments[0]} cannot be run in {self.directory}: {error}") from error

    def _wait(self, process: "subprocess.Popen[bytes]", command: str) -> int:
        try:
            return process.wait(self.timeout_seconds)
        except BaseException as interrupted:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(interrupted, subprocess.TimeoutExpired):
                raise GitFault(
                    f"git {command} in {self.directory} took longer than {self.timeout_seconds:g} s"
                ) from None
            raise

    def _environment(self) -> dict[str, str]:
        # Nothing of the caller's but the way to programs: GIT_DIR, a pager or a credential helper would change answers.
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_EDITOR": "/bin/true",
            "GIT_PAGER": "cat",
            "GIT_OPTIONAL_LOCKS": "0",  # looking at the user's checkout must not write its index
            "GIT_AUTHOR_NAME": self.identity.name,
            "GIT_AUTHOR_EMAIL": self.identity.email,
            "GIT_COMMITTER_NAME": self.identity.name,
            "GIT_COMMITTER_EMAIL": self.identity.email,
            **self.extra,
        }


def split(answer: bytes) -> tuple[str, ...]:
    """The strings between NULs, without the empty ones."""
    return tuple(os.fsdecode(each) for each in answer.split(b"\0") if each)


def _cleared(said: Said) -> bool:
    """Whether git stumbled over a lock file that somebody killed left behind, now removed.

    Git holds its lock files for milliseconds. A young one may be the user's own git at work: a fault, to be retried.
    """
    if (found := LOCKED.search(said.err)) is None:
        return False
    lock = Path(found["path"])
    with contextlib.suppress(OSError):
        if time.time() - lock.stat().st_mtime > STALE_LOCK_SECONDS:
            lock.unlink()
            return True
    return False
