"""A patch in the patch ledger: submitted by its task, then checked, applied and committed by effects (PATCH-1).

Each effect reads the worktree's state and goes on from there, so running it again after a crash is harmless. Only one
effect of a workstream runs at a time (`exclusive`).
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import operators, overrides
from interlock.db.orchestration import commands, patches, plans, workspaces
from interlock.db.orchestration.commands import CommandRow, Origin
from interlock.workers.effects import workspace
from interlock.workers.effects.lease import renewed_lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.plan_files import named
from interlock.workers.effects.workspace import Workplace
from interlock.workers.effects.worktree_owner import clear, restore_after
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.git import branches
from interlock.workers.git.apply import AppliedPatch, Committed, apply, commit
from interlock.workers.git.policy import Checked, check
from interlock.workers.git.results import Conflict, Refusal
from interlock.workers.git.trial_index import TRIES
from interlock.workers.git.worktree import Worktree
from interlock.workers.runtime import Runtime
from interlock.workflows.authority import WHO
from interlock.workflows.errors import Attempt, BadInput, InterlockError, NotYours, Refused
from interlock.workflows.input import names
from interlock.workflows.input.arguments import FreeText, door
from interlock.workflows.input.names import likeness
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED

NOT_REQUESTED = (
    "neither a plan nor an operator asked for this patch to land, nor does it mend one that a plan asked for"
)


class NotOver(Refused):
    """Only a patch that was set aside can be replaced, in a workstream that has not ended; nothing was written."""


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


@door
def judging(runtime: Runtime, ledger_id: UUID) -> list[str]:
    """The names of the gates that judge a corrected patch: those at the end of its workstream (PATCH-13)."""
    with transaction(runtime.database) as connection:
        return patches.gates_at_end(connection, ledger_id)


@door
def create(
    runtime: Runtime, based_on: str, text: FreeText | None, *, by: str, reason: str, workstream: str | None = None
) -> InstanceRow:
    """Put a corrected patch into the ledger, linked by `retry_of` to the entry it replaces (PATCH-13).

    If the old patch's task has gates, or for another workstream, only an operator may: no gate judges a correction.

    Args:
        runtime: whose database.
        based_on: the ledger entry that was set aside, by name or id.
        text: the corrected diff; None: the old diff, to be tried once more.
        by, reason: who made it, and why; kept with the entry's command, which never changes.
        workstream: where it is to land; None: the workstream of the old entry.

    Returns:
        The new entry's instance. The scheduler has it checked, applied, tested and committed.

    Raises:
        NotOver: the old patch may still be committed, or the workstream has ended.
        NotYours: only an operator may, and `by` is not one.
        BadInput: the text is empty or too large, or the name or the reason is not valid.
        UnknownInstance, AmbiguousInstance: no such entry or workstream, or several.
    """
    names.name("by", by)
    names.reason("reason", reason)
    with transaction(runtime.database) as connection:
        old = patches.find(connection, based_on, runtime.settings.project)
        if old["state"] not in patches.OVER:
            raise NotOver(
                f"{old['entity_id']} is {old['state']}; only one that is {' or '.join(patches.OVER)} can be replaced"
            )
        home = instances.find(connection, workstream or old["workstream_id"], old["project"], "workstream")
        if home["current_state"] in ENDED["workstream"]:
            raise NotOver(
                f"{home['entity_id']} is {home['current_state']}: name a workstream that has not ended (--workstream), "
                f"or run the plan again ({offered('run', 'resume', old['run_id'])})"
            )
        task = _ungated_task(connection, old, home["id"])
        if task is None and not operators.current(connection, [by]):
            tried = {"triggered_by": by, "attempted": "patch create", "workflow_id": old["ledger_id"]}
            raise NotYours(
                f"{by} may not correct {old['entity_id']} in {home['entity_id']}: a task's gates do not judge a "
                f"correction, nor those of another workstream. Who may: {WHO['operator']}",
                Attempt("operate", [tried]),
            )
        patch = named([("", text if text is not None else old["body"])])
        plans.store_patches(connection, patch.texts, created_by=by)
        base = likeness(old["entity_id"].partition("~")[0][:90])
        birth = Birth(
            definition=runtime.catalogue.get("patch_ledger"),
            entity_id=overrides.free_name(connection, old["project"], "patch_ledger", base),
            project=old["project"],
            created_by=by,
            context={
                "patch_id": patch.of_task[""],
                "workstream_id": str(home["id"]),
                "run_id": home["context"].get("run_id"),
                "message": old["context"].get("message") or old["entity_id"],
                "retry_of": str(old["ledger_id"]),
            }
            | ({"task_id": task} if task else {}),
        )
        birth, delivered = creation.deliver_anyhow(connection, birth)
        row = CommandRow("patch", patch_id=patch.of_task[""], message=birth.context["message"])
        commands.store(
            connection,
            workspaces.of_workstream(connection, home["id"])["run_id"],
            {birth.id: row},
            Origin("mended", by, reason),
        )
        made = instances.by_id(connection, birth.id)
    runtime.wakeups.effects(delivered.effects_due)
    return made


def _ungated_task(connection: Connection, entry: RowMapping, workstream_id: UUID) -> str | None:
    """The task of an entry, if it is of this workstream and no gate judges it; otherwise None."""
    if entry["task_id"] is None or entry["workstream_id"] != workstream_id:
        return None
    return None if patches.of_task(connection, entry["task_id"])["gates"] else str(entry["task_id"])


def _birth(runtime: Runtime, task: RowMapping, row: CommandRow | None) -> Birth:
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
    metadata |= {"retry_of": before[-1]["id"]} if before else {}
    return Birth(
        definition=runtime.catalogue.get("patch_ledger"),
        entity_id=f"{likeness(task['entity_id'][:90])}^{len(before) + 1}",
        project=task["project"],
        created_by="crew",
        context=metadata,
    )


def validate_patch(runtime: Runtime, claimed: RowMapping) -> EffectOutcome:
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


def apply_patch(runtime: Runtime, claimed: RowMapping) -> EffectOutcome:
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
    runtime: Runtime, place: Workplace, entry: RowMapping, tried: int
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


def commit_patch(runtime: Runtime, claimed: RowMapping) -> EffectOutcome:
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


def _committed(opened: Worktree, entry: RowMapping) -> Committed | Refusal:
    trailers = {"Interlock-Run": entry["run"]} | ({"Interlock-Task": entry["task"]} if entry["task"] else {})
    message = entry["context"].get("message") or entry["patch_id"]
    return commit(opened, str(entry["ledger_id"]), message, also=trailers)


def restore_worktree(runtime: Runtime, claimed: RowMapping) -> Mapping[str, Any]:
    """Effect: remove an abandoned patch from the worktree, unless it is gone or another patch is there by now."""
    _, place = _looked_up(runtime, claimed)
    if place.repository is None or not place.path.is_dir():
        return {"restored": False}
    with renewed_lease(runtime, claimed):
        found = place.worktree()
        return {"restored": not isinstance(found, Refusal) and restore_after(found, claimed["workflow_id"], mine=True)}


def _looked_up(runtime: Runtime, claimed: RowMapping) -> tuple[RowMapping, Workplace]:
    with transaction(runtime.database) as connection:
        entry = patches.entry(connection, claimed["workflow_id"])
        return entry, workspace.of_workstream(connection, entry["workstream_id"], runtime.settings)
