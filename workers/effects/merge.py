"""How a workstream ends: merged into the base branch, or archived with what it left (SSOT 1.3.7, rules 4 and 5)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, RowMapping

from db import effects, patches, requests, workplaces
from db.connect import transaction
from workers.lease import kept
from workers.orchestration import workplace
from workers.orchestration.patches import COMMITTER
from workers.orchestration.workplace import Workplace
from workers.repository import branches, records, worktree
from workers.repository.archive import REASON, Archived, archive
from workers.repository.merging import Merged, merge
from workers.repository.outcomes import Conflict, Refusal
from workers.repository.worktree import Worktree
from workers.runtime import Runtime
from workers.told import Told
from workflows.errors import InterlockError


class NotReadyToLand(InterlockError):
    """The workstream cannot be merged as things stand; the message says what is in the way and what to do. It is tried
    again, and fails once its attempts are used up."""


class StillAtWork(InterlockError):
    """Workers are still at work in a worktree that is to be archived. It is tried again; on the last attempt it is
    archived all the same."""


def intent(connection: Connection, workstream_id: UUID, version: int) -> dict[str, Any]:
    """The row, for `effects.intend`, that has a workstream land: the same id for the same entry of `validating`.

    Of one repository's merges only one runs at a time.
    """
    row = workplaces.of_workstream(connection, workstream_id)
    repository = row["repository"]
    return {
        "id": uuid5(workstream_id, f"land_workstream:{version}"),
        "workflow_id": workstream_id,
        "version": version,
        "name": "land_workstream",
        "payload": {},
        "done_trigger": None,
        "failed_trigger": "validation_failed",
        "exclusive": repository and f"repository {Path(row['directory'], repository['path'])}",
    }


def land_workstream(runtime: Runtime, claimed: RowMapping) -> Told | Mapping[str, Any]:
    """Effect: merge a validated workstream into its base branch, and close its worktree.

    Returns:
        `validation_passed` with the merge's commit, also where there is nothing to merge; `validation_failed` for a
        conflict, with the files, or once the attempts are used up.

    Raises:
        NotReadyToLand, BranchMoves, GitFault, RepositoryBusy: it is tried again.
    """
    place = _place(runtime, claimed)
    if place.state != "validating":
        return {"left_alone": place.state}  # cancelled meanwhile: only what completes is merged
    if place.repository is None:
        return Told("validation_passed", {"merged": False})
    try:
        with kept(runtime, claimed):
            return _landed(runtime, claimed, place)
    except NotReadyToLand as waits:
        if claimed["attempts"] < runtime.settings.max_attempts:
            raise
        return Told("validation_failed", {"reason": str(waits)})


def _landed(runtime: Runtime, claimed: RowMapping, place: Workplace) -> Told:
    with transaction(runtime.database) as connection:
        if pending := patches.uncommitted(connection, place.id):
            raise NotReadyToLand(f"patches of {place.name} are not committed yet: {', '.join(pending[:5])}")
    tree = place.worktree()
    if isinstance(tree, Refusal):
        raise NotReadyToLand(str(tree))
    message = f"Merge workstream {place.name}"
    outcome = merge(
        tree,
        message,
        identity=COMMITTER,
        lock_seconds=place.patience_seconds,
        moving=lambda sha: _completing(runtime, claimed, place, sha),
    )
    if isinstance(outcome, Conflict):
        return Told("validation_failed", {"reason": str(outcome), "files": list(outcome.files)})
    if isinstance(outcome, Merged):
        worktree.close(tree, lock_seconds=place.patience_seconds)
        return Told("validation_passed", _says(outcome.sha))
    if _has_nothing(tree):
        return Told("validation_passed", {"merged": False})
    raise NotReadyToLand(str(outcome))


@contextmanager
def _completing(runtime: Runtime, claimed: RowMapping, place: Workplace, sha: str) -> Iterator[None]:
    """A transaction in which the workstream completes, committed once its branch has moved.

    Only what completes is merged (SSOT 1.3.7, 5): a cancel comes before both or after both. The effect's report then
    finds its trigger told.
    """
    telling = effects.telling(claimed, "validation_passed", says=_says(sha))
    with transaction(runtime.database) as connection:
        requests.accept(connection, [telling])
        done = runtime.applier.round(connection, requests.lane_of(place.id), only=place.id)
        told = requests.by_ids(connection, [telling["request_id"]])[telling["request_id"]]
        if told["status"] != "applied":
            reason = (told["result"] or {}).get("message", told["status"])
            raise NotReadyToLand(f"{place.name} does not complete, so it was not merged: {reason}")
        yield
    runtime.publish(done)


def _says(sha: str) -> Mapping[str, Any]:
    return {"merged": True, "commit_sha": sha}


def _has_nothing(tree: Worktree) -> bool:
    """Whether no worktree of it was ever opened: then no branch of it is there, and its base branch is."""
    git = tree.repository.git()
    return branches.tip(git, tree.branch) is None and branches.tip(git, tree.base_branch) is not None


def archive_workstream(runtime: Runtime, claimed: RowMapping) -> Mapping[str, Any]:
    """Effect: keep what a failed, cancelled or skipped workstream left, and why; then remove its worktree and branch.

    Returns:
        Where it is kept; of a cancelled or skipped one that left nothing: nothing is written.

    Raises:
        StillAtWork, GitFault, RepositoryBusy: it is tried again.
    """
    place = _place(runtime, claimed)
    with transaction(runtime.database) as connection:
        at_work = workplaces.at_work(connection, place.id)
        reason = dict(workplaces.remains(connection, place.id))
    if at_work and claimed["attempts"] < runtime.settings.max_attempts:
        raise StillAtWork(f"{at_work} still at work in {place.path}")
    with kept(runtime, claimed):
        archived = _archived(place, reason)
    if archived is None and place.state in ("cancelled", "skipped"):
        return {"archive": None}
    if archived is None:
        place.archive.mkdir(parents=True, exist_ok=True)
        records.write(place.archive / REASON, {"reason": reason, "branch": place.branch})
        return {"archive": str(place.archive)}
    return {"archive": str(place.archive), "ref": archived.ref, "sha": archived.sha}


def _archived(place: Workplace, reason: Mapping[str, Any]) -> Archived | None:
    """Where its branch and files are kept; None where there are none."""
    tree = None if place.repository is None else place.worktree()
    if tree is None or isinstance(tree, Refusal):
        return None
    found = archive(tree, place.archive, reason, lock_seconds=place.patience_seconds)
    return found if isinstance(found, Archived) else None


def _place(runtime: Runtime, claimed: RowMapping) -> Workplace:
    with transaction(runtime.database) as connection:
        return workplace.of_workstream(connection, claimed["workflow_id"], runtime.settings)
