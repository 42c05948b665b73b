"""The place where a workstream's commands run: its own worktree or, without a repository, the plan's directory."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.orchestration import workspaces
from interlock.db.orchestration.workspaces import WorkplaceRow
from interlock.workers.git import branches, protected_paths, repository, tampering, worktree
from interlock.workers.git.command import Git
from interlock.workers.git.git_directories import store_of, stores
from interlock.workers.git.policy import PatchPolicy, PhasePaths
from interlock.workers.git.ref_names import branch_name, safe
from interlock.workers.git.repository import Repository
from interlock.workers.git.results import Refusal
from interlock.workers.git.worktree import Worktree, open_worktree
from interlock.workers.isolation.apart import Isolation
from interlock.workers.isolation.boundary import as_commands, left_by_link
from interlock.workers.sandbox.sandbox import View
from interlock.workers.settings import OUTSIDE, Settings
from interlock.workers.system.users import Account, commands_account, obstacle
from interlock.workflows.plan.gate_programs import named
from interlock.workflows.plan.phases import Phase
from interlock.workflows.plan.plan import PlannedRepository
from interlock.workflows.scheduling.next_trigger import ENDED

SUFFIX = 6


@dataclass(frozen=True)
class Workplace:
    """The place of one workstream.

    Attributes:
        id: the workstream's.
        run_id: its run's.
        name: for people: `RUN/WORKSTREAM`.
        state: the workstream's, when it was read.
        directory: the plan's; the current directory for a workstream without a plan.
        repository: the plan's section on its repository, if it has one.
        path: of its worktree.
        branch: its branch.
        archive: where its work is kept if it does not complete.
        account: the user that its commands run as; None: the worker's own.
        settings: the installation's.
        gates: the plan's gates, of all its workstreams, as the plan defines them.
        phase: the paths of its phase, if its plan has that phase.
        frozen: whether its phase is frozen, when it was read.
    """

    id: UUID
    run_id: UUID
    name: str
    state: str
    directory: Path
    repository: PlannedRepository | None
    path: Path
    branch: str
    archive: Path
    account: Account | None
    settings: Settings
    gates: tuple[Mapping[str, Any], ...] = ()
    phase: PhasePaths | None = None
    frozen: bool = False

    @property
    def patience_seconds(self) -> float:
        """How long to wait for others that use the repository."""
        return self.settings.effect_lease_seconds / 2

    @property
    def isolation(self) -> Isolation:
        """The user of its commands, and the sandbox for our git in its worktree; tested on first use."""
        return as_commands(self.settings)

    @property
    def checkout(self) -> Path:
        """The user's checkout; only of a workstream that has a repository."""
        assert self.repository
        return self.directory / self.repository.path

    @property
    def base_branch(self) -> str:
        """The branch that it is merged into."""
        assert self.repository
        return self.repository.base_branch

    @property
    def policy(self) -> PatchPolicy:
        """The rules for its patches and its branch. Raises `GitFault`: try again."""
        assert self.repository
        options = self.repository.model_dump(exclude={"path", "base_branch", "protected", "regressions"})
        run = () if isinstance(found := self._repository, Refusal) else self._run_by_gates(found.git())
        return PatchPolicy(**options, protected_paths=self.repository.protected, run_by_gates=run, phase=self.phase)

    def _astray(self) -> Refusal | None:
        """Why the checkout is not touched: a link leads to it that commands of a plan may have made (HTTP-20)."""
        if not left_by_link(self.checkout, self.settings.api_plan_folders):
            return None
        return Refusal(f"a link in INTERLOCK_API_PLAN_FOLDERS leads to {self.checkout}", "Name where it leads")

    @property
    def _repository(self) -> Repository | Refusal:
        """The user's repository. Each time it is looked whether a link leads there: a command may have made one."""
        return self._astray() or self._found

    @cached_property
    def _found(self) -> Repository | Refusal:
        return repository.find(self.checkout)

    def _run_by_gates(self, git: Git) -> tuple[str, ...]:
        words = [(each.get("command"), each.get("shell"), each.get("cwd")) for each in self.gates]
        names = [
            named([shell] if shell else command or (), shell=bool(shell), cwd=cwd or "")
            for command, shell, cwd in words
        ]
        return protected_paths.run_by(git, self.base_branch, names) if branches.tip(git, self.base_branch) else ()

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """While a command runs in its worktree, watch the user's repository: a change there prevents landing.

        Args:
            what: the command, as reasons name it.
        """
        with ExitStack() as watch:
            if self.repository is not None and not isinstance(tree := self.worktree(), Refusal):
                watch.enter_context(tampering.watched(tree, what))
            yield

    @contextmanager
    def compared(self) -> Iterator[list[str]]:
        """While a command runs outside a workstream's worktree, collect its changes in the user's repository."""
        found = self._repository if self.repository else None
        if not isinstance(found, repository.Repository):
            yield []
            return
        with tampering.compared(found) as changed:
            yield changed

    def judged_by_base(self) -> AbstractContextManager[object]:
        """While a gate runs in its worktree, protected paths have the content of the base branch.

        Raises:
            NotAWorktree, RepositoryBusy, GitFault, OSError: try again.
        """
        if self.repository is None or isinstance(tree := self.worktree(), Refusal):
            return nullcontext()
        return protected_paths.of_base(tree, self.policy.protected)

    @property
    def content(self) -> dict[str, str]:
        """What its worktree holds (`worktree.content`); empty without a repository. Raises as `judged_by_base`."""
        if self.repository is None or isinstance(tree := self.worktree(), Refusal):
            return {}
        return worktree.content(tree)

    @property
    def ended(self) -> bool:
        """Whether the workstream has ended, so that no work may be done for it any more."""
        return self.state in ENDED["workstream"]

    def opened(self) -> Worktree | Refusal:
        """Its worktree, created if it is missing. Raises `GitFault`, `RepositoryBusy`: try again."""
        if astray := self._astray():
            return astray
        seconds = self.patience_seconds
        return open_worktree(
            self.checkout, self.base_branch, self.branch, self.path, isolation=self.isolation, lock_seconds=seconds
        )

    def worktree(self) -> Worktree | Refusal:
        """Its worktree, which may not exist yet."""
        found = self._repository
        if isinstance(found, Refusal):
            return found
        return Worktree(found, self.path, self.branch, self.base_branch, self.isolation)

    @property
    def reads(self) -> tuple[Path, ...]:
        """Directories outside its worktree that its commands must see, read-only: the shared git objects."""
        if self.repository is None or isinstance(found := self._repository, Refusal):
            return ()
        return tuple(stores(store_of(found, self.path, self.account)))

    def view(self, directory: Path, options: Mapping[str, Any]) -> View:
        """What commands that run in `directory` see.

        Args:
            directory: a worktree of its repository; else the plan's folder.
            options: the sandbox options of the plan: `mode`, `reads`, `network`.
        """
        reads = tuple(self.directory / each for each in options.get("reads", ()))
        view = View(plan_reads=reads, network=bool(options.get("network")), mode=options.get("mode", "off"))
        if self.repository is None:
            return replace(view, folder=self.directory)
        return replace(view, places=(directory,), stores=self.reads)

    def to_work_in(self) -> Path | Refusal:
        """The directory for its commands. Raises as `opened`."""
        if self.repository is None:
            return self.directory
        opened = self.opened()
        return opened if isinstance(opened, Refusal) else opened.path


