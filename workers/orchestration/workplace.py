"""Where a workstream's work is done: in a worktree of its own or, without a repository, in the plan's directory."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from db import workplaces
from workers.repository import place
from workers.repository.checking import PatchPolicy
from workers.repository.naming import branch_name, safe
from workers.repository.outcomes import Refusal
from workers.repository.worktree import Worktree, open_worktree
from workers.settings import Settings
from workflows.plan.plan import Repository

ENDED = ("completed", "failed", "cancelled", "skipped")
SUFFIX = 6


@dataclass(frozen=True, slots=True)
class Workplace:
    """One workstream's place.

    Attributes:
        id: the workstream's.
        name: what people call it, `RUN/WORKSTREAM`.
        state: the workstream's, as it was read.
        directory: the plan's; where we stand, for a workstream that no plan made.
        repository: what the plan says of it, if it has one.
        path: where its worktree stands.
        branch: its branch.
        archive: where what it left is kept, should it fail.
        patience_seconds: how long to wait for others at work in the repository.
    """

    id: UUID
    name: str
    state: str
    directory: Path
    repository: Repository | None
    path: Path
    branch: str
    archive: Path
    patience_seconds: float

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
        """What its patches may do."""
        assert self.repository
        return PatchPolicy(**self.repository.model_dump(exclude={"path", "base_branch"}))

    @property
    def ended(self) -> bool:
        """Whether nothing may be done for it any more."""
        return self.state in ENDED

    def opened(self) -> Worktree | Refusal:
        """Its worktree, made where it is missing. Raises `GitFault`, `RepositoryBusy`: try again."""
        seconds = self.patience_seconds
        return open_worktree(self.checkout, self.base_branch, self.branch, self.path, lock_seconds=seconds)

    def worktree(self) -> Worktree | Refusal:
        """Its worktree, whether it stands or not."""
        found = place.find(self.checkout)
        return found if isinstance(found, Refusal) else Worktree(found, self.path, self.branch, self.base_branch)

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
    row = workplaces.of_workstream(connection, workstream_id)
    run = _run_name(row)
    below = Path(safe(run)) / safe(row["workstream"])
    return Workplace(
        id=row["workstream_id"],
        name=row["entity_id"],
        state=row["state"],
        directory=Path(row["directory"] or ".").absolute(),
        repository=Repository.model_validate(row["repository"]) if row["repository"] else None,
        path=settings.worktrees_directory / below,
        branch=branch_name(run, row["workstream"]),
        archive=settings.archive_directory / below,
        patience_seconds=settings.effect_lease_seconds / 2,
    )


def _run_name(row: RowMapping) -> str:
    """The run's name with the end of its id: runs of several projects may bear one name and share a repository."""
    suffix = row["run_id"].hex[-SUFFIX:]
    return str(row["run"]) if row["run"].endswith(f"-{suffix}") else f"{row['run']}-{suffix}"
