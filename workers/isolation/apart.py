"""Runs programs of our own on files that commands can change, isolated from this machine as commands are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run
from interlock.workers.execution.result import Finished
from interlock.workers.sandbox.sandbox import Bubblewrap, Sandbox, View
from interlock.workers.system.users import Account


@dataclass(frozen=True, slots=True)
class Isolation:
    """How such programs are isolated.

    Attributes:
        account: the user that they run as; None: our own.
        bubblewrap: makes their sandbox; None: they have none.
        programs: directories of programs, beside `/usr`.
        mark: their owner, as `Command.mark`.
        reads: what they see beside programs; only in a sandbox.
        writes: what they may change; only in a sandbox.
    """

    account: Account | None = None
    bubblewrap: Bubblewrap | None = None
    programs: tuple[Path, ...] = ()
    mark: str = ""
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()

    def run(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        *,
        timeout_seconds: float,
        output_limit_bytes: int,
        keep: tuple[int, ...] = (),
    ) -> Finished:
        """Run a program in its sandbox, and wait for the end of everything it started. Only with `bubblewrap`.

        Args:
            argv: the program and its arguments.
            cwd: its directory, which must be visible in the sandbox.
            env: its environment.
            timeout_seconds: its time limit.
            output_limit_bytes: how much of its stdout and of its stderr is kept.
            keep: descriptors of locks that last until it has ended, even if we die.

        Raises:
            ShimLost, OSError: try again.
        """
        assert self.bubblewrap
        command = Command(
            argv=tuple(argv),
            cwd=cwd,
            env=env,
            timeout_seconds=timeout_seconds,
            output_limit_bytes=output_limit_bytes,
            account=self.account,
            sandbox=Sandbox(self.bubblewrap, View(stores=self.reads, places=self.writes), self.programs),
            mark=self.mark,
        )
        return run(command, keep=keep)


OURSELVES = Isolation()
