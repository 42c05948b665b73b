"""Which patch of a run or workstream broke it: bisection over what they committed, by a gate's command (SSOT 2.5.4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import RowMapping

from db import instances, patches, plans
from db.connect import transaction
from workers.execution.finished import Finished
from workers.execution.run import run
from workers.orchestration import workplace
from workers.orchestration.commands import command_of
from workers.orchestration.workplace import Workplace
from workers.repository import branches, place, regression
from workers.repository.naming import safe
from workers.repository.outcomes import Refusal
from workers.repository.regression import Broke
from workers.runtime import Runtime
from workflows.errors import Refused

CANNOT_TELL = (125, 126, 127)  # as `git bisect run` has 125: this tree says nothing; nor does a gate that is not there
LAST_WORDS = 500  # characters of what the gate printed


class NothingToFind(Refused):
    """There is no committed patch to look for, or the gate does not fail after them and pass before."""


@dataclass(frozen=True, slots=True)
class Regression:
    """What broke it. `entry`: the ledger entry of the commit; None where it is no patch's."""

    commit_sha: str
    subject: str
    entry: str | None
    ledger_id: UUID | None
    workstream: str | None
    tried: int
    among: tuple[str, ...]


def find_regression(
    runtime: Runtime,
    gate: str,
    *,
    run_ref: str | None = None,
    workstream_ref: str | None = None,
    timeout_seconds: float = 1800.0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Regression:
    """Bisect, in a worktree of its own that is gone afterwards.

    Args:
        runtime: whose database and settings.
        gate: a shell line; exit code 0: good, 125 (or 126, 127: it cannot be run): cannot tell, any other: bad.
        run_ref, workstream_ref: whose patches; one of them.
        timeout_seconds: of each try; one that takes longer is bad.
        progress: told how many trees were tried, and of how many, about.

    Raises:
        NothingToFind: see there; the message says which, and what the gate printed last.
        UnknownInstance, AmbiguousInstance: no such run or workstream, or several.
        RepositoryBusy, GitFault: try again.
    """
    entries, where = _looked_up(runtime, run_ref, workstream_ref)
    by_commit = {str(each["commit_sha"]): each for each in entries}
    ends: list[Finished] = []

    def passes(tree: Path) -> bool | None:
        ends[:] = [ended := run(command_of({"command": gate, "shell": True, "timeout_sec": timeout_seconds}, tree))]
        return None if ended.exit_code in CANNOT_TELL and not ended.timed_out else ended.succeeded([0])

    broke = regression.find(
        where.checkout,
        _branch(where, list(by_commit)),
        by_commit,
        passes,
        scratch=runtime.settings.worktrees_directory,
        name=f"regression-{safe(workstream_ref or str(run_ref))}",
        progress=progress,
    )
    if isinstance(broke, Refusal):
        raise NothingToFind(f"{broke}{_last_words(ends)}")
    return _told(broke, by_commit.get(broke.sha))


def _looked_up(runtime: Runtime, run_ref: str | None, workstream_ref: str | None) -> tuple[list[RowMapping], Workplace]:
    with transaction(runtime.database) as connection:
        if workstream_ref is None:
            wanted = {"run": plans.find_run(connection, str(run_ref))["id"]}
        else:
            wanted = {"workstream": instances.find(connection, workstream_ref)["id"]}
        entries = list(patches.committed(connection, **wanted))
        if not entries:
            raise NothingToFind(f"{workstream_ref or run_ref} has no committed patch")
        where = workplace.of_workstream(connection, entries[0]["workstream_id"], runtime.settings)
    if where.repository is None:
        raise NothingToFind(f"the plan of {where.name} has no repository")
    return entries, where


def _branch(where: Workplace, commits: list[str]) -> str:
    """The base branch, once any of these landed there; before, the workstream's own."""
    found = place.find(where.checkout)
    if isinstance(found, Refusal):
        raise NothingToFind(str(found))
    git = found.git()
    base = branches.tip(git, where.base_branch)
    landed = base and any(branches.contains(git, base, each) for each in commits)
    return where.base_branch if landed else where.branch


def _last_words(ends: Sequence[Finished]) -> str:
    """How the gate ended last, and what it printed: a command that is mistyped looks like a broken tree."""
    if not ends:
        return ""
    printed = (ends[-1].stderr.strip() or ends[-1].stdout.strip())[-LAST_WORDS:]
    return f". The gate ended with {ends[-1].reason}{f': {printed}' if printed else ''}"


def _told(broke: Broke, entry: RowMapping | None) -> Regression:
    return Regression(
        commit_sha=broke.sha,
        subject=broke.subject,
        entry=entry["entity_id"] if entry else None,
        ledger_id=entry["ledger_id"] if entry else None,
        workstream=entry["workstream"] if entry else None,
        tried=broke.tried,
        among=broke.among,
    )
