"""Finds the patch that broke a run or workstream, by bisecting its commits with a gate's command (PATCH-14)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration import patches
from interlock.db.orchestration.commands import CommandRow
from interlock.db.orchestration.patches import CommittedPatch
from interlock.workers.effects import workspace
from interlock.workers.effects.stored_command import command_of
from interlock.workers.effects.workspace import Workplace
from interlock.workers.execution.process import run
from interlock.workers.execution.result import Finished
from interlock.workers.git import bisect, branches, repository
from interlock.workers.git.ref_names import safe
from interlock.workers.git.results import Refusal
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused
from interlock.workflows.input.arguments import door

CANNOT_TELL = (125, 126, 127)  # 125 as in `git bisect run`: cannot tell; nor can a gate that cannot be run
LAST_WORDS = 500  # characters of the gate's output


class NothingToFind(Refused):
    """There is no committed patch to look for, the gate does not fail after them and pass before, or it changed what
    the repository runs; the message says which."""


@dataclass(frozen=True, slots=True)
class Regression:
    """The commit that broke it. `entry`: its ledger entry; None if the commit is not a patch's."""

    commit_sha: str
    subject: str
    entry: str | None
    ledger_id: UUID | None
    workstream: str | None
    tried: int
    among: tuple[str, ...]


@door
def find_regression(
    runtime: Runtime,
    gate: str,
    *,
    run_ref: str | None = None,
    workstream_ref: str | None = None,
    timeout_seconds: float = 1800.0,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Regression:
    """Bisect in a temporary worktree.

    Args:
        runtime: whose database and settings.
        gate: a shell line; exit code 0: good, 125 (or 126, 127: it cannot be run): cannot tell, any other: bad.
        run_ref, workstream_ref: whose patches; one of them.
        timeout_seconds: of each try; one that takes longer is bad.
        progress: called with how many trees were tried, and about how many there will be.

    Raises:
        NothingToFind: no committed patch could be the cause; the message says why, with the gate's last output.
        UnknownInstance, AmbiguousInstance: no such run or workstream, or several.
        RepositoryBusy, GitFault: try again.
    """
    entries, where = _looked_up(runtime, run_ref, workstream_ref)
    wanted = CommandRow("shell", (gate,), timeout_sec=timeout_seconds)
    return bisected(entries, where, wanted, name=workstream_ref or str(run_ref), progress=progress)


def bisected(
    entries: Sequence[CommittedPatch],
    where: Workplace,
    wanted: CommandRow,
    *,
    name: str,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Regression:
    """Bisect the commits of some patches. Raises as `find_regression`.

    Args:
        entries: at least one.
        where: the place of one of their workstreams.
        wanted: the gate's command; its expected exit codes mean good.
        name: of the worktree: two searches with one name wait for each other.
        progress: see `find_regression`.
    """
    if where.repository is None:
        raise NothingToFind(f"the plan of {where.name} has no repository")
    by_commit = {str(each["commit_sha"]): each for each in entries}
    ends: list[Finished] = []

    def passes(tree: Path) -> bool | None:
        command = command_of(wanted, tree, where)
        with where.compared() as changed:
            ends[:] = [ended := run(command)]
        if changed:
            raise NothingToFind(f"while the gate ran, {where.checkout} changed: {', '.join(changed[:20])}")
        good = ended.succeeded(wanted.expected_exit_codes)
        return None if not good and ended.exit_code in CANNOT_TELL and not ended.timed_out else good

    bad_commit = bisect.find(
        where.checkout,
        _branch(where, list(by_commit)),
        by_commit,
        passes,
        scratch=workspace.worktrees(where.settings, where.account),
        isolation=where.isolation,
        name=f"regression-{safe(name)}",
        progress=progress,
    )
    if isinstance(bad_commit, Refusal):
        raise NothingToFind(f"{bad_commit}{_last_words(ends)}")
    entry: Mapping[Any, Any] = by_commit.get(bad_commit.sha, {})
    of_entry = entry.get("entity_id"), entry.get("ledger_id"), entry.get("workstream")
    return Regression(bad_commit.sha, bad_commit.subject, *of_entry, bad_commit.tried, bad_commit.among)


def _looked_up(
    runtime: Runtime, run_ref: str | None, workstream_ref: str | None
) -> tuple[list[CommittedPatch], Workplace]:
    with transaction(runtime.database) as connection:
        kind, ref = ("run", str(run_ref)) if workstream_ref is None else ("workstream", workstream_ref)
        wanted = {kind: instances.find(connection, ref, runtime.settings.project, kind)["id"]}
        entries = patches.committed(connection, **wanted)
        if not entries:
            raise NothingToFind(f"{workstream_ref or run_ref} has no committed patch, so there is nothing to bisect")
        where = workspace.of_workstream(connection, entries[0]["workstream_id"], runtime.settings)
    return entries, where


def _branch(where: Workplace, commits: list[str]) -> str:
    """The base branch if any of these commits landed there; otherwise the workstream's own."""
    found = repository.find(where.checkout)
    if isinstance(found, Refusal):
        raise NothingToFind(str(found))
    git = found.git()
    base = branches.tip(git, where.base_branch)
    landed = base and any(branches.contains(git, base, each) for each in commits)
    return where.base_branch if landed else where.branch


def _last_words(ends: Sequence[Finished]) -> str:
    """How the gate ended last, with its output, because a mistyped command looks like a broken tree."""
    if not ends:
        return ""
    printed = (ends[-1].stderr.strip() or ends[-1].stdout.strip())[-LAST_WORDS:]
    return f". The gate ended with {ends[-1].reason}{f': {printed}' if printed else ''}"
