"""Runs the git command line with our own arguments and environment, a time limit, and a limit on the output.

The command line rather than a binding: no binding has all of `git apply`, `worktree` and `bundle` (pygit2 has no
three-way apply, GitPython runs the same commands), and git refuses here what it would refuse to the user as well.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from interlock.workers.execution.process import ShimLost
from interlock.workers.isolation.apart import OURSELVES, Isolation
from interlock.workers.system.users import spawn_options
from interlock.workflows.errors import InterlockError

TIMEOUT_SECONDS = 300.0
ANSWER_BYTES = 64 * 1024 * 1024
WORDS = 4_000
STALE_LOCK_SECONDS = 60.0
STRAINED = re.compile(
    r"^fatal: Out of memory|: (?:No space left on device|Disk quota exceeded|Cannot allocate memory|Input/output error"
    r"|Too many open files|Resource temporarily unavailable)$",
    re.MULTILINE,
)
LOCKED = re.compile(r"Unable to create '(?P<path>[^']+\.lock)': File exists")

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.protectHFS": "true",  # names that some file system takes for .git are refused on every system
    "core.protectNTFS": "true",
    "core.filesRefLockTimeout": "2000",
    "core.packedRefsTimeout": "2000",
    "commit.gpgSign": "false",
    "gc.auto": "0",  # it would outlive us in the background, and keep our lock
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "all",  # looking into a submodule runs git there, with that repository's configuration
    "status.submoduleSummary": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.sshCommand": "false",
    "log.showSignature": "false",  # it would run the program that the repository names as gpg
    "gpg.program": "/bin/false",
    "merge.verifySignatures": "false",
    "credential.helper": "",
}


class GitFault(InterlockError):
    """Git failed unexpectedly; the message holds its own words. Repair what they name, then try again: a retry
    completes anything that was half done."""


@dataclass(frozen=True, slots=True)
class GitResult:
    """Git's answer: its exit status, its output, and its error messages."""

    status: int
    out: bytes
    err: str

    @property
    def words(self) -> str:
        """Its messages, shortened for use as a reason."""
        return (self.err.strip() or self.out.decode(errors="replace").strip())[:WORDS]


