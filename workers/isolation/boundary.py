"""How commands are isolated from this machine, as far as it allows that: found by a test run, never guessed."""

import os
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run
from interlock.workers.isolation.apart import Isolation
from interlock.workers.sandbox.sandbox import Bubblewrap, Sandbox, View, candidates
from interlock.workers.settings import OUTSIDE, Settings
from interlock.workers.system.users import Account, commands_account
from interlock.workflows.errors import BadInput

TRIAL_SECONDS = 20.0
AGAIN_SECONDS = 60.0  # after a failure for lack of memory or of a namespace, test again
NEVER = float("inf")
MACHINE = ("/proc", "/sys", "/dev")
CURE = "docs/sandbox.md; or INTERLOCK_SANDBOX=off, if no sandbox is wanted"


@dataclass(frozen=True)
class Boundary:
    """The isolation in force for commands here.

    Attributes:
        account: the user that they run as; None: our own.
        bubblewrap: makes their sandbox; None: they have none.
        why: why they have none.
    """

    account: Account | None
    bubblewrap: Bubblewrap | None
    why: str = ""

    def __str__(self) -> str:
        user = f"as {self.account.name}" if self.account else "as the user who runs Interlock"
        if self.bubblewrap:
            return f"in a sandbox (bubblewrap), {user}"
        return f"without a sandbox, {user}: {self.why}"


_known: dict[Account | None, tuple[Boundary, float]] = {}


def boundary(settings: Settings) -> Boundary:
    """The isolation that is possible here and that the settings want.

    Raises `BadInput` if root would have to run commands as root.
    """
    account = commands_account(settings)
    if settings.sandbox == "off":
        return Boundary(account, None, "INTERLOCK_SANDBOX is off")
    found, until = _known.get(account, (None, 0.0))
    if found is None or time.monotonic() > until:
        found = _tried(account)
        _known[account] = found, NEVER if found.bubblewrap else time.monotonic() + AGAIN_SECONDS
    return found


def _tried(account: Account | None) -> Boundary:
    """The isolation by the first bubblewrap that can run a command in a sandbox."""
    reasons = []
    trial = Command(("/bin/sh", "-c", ":"), Path("/"), timeout_seconds=TRIAL_SECONDS, processes=16, account=account)
    for each in candidates():
        ended = run(replace(trial, sandbox=Sandbox(each)))
        if ended.succeeded():
            return Boundary(account, each)
        reasons.append(f"{each}: {' '.join(ended.reason.split())} {ended.stderr.strip()}".strip())
    why = "; ".join(reasons) or ("bubblewrap is not installed" if sys.platform == "linux" else "this is not Linux")
    return Boundary(account, None, why)


def isolated(command: Command, view: View, settings: Settings) -> Command:
    """The same command with the sandbox and the limits of this installation, as far as this machine allows.

    Raises `BadInput`, which says what to do: a required sandbox is not possible, the plan asks for a path that no
    command may see, or root would have to run the command as root.
    """
    found = boundary(settings)
    if found.bubblewrap is None and "require" in (settings.sandbox, view.mode):
        raise BadInput(f"a sandbox is required but not available: {found.why}. See {CURE}")
    writes = (*view.places, *((view.folder,) if view.folder else ()))
    bounded = replace(_bounded(command, settings), account=found.account, mark=mark(settings), writes=writes)
    if found.bubblewrap is None:
        return bounded
    hidden = secrets(settings)
    _check_folder(view.folder, [command.cwd], hidden)
    check_reads(view.plan_reads, hidden)
    _check_links(view, command.cwd, settings)
    if folder := view.folder and view.folder.resolve():
        view = replace(view, plan_reads=tuple(path for path in view.plan_reads if not path.is_relative_to(folder)))
    sandbox = Sandbox(found.bubblewrap, view, programs(settings), hidden, settings.command_tmp_bytes)
    return replace(bounded, sandbox=sandbox)


def as_commands(settings: Settings) -> Isolation:
    """The isolation for our own programs that work on commands' files. Raises as `boundary`."""
    found = boundary(settings)
    return Isolation(found.account, found.bubblewrap, programs(settings), mark(settings))


def mark(settings: Settings) -> str:
    """The mark in the environment of all processes of this installation's commands, before an id of each command."""
    return str(settings.home.absolute())


def programs(settings: Settings) -> tuple[Path, ...]:
    """Directories of programs that commands see beside `/usr`: our own Python, and those that the operator names."""
    return (Path(sys.base_prefix), Path(sys.prefix), *settings.sandbox_reads)


