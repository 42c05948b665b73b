"""A patch in the patch ledger: submitted by its task, then checked, applied and committed by effects (PATCH-1).

Each effect reads the worktree's state and goes on from there, so running it again after a crash is harmless. Only one
effect of a workstream runs at a time (`exclusive`).
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core.effects import ClaimedEffect
from interlock.db.orchestration import commands, patches
from interlock.db.orchestration.commands import CommandRow
from interlock.db.orchestration.patches import PatchEntry, PatchTask
from interlock.workers.effects import workspace
from interlock.workers.effects.lease import renewed_lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.workspace import Workplace
from interlock.workers.effects.worktree_owner import clear, restore_after
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.git import branches
from interlock.workers.git.apply import AppliedPatch, apply, commit
from interlock.workers.git.policy import Checked, check
from interlock.workers.git.results import Committed, Conflict, Refusal
from interlock.workers.git.trial_index import TRIES
from interlock.workers.git.worktree import Worktree
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, InterlockError
from interlock.workflows.input.names import likeness

NOT_REQUESTED = "neither a plan nor an operator asked for this patch to land"


class PatchLost(InterlockError):
    """A verified patch is no longer in its worktree and does not apply there any more; the message says why.
    Repair the worktree that it names: the commit is tried again; after the last attempt, the patch is quarantined."""


def submit(runtime: Runtime, task: Mapping[str, Any]) -> UUID:
    """Put a task's patch into the ledger. A repeated call returns the same entry, unless that was set aside.

    Args:
        runtime: whose database.
        task: its `task_id`; a plan or an operator named the patch that it lands.

    Returns:
        The ledger entry's id.

    Raises:
        BadInput: neither a plan nor an operator gave the task a patch.
    """
    with transaction(runtime.database) as connection:
        patches.lock_task(connection, task["task_id"])
        found = patches.of_task(connection, task["task_id"])
        alive = [each for each in found["ledgers"] if each["state"] not in patches.OVER]
        if alive:
            return UUID(alive[-1]["id"])
        row = commands.of(connection, task["task_id"])
        birth, delivered = creation.deliver_anyhow(connection, _birth(runtime, found, row))
    runtime.wakeups.effects(delivered.effects_due)
    return birth.id


def _birth(runtime: Runtime, task: PatchTask, row: CommandRow | None) -> Birth:
    context, before = task["context"], task["ledgers"]
    if row is None or row.kind != "patch":
        raise BadInput(f"task {task['entity_id']} has no patch: neither a plan nor an operator gave it one")
    metadata = {
        "patch_id": row.patch_id,
        "workstream_id": str(task["workstream_id"]),
        "task_id": str(task["task_id"]),
        "run_id": str(task["run_id"]),
        "message": row.message or task["entity_id"],
        "gates": task["gates"],
    }
    metadata |= {"phase_id": context["phase_id"]} if "phase_id" in context else {}
    if earlier := before[-1]["id"] if before else context.get("corrects"):  # PATCH-13
        metadata |= {"retry_of": earlier}
    return Birth(
        definition=runtime.catalogue.get("patch_ledger"),
        entity_id=f"{likeness(task['entity_id'][:90])}^{len(before) + 1}",
        project=task["project"],
        created_by="crew",
        context=metadata,
    )


def validate_patch(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome:
    """Effect: check that the patch is a valid diff, stays in scope and is allowed by the policy (PATCH-1)."""
    entry, place = _looked_up(runtime, claimed)
    if entry["requested_by"] is None:
        return EffectOutcome("validation_failed", {"reason": NOT_REQUESTED})
    if place.repository is None:
        return EffectOutcome("validation_failed", {"reason": "the plan has no repository for a patch to land in"})
    found = check(entry["body"], place.policy)
    verdicts = {"format": found.format, "scope": found.scope, "constraints": found.constraints}
    if found.passed:
        return EffectOutcome("validation_passed", {"validation_results": verdicts})
    files = sorted({each.file for each in found.reasons if each.file})
    return EffectOutcome("validation_failed", {"validation_results": verdicts, "reason": str(found), "files": files})


def apply_patch(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome:
    """Effect: `git apply` in the workstream's worktree. Each further attempt may use one more way of applying.

    Raises:
        WorktreeTaken: another patch in the worktree is not committed yet. It is tried again.
        GitFault: git failed; the message says how. It is tried again.
        RepositoryBusy: another process holds the lock for too long. It is tried again.
    """
    entry, place = _looked_up(runtime, claimed)
    if entry["requested_by"] is None or place.ended or place.repository is None:
        reason = f"workstream {place.name} is {place.state}" if entry["requested_by"] else NOT_REQUESTED
        return EffectOutcome("apply_failed", {"reason": reason, "files": []})
    tried = entry["apply_retries"] + 1
    with renewed_lease(runtime, claimed):
        outcome = _applied(runtime, place, entry, tried)
    if isinstance(outcome, AppliedPatch):
        return EffectOutcome("apply_succeeded", {"try": tried, "way": outcome.way, "files": list(outcome.paths)})
    files = list(outcome.files) if isinstance(outcome, Conflict) else []
    return EffectOutcome("apply_failed", {"try": tried, "reason": str(outcome), "files": files})


def _applied(
    runtime: Runtime, place: Workplace, entry: PatchEntry, tried: int
) -> AppliedPatch | Conflict | Checked | Refusal:
    opened = place.opened()
    if isinstance(opened, Refusal):
        return opened
    clear(runtime, opened, entry["ledger_id"])
    return apply(
        opened,
        entry["body"],
        str(entry["ledger_id"]),
        policy=place.policy,
        tries=TRIES[:tried],
        lock_seconds=place.patience_seconds,
    )


def commit_patch(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome:
    """Effect: commit the verified patch to its workstream's branch, then restore the worktree (PATCH-17).

    Returns:
        `commit_succeeded` with the commit; `commit_failed` if its workstream has ended meanwhile.

    Raises:
        PatchLost: the patch is no longer in its worktree and does not apply there any more. It is tried again.
        WorktreeTaken: another patch in the worktree is not committed yet. It is tried again.
        GitFault: git failed; the message says how. It is tried again.
        RepositoryBusy: another process holds the lock for too long. It is tried again.
    """
    entry, place = _looked_up(runtime, claimed)
    if entry["requested_by"] is None:
        return EffectOutcome("commit_failed", {"reason": NOT_REQUESTED})
    if place.ended:  # its branch is removed, or will be: a commit there would not land any more
        return EffectOutcome("commit_failed", {"reason": f"workstream {place.name} is {place.state}"})
    with renewed_lease(runtime, claimed):
        opened = place.opened()
        if isinstance(opened, Refusal):
            raise PatchLost(str(opened))
        done = _committed(opened, entry)
        if isinstance(done, Refusal):  # somebody removed the worktree: apply the patch again, to the same commit
            found = _applied(runtime, place, entry, len(TRIES))
            done = _committed(opened, entry) if isinstance(found, AppliedPatch) else Refusal(str(found), "")
        if isinstance(done, Refusal):
            raise PatchLost(f"{place.path}: {done}")
        restore_after(opened, entry["ledger_id"])
        tree = branches.tree(opened.repository.git(), done.sha)
    return EffectOutcome("commit_succeeded", {"commit_sha": done.sha, "tree": tree, "branch": place.branch})


def _committed(opened: Worktree, entry: PatchEntry) -> Committed | Refusal:
    trailers = {"Interlock-Run": entry["run"]} | ({"Interlock-Task": entry["task"]} if entry["task"] else {})
    message = entry["context"].get("message") or entry["patch_id"]
    return commit(opened, str(entry["ledger_id"]), message, also=trailers)


def restore_worktree(runtime: Runtime, claimed: ClaimedEffect) -> Mapping[str, Any]:
    """Effect: remove an abandoned patch from the worktree, unless it is gone or another patch is there by now."""
    _, place = _looked_up(runtime, claimed)
    if place.repository is None or not place.path.is_dir():
        return {"restored": False}
    with renewed_lease(runtime, claimed):
        found = place.worktree()
        return {"restored": not isinstance(found, Refusal) and restore_after(found, claimed["workflow_id"], mine=True)}


def _looked_up(runtime: Runtime, claimed: ClaimedEffect) -> tuple[PatchEntry, Workplace]:
    with transaction(runtime.database) as connection:
        entry = patches.entry(connection, claimed["workflow_id"])
        return entry, workspace.of_workstream(connection, entry["workstream_id"], runtime.settings)
