"""Whose patch is in a worktree: one at a time, and what a patch that was given up left there is cleared away."""

from uuid import UUID

from db import patches
from db.connect import transaction
from workers.repository import records, worktree
from workers.repository.worktree import MARK, NotAWorktree, Worktree
from workers.runtime import Runtime
from workflows.errors import InterlockError

AT_WORK = ("queued", "applied", "verified")


class WorktreeTaken(InterlockError):
    """Another patch is applied in the worktree and not committed yet. This one is tried again; if it goes on, look at
    the ledger entry that the message names."""


def tenant(where: Worktree) -> UUID | None:
    """The ledger entry whose patch is applied in a worktree and not committed. Raises `NotAWorktree`."""
    with worktree.hold(where) as (git, directory):
        mark = records.read(directory / MARK)
        return UUID(mark["ledger_id"]) if mark and mark["head"] == git.line("rev-parse", "HEAD") else None


def clear(runtime: Runtime, where: Worktree, ledger_id: UUID) -> None:
    """Make a worktree free for a patch: what one that was given up left there goes.

    Raises:
        WorktreeTaken: the one in it is not done with.
    """
    if (other := tenant(where)) in (None, ledger_id):
        return
    with transaction(runtime.database) as connection:
        state = patches.state_of(connection, other)
    if state in AT_WORK:
        raise WorktreeTaken(f"{where.path}: the patch of {other} is {state}")
    worktree.restore(where)


def restore_after(where: Worktree, ledger_id: UUID, *, mine: bool = False) -> bool:
    """Put a worktree back, if nobody else's patch is in it (with `mine`: only if this one is); whether it was done."""
    try:
        found = tenant(where)
    except NotAWorktree:
        return False
    if found != ledger_id and (mine or found is not None):
        return False
    worktree.restore(where)
    return True