def secrets(settings: Settings) -> tuple[Path, ...]:
    """Directories that no command may see, except its own worktree: Interlock's data and keys, and others' work."""
    return (
        settings.home.absolute(),
        settings.worktrees_directory,
        settings.output_directory,
        settings.archive_directory,
        settings.state_directory,
        settings.signing_directory,
        settings.audit_directory,
        OUTSIDE,
    )


def check_reads(paths: Collection[Path], hidden: Collection[Path]) -> None:
    """Refuse paths that a plan may not list under `reads`.

    Raises `BadInput` if a path is missing, overlaps with a directory that no command may see, or is in /proc, /sys or
    /dev.
    """
    kept = [each.resolve() for each in hidden]
    if machine := [path for path in paths if _is_machines(path.resolve())]:
        raise BadInput(f"reads: {machine[0]} is in /proc, /sys or /dev, which no command may see")
    for path in paths:
        real = path.resolve()
        if not real.exists():
            raise BadInput(f"reads: there is no {path}")
        if any(real.is_relative_to(each) or each.is_relative_to(real) for each in kept):
            raise BadInput(f"reads: {path} is or contains a directory of Interlock itself, which no command may see")


def _check_links(view: View, cwd: Path, settings: Settings) -> None:
    """Refuse paths that commands could have led elsewhere since the plan was accepted, by a link where they may write.

    That is the plan's folder, and any in which plans of those who have no account here may have theirs (HTTP-20).
    """
    own = (view.folder,) if view.folder else ()
    for path in (*own, cwd, *view.plan_reads):
        if left_by_link(path, (*own, *settings.api_plan_folders)):
            raise BadInput(f"{path}: a link leads out of a folder in which commands may write. Name where it leads")


def left_by_link(path: Path, areas: Collection[Path]) -> bool:
    """Whether a path, followed part by part, leaves one of these directories by a link in it."""
    real, here = [each.resolve() for each in areas], Path("/")
    for part in path.absolute().parts[1:]:
        before, here = here, (here / part).resolve()
        if part != ".." and any(before.is_relative_to(each) and not here.is_relative_to(each) for each in real):
            return True
    return False


def _is_machines(real: Path) -> bool:
    in_memory = Path("/dev/shm") in real.parents  # noqa: S108 - plain files
    return not in_memory and any(real.is_relative_to(each) for each in MACHINE)


def check_folder(folder: Path, cwds: Collection[Path], settings: Settings) -> None:
    """Refuse a plan's folder in which its commands could not run here. Raises `BadInput`, which says what to do."""
    hidden = secrets(settings)
    if settings.sandbox != "off" and (_is_shared(folder) or _hidden(cwds, hidden)) and boundary(settings).bubblewrap:
        _check_folder(folder, cwds, hidden)


def _check_folder(folder: Path | None, cwds: Collection[Path], hidden: Collection[Path]) -> None:
    if folder is None:
        return
    if _is_shared(folder):
        raise BadInput(
            f"the plan's folder is {folder}: its commands could read and change everything there. "
            "Move the plan into a folder of its own"
        )
    if inside := _hidden(cwds, hidden):
        raise BadInput(
            f"a command of the plan would run in {inside[0]}, which is a directory of Interlock itself: no command may "
            "see it. Move the plan into a folder of its own"
        )


def _is_shared(folder: Path) -> bool:
    shared = [Path.home(), *map(Path, ("/home", "/root", "/usr", "/etc", "/tmp", "/var/tmp", "/run"))]  # noqa: S108
    return any(each.resolve().is_relative_to(folder.resolve()) for each in shared)


def _hidden(paths: Collection[Path], hidden: Collection[Path]) -> list[Path]:
    """Those of the paths that lie in directories that no command may see."""
    kept = [each.resolve() for each in hidden]
    return [path for path in paths if any(path.resolve().is_relative_to(each) for each in kept)]


def _bounded(command: Command, settings: Settings) -> Command:
    """The same command under the lower of its own limits and the settings'."""
    memory = settings.command_memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return replace(
        command,
        tree_bytes=min(command.tree_bytes or memory, memory),
        processes=min(command.processes or settings.command_processes, settings.command_processes),
        file_bytes=min(command.file_bytes or settings.command_file_bytes, settings.command_file_bytes),
        disk_bytes=min(command.disk_bytes or settings.command_disk_bytes, settings.command_disk_bytes),
    )