def of_workstream(connection: Connection, workstream_id: UUID, settings: Settings) -> Workplace:
    """The place of a workstream.

    Raises:
        UnknownInstance: there is no such workstream.
    """
    row = workspaces.of_workstream(connection, workstream_id)
    run, account = _run_name(row), commands_account(settings)
    workstream = _workstream_name(row)
    below = Path(safe(run)) / safe(workstream)
    return Workplace(
        id=row["workstream_id"],
        run_id=row["run_id"],
        name=row["entity_id"],
        state=row["state"],
        directory=Path(row["directory"] or ".").absolute(),
        repository=PlannedRepository.model_validate(row["repository"]) if row["repository"] else None,
        path=worktrees(settings, account) / below,
        branch=branch_name(run, workstream),
        archive=settings.archive_directory / below,
        account=account,
        settings=settings,
        gates=tuple(row["gates"] or ()),
        phase=_phase_paths(row),
        frozen=row["frozen"],
    )


def worktrees(settings: Settings, account: Account | None) -> Path:
    """The parent directory of all worktrees, which the commands' account can reach.

    If the home is closed to that account, it is a directory outside the home.

    Raises:
        OSError: that directory cannot be created.
    """
    wanted = worktrees_path(settings, account)
    if account is None:
        return wanted
    for each in [wanted, *wanted.parents]:
        if not each.exists() or each.is_relative_to(OUTSIDE):
            each.mkdir(parents=True, exist_ok=True)
            each.chmod(each.stat().st_mode | 0o011)  # may be passed through, but not listed
    return wanted


def worktrees_path(settings: Settings, account: Account | None) -> Path:
    """The same path, whether or not there is such a directory."""
    if obstacle(settings.worktrees_directory, account):
        return OUTSIDE / sha256(os.fsencode(settings.home.resolve())).hexdigest()[:8] / "worktrees"
    return settings.worktrees_directory


def _phase_paths(row: WorkplaceRow) -> PhasePaths | None:
    if row["phase"] is None:
        return None
    terms = Phase.model_validate(row["phase"])
    return PhasePaths(name=row["phase_id"], allowed_paths=terms.allowed_paths, forbidden_paths=terms.forbidden_paths)


def _run_name(row: WorkplaceRow) -> str:
    """The run's name with the end of its id: runs of several projects may share a name and a repository."""
    suffix = row["run_id"].hex[-SUFFIX:]
    return str(row["run"]) if row["run"].endswith(f"-{suffix}") else f"{row['run']}-{suffix}"


def _workstream_name(row: WorkplaceRow) -> str:
    """The workstream's name; with the end of its id if it takes the place of another one of its run."""
    name = str(row["workstream"])
    return f"{name}-{row['workstream_id'].hex[-SUFFIX:]}" if row["done_again"] else name
