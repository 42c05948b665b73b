"""The end of a workstream: it is merged into the base branch, or its work is archived (WORKSTREAM-4, WORKSTREAM-5)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from interlock.db.connection import transaction
from interlock.db.core import effects, requests, rounds
from interlock.db.core.effects import ClaimedEffect
from interlock.db.orchestration import patches, phases, workspaces
from interlock.workers.effects import landing_notes, workspace
from interlock.workers.effects.lease import renewed_lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.workspace import Workplace
from interlock.workers.git import branches, state_files, tampering, worktree
from interlock.workers.git.archive import REASON, ArchivedWorkstream, archive
from interlock.workers.git.merge import merge
from interlock.workers.git.policy import Checked
from interlock.workers.git.results import Committed, Conflict, Refusal
from interlock.workers.git.worktree import Worktree
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.suggestions import offered

LOOK = "Look at what it runs there and remove what you do not know; then `{}` does it again"


class NotReadyToLand(InterlockError):
    """The workstream cannot be merged yet; the message says why, and what to do. The merge is tried again, and fails
    once its attempts are used up."""


class PhaseFrozen(InterlockError):
    """The workstream's phase was frozen after its merge was requested. It is merged once an operator thaws the phase
    (`interlock phase thaw`)."""


class StillAtWork(InterlockError):
    """Workers still use a worktree that is to be archived. Archiving is tried again; on the last attempt it is done
    in any case."""


def land_workstream(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome | Mapping[str, Any]:
    """Effect: merge a validated workstream into its base branch, and close its worktree.

    Returns:
        `validation_passed` with the merge's commit, or without one if there is nothing to merge; `validation_failed`
        with the files for a conflict or a policy violation, or when the attempts are used up.

    Raises:
        NotReadyToLand, BranchMoves, GitFault, RepositoryBusy: it is tried again.
        PhaseFrozen: it is tried again until the phase is thawed.
    """
    place = _place(runtime, claimed)
    if place.state != "validating":
        if place.state == "completed" and place.repository:  # its merge was killed before the notes
            landing_notes.write(runtime, place)
        return {"left_alone": place.state}  # cancelled meanwhile: only a workstream that completes is merged
    if place.frozen:
        raise PhaseFrozen(f"the phase of {place.name} is frozen")
    try:
        with renewed_lease(runtime, claimed):
            return _landed(runtime, claimed, place) if place.repository else _unmerged(runtime, claimed, place)
    except NotReadyToLand as waits:
        if _place(runtime, claimed).frozen:
            raise PhaseFrozen(f"the phase of {place.name} is frozen") from waits
        if claimed["attempts"] < runtime.settings.max_attempts:
            raise
        return EffectOutcome("validation_failed", {"reason": str(waits)})


def _landed(runtime: Runtime, claimed: ClaimedEffect, place: Workplace) -> EffectOutcome:
    with transaction(runtime.database) as connection:
        if pending := patches.uncommitted(connection, place.id):
            raise NotReadyToLand(f"patches of {place.name} are not committed yet: {', '.join(pending[:5])}")
        policy = place.policy.for_patches(len(patches.committed(connection, workstream=place.id)))
    tree = place.worktree()
    if isinstance(tree, Refusal):
        raise NotReadyToLand(str(tree))
    if change := tampering.tampering(tree.repository, place.path):
        look = LOOK.format(offered("run", "resume", place.run_id))
        return EffectOutcome("validation_failed", {"reason": f"{change}. {look}"})
    message = f"Merge workstream {place.name}"
    outcome = merge(
        tree,
        message,
        policy=policy,
        lock_seconds=place.patience_seconds,
        moving=lambda sha: _completing(runtime, claimed, place, _merge_metadata(tree, sha)),
    )
    if isinstance(outcome, Conflict):
        return EffectOutcome("validation_failed", {"reason": str(outcome), "files": list(outcome.files)})
    if isinstance(outcome, Checked):
        files = sorted({each.file for each in outcome.reasons if each.file})
        return EffectOutcome("validation_failed", {"reason": f"its branch may not land: {outcome}", "files": files})
    if isinstance(outcome, Committed):
        worktree.close(tree, lock_seconds=place.patience_seconds)
        landing_notes.write(runtime, place)
        return EffectOutcome("validation_passed", _merge_metadata(tree, outcome.sha))
    if _has_nothing(tree):
        return _unmerged(runtime, claimed, place)
    raise NotReadyToLand(str(outcome))


def _unmerged(runtime: Runtime, claimed: ClaimedEffect, place: Workplace) -> EffectOutcome:
    """Complete a workstream that has nothing to merge."""
    metadata = {"merged": False}
    with _completing(runtime, claimed, place, metadata):
        return EffectOutcome("validation_passed", metadata)


@contextmanager
def _completing(
    runtime: Runtime, claimed: ClaimedEffect, place: Workplace, metadata: Mapping[str, Any]
) -> Iterator[None]:
    """A transaction in which the workstream completes, committed once its base branch has moved.

    Only a workstream that completes is merged (WORKSTREAM-5), so a cancel takes effect before both or after both. The
    effect's own report then finds its trigger already fired.
    """
    report = effects.outcome_request(claimed, "validation_passed", metadata=metadata)
    with transaction(runtime.database) as connection:
        rounds.lock(connection, requests.partition_of(place.id))  # before anything is written
        phases.hold(connection, place.id)  # a freeze comes before this landing, or after it
        requests.accept(connection, [report])
        done = runtime.applier.apply_for(connection, [place.id])
        request = requests.by_ids(connection, [report["request_id"]])[report["request_id"]]
        if request["status"] != "applied":
            reason = (request["result"] or {}).get("message", request["status"])
            raise NotReadyToLand(f"{place.name} cannot complete, so it was not merged: {reason}")
        yield
    runtime.publish(done)


def _merge_metadata(tree: Worktree, sha: str) -> Mapping[str, Any]:
    return {"merged": True, "commit_sha": sha, "tree": branches.tree(tree.repository.git(), sha)}


def _has_nothing(tree: Worktree) -> bool:
    """Whether the workstream never opened a worktree: it has no branch, while its base branch exists."""
    git = tree.repository.git()
    return branches.tip(git, tree.branch) is None and branches.tip(git, tree.base_branch) is not None


def archive_workstream(runtime: Runtime, claimed: ClaimedEffect) -> Mapping[str, Any]:
    """Effect: archive a failed, cancelled or skipped workstream's work and reason; remove its worktree and branch.

    Returns:
        Where the archive is. Nothing is written for a cancelled or skipped workstream that left nothing.

    Raises:
        StillAtWork, GitFault, RepositoryBusy: it is tried again.
    """
    place = _place(runtime, claimed)
    with transaction(runtime.database) as connection:
        at_work = workspaces.at_work(connection, place.id)
        reason = dict(workspaces.remains(connection, place.id))
    if at_work and claimed["attempts"] < runtime.settings.max_attempts:
        raise StillAtWork(f"{at_work} still running in {place.path}")
    with renewed_lease(runtime, claimed):
        archived = _archived(place, reason)
    if archived is None and place.state in ("cancelled", "skipped"):
        return {"archive": None}
    if archived is None:
        place.archive.mkdir(parents=True, exist_ok=True)
        state_files.write(place.archive / REASON, {"reason": reason, "branch": place.branch})
        return {"archive": str(place.archive)}
    return {"archive": str(place.archive), "ref": archived.ref, "sha": archived.sha}


def _archived(place: Workplace, reason: Mapping[str, Any]) -> ArchivedWorkstream | None:
    """The archive of the workstream's branch and files; None if there are none."""
    tree = None if place.repository is None else place.worktree()
    if tree is None or isinstance(tree, Refusal):
        return None
    found = archive(tree, place.archive, reason, lock_seconds=place.patience_seconds)
    return found if isinstance(found, ArchivedWorkstream) else None


def _place(runtime: Runtime, claimed: ClaimedEffect) -> Workplace:
    with transaction(runtime.database) as connection:
        return workspace.of_workstream(connection, claimed["workflow_id"], runtime.settings)