@dataclass(frozen=True, slots=True)
class Git:
    """Git in one directory.

    `keep`: descriptors of locks we hold. Git inherits them, so that if we die the lock lasts until git has ended.
    `extra`: more environment variables. `isolation`: who it runs as and, for files that commands may change meanwhile,
    its sandbox.
    """

    directory: Path
    keep: tuple[int, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS
    isolation: Isolation = OURSELVES

    def run(self, *arguments: str, stdin: bytes | Path = b"", accept: tuple[int, ...] | None = (0,)) -> GitResult:
        """Run one command.

        Args:
            arguments: the subcommand and its arguments, never through a shell.
            stdin: its standard input, as bytes or as a file.
            accept: the exit statuses that are answers (None: all); others are faults.

        Raises:
            GitFault: another status, git is missing, was killed, ran out of time, disk or memory, or printed more
                than `ANSWER_BYTES`.
        """
        result = self._once(arguments, stdin)
        if result.status != 0 and self.keep and self.isolation.account is None and _cleared(result):
            result = self._once(arguments, stdin)
        return self._accepted(arguments[0], result, accept)

    def run_all(self, *commands: Sequence[str], accept: tuple[int, ...] | None = (0,)) -> GitResult:
        """Run commands one after another, up to the first that fails; the answer of the last one run.

        In a sandbox, they share one, which takes ten times as long to make as a command takes, and its answer has the
        output of all. Raises as `run`.
        """
        if not self.isolation.bubblewrap:
            return [self.run(*each, accept=accept) for each in commands][-1]
        script = " && ".join(shlex.join(self._words(each)) for each in commands)
        patient = replace(self, timeout_seconds=self.timeout_seconds * len(commands))
        names = ", git ".join(dict.fromkeys(each[0] for each in commands))
        return self._accepted(names, patient._in_sandbox(names, ["/bin/sh", "-c", script]), accept)

    def _accepted(self, command: str, result: GitResult, accept: tuple[int, ...] | None) -> GitResult:
        failed = result.status == -signal.SIGKILL or (result.status != 0 and STRAINED.search(result.err))
        if failed or (accept is not None and result.status not in accept):
            raise GitFault(f"git {command} in {self.directory} ended with {result.status}: {result.words}")
        return result

    def line(self, *arguments: str) -> str:
        """The one line that a command prints."""
        return os.fsdecode(self.run(*arguments).out).removesuffix("\n")

    def records(self, *arguments: str) -> tuple[str, ...]:
        """The strings between NULs that a command prints with `-z`."""
        return split(self.run(*arguments).out)

    def at(self, directory: Path) -> "Git":
        """Git in a checkout of the user's, under the configuration found there; with the same locks."""
        return Git(directory, self.keep, timeout_seconds=self.timeout_seconds)

    def holding(self, lock: int) -> "Git":
        """The same git, with one more lock to keep."""
        return replace(self, keep=(*self.keep, lock))

    def with_environment(self, **environment: str) -> "Git":
        """The same git, with more environment variables."""
        return replace(self, extra={**self.extra, **environment})

    def _once(self, arguments: tuple[str, ...], stdin: bytes | Path) -> GitResult:
        if self.isolation.bubblewrap:
            assert not stdin
            return self._in_sandbox(arguments[0], self._words(arguments))
        with _fed(stdin) as feed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            status = self._wait(self._start(arguments, feed, out, err), arguments[0])
            if out.seek(0, os.SEEK_END) > ANSWER_BYTES:
                raise self._too_long(arguments[0])
            out.seek(0)
            err.seek(0)
            return GitResult(status, out.read(), err.read(WORDS * 4).decode(errors="replace"))

    def _in_sandbox(self, command: str, words: list[str]) -> GitResult:
        try:
            ended = self.isolation.run(
                words,
                self.directory,
                self._environment(),
                timeout_seconds=self.timeout_seconds,
                output_limit_bytes=ANSWER_BYTES,
                keep=self.keep,
            )
        except (ShimLost, OSError) as error:
            raise GitFault(f"git {command} in {self.directory}: {error}") from error
        if not ended.started:
            raise self._cannot_run(command, ended.reason)
        if ended.timed_out:
            raise self._too_slow(command)
        if ended.stdout_truncated_bytes:
            raise self._too_long(command)
        status = ended.exit_code if ended.signal is None else -ended.signal
        return GitResult(status, ended.stdout.encode(), ended.stderr[: WORDS * 4])

    def _words(self, arguments: Sequence[str]) -> list[str]:
        return ["git", *(word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")), *arguments]

    def _cannot_run(self, command: str, why: object) -> GitFault:
        return GitFault(f"git {command} cannot be run in {self.directory}: {why}")

    def _too_slow(self, command: str) -> GitFault:
        return GitFault(f"git {command} in {self.directory} took longer than {self.timeout_seconds:g} s")

    def _too_long(self, command: str) -> GitFault:
        return GitFault(f"git {command} in {self.directory} printed more than {ANSWER_BYTES} bytes")

    def _start(
        self, arguments: tuple[str, ...], feed: IO[bytes], out: IO[bytes], err: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        dropped: dict[str, Any] = spawn_options(self.isolation.account)
        try:
            return subprocess.Popen(
                self._words(arguments),
                cwd=self.directory,
                env=self._environment(),
                stdin=feed,
                stdout=out,
                stderr=err,
                pass_fds=self.keep,
                umask=~self.directory.stat().st_mode & 0o077,  # its files are as open to others as its directory
                process_group=0,  # so that a time limit ends git's own children too
                **dropped,
            )
        except OSError as error:
            raise self._cannot_run(arguments[0], error) from error

    def _wait(self, process: "subprocess.Popen[bytes]", command: str) -> int:
        try:
            return process.wait(self.timeout_seconds)
        except BaseException as interrupted:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(interrupted, subprocess.TimeoutExpired):
                raise self._too_slow(command) from None
            raise

    def _environment(self) -> dict[str, str]:
        # Only PATH is the caller's: GIT_DIR, a pager or a credential helper would change answers.
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
            "GIT_OPTIONAL_LOCKS": "0",  # a read-only command in the user's checkout must not write its index
            "GIT_AUTHOR_NAME": "Interlock",
            "GIT_AUTHOR_EMAIL": "interlock@localhost",
            "GIT_COMMITTER_NAME": "Interlock",
            "GIT_COMMITTER_EMAIL": "interlock@localhost",
            **self.extra,
        }


@contextlib.contextmanager
def _fed(stdin: bytes | Path) -> Iterator[IO[bytes]]:
    if isinstance(stdin, Path):
        with stdin.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as feed:
        feed.write(stdin)
        feed.seek(0)
        yield feed


def split(answer: bytes) -> tuple[str, ...]:
    """The strings between NULs, without the empty ones."""
    return tuple(os.fsdecode(each) for each in answer.split(b"\0") if each)


def _cleared(result: GitResult) -> bool:
    """Whether git failed because of a stale lock file of a killed process, which is now removed.

    Git holds its lock files for milliseconds. A recent one may belong to the user's own git: that is a fault, to be
    retried.
    """
    if (found := LOCKED.search(result.err)) is None:
        return False
    lock = Path(found["path"])
    with contextlib.suppress(OSError):
        if time.time() - lock.stat().st_mtime > STALE_LOCK_SECONDS:
            lock.unlink()
            return True
    return False
