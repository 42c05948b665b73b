"""A patch's way through the ledger: submitted by its task, then checked, applied and committed by effects (SSOT 2.2).

Each effect looks at the worktree and brings it to the end asked for, so running it again after a crash is harmless. Of
one workstream's effects only one runs at a time (`exclusive`).
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from db import instances, overrides, patches, plans
from db.connect import transaction
from workers import births
from workers.births import Birth
from workers.lease import kept
from workers.orchestration import workplace
from workers.orchestration.material import named
from workers.orchestration.tenancy import clear, restore_after
from workers.orchestration.workplace import Workplace
from workers.repository.applying import Applied, Committed, apply, commit
from workers.repository.checking import Checked, check
from workers.repository.git import Identity
from workers.repository.outcomes import Conflict, Refusal
from workers.repository.staging import TRIES
from workers.repository.worktree import Worktree
from workers.runtime import Runtime
from workers.told import Told
from workflows.errors import BadInput, InterlockError, Refused

COMMITTER = Identity()


class NotOver(Refused):
    """A patch is mended by a new one, once it was set aside, in a workstream that goes on; nothing was written."""


class PatchLost(InterlockError):
    """A patch that was verified is no longer in its worktree, and does not fit there any more; the message says why.
    Mend the worktree that it names: it is tried again, and quarantined once its attempts are used up."""


def submit(runtime: Runtime, task: Mapping[str, Any]) -> UUID:
    """Put the patch of a task into the ledger. Again, as after a crash: the same entry, until nothing comes of it.

    Args:
        runtime: whose database.
        task: its `task_id`; the task's context names the patch.

    Returns:
        The ledger entry's id.

    Raises:
        BadInput: the task has no patch.
    """
    with transaction(runtime.database) as connection:
        found = patches.of_task(connection, task["task_id"])
        alive = [each for each in found["ledgers"] if each["state"] not in patches.OVER]
        if alive:
            return UUID(alive[-1]["id"])
        delivered = births.deliver(connection, [birth := _birth(runtime, found)])
    runtime.hints.effects(delivered.effects_due)
    return birth.id if birth.id in delivered.new else submit(runtime, task)  # another was quicker


def create(runtime: Runtime, based_on: str, text: str | None, *, by: str, workstream: str | None = None) -> RowMapping:
    """Put a mended patch into the ledger, linked by `retry_of` to the one it is based on (SSOT 2.5.4).

    Args:
        runtime: whose database.
        based_on: the ledger entry that was set aside, by name or id.
        text: the mended diff; None: as it was, to be tried once more.
        by: who made it.
        workstream: where it is to land; None: where the old one was to.

    Returns:
        The new entry's instance; the scheduler has it checked, applied, tested and committed.

    Raises:
        NotOver: the old one may still be committed, or the workstream has ended.
        BadInput: the text is empty or too large.
        UnknownInstance, AmbiguousInstance: no such entry or workstream, or several.
    """
    with transaction(runtime.database) as connection:
        old = patches.find(connection, based_on)
        if old["state"] not in patches.OVER:
            raise NotOver(f"{old['entity_id']} is {old['state']}; a new patch is made of one that was set aside")
        home = instances.find(connection, workstream or str(old["workstream_id"]))
        if home["workflow_type"] != "workstream" or home["current_state"] in workplace.ENDED:
            raise NotOver(
                f"{home['entity_id']} is {home['current_state']}: name a workstream that has not ended (--workstream), "
                f"or run the plan again (interlock run resume {old['run']})"
            )
        patch = named([("", text if text is not None else old["body"])])
        plans.keep_patches(connection, patch.texts, created_by=by)
        base = old["entity_id"].partition("~")[0][:90]
        birth = Birth(
            definition=runtime.catalogue.get("patch_ledger"),
            entity_id=overrides.free_name(connection, old["project_id"], "patch_ledger", base),
            project_id=old["project_id"],
            created_by=by,
            context={
                "patch_id": patch.of_task[""],
                "workstream_id": str(home["id"]),
                "run_id": home["context"].get("run_id"),
                "message": old["context"].get("message") or old["entity_id"],
                "retry_of": str(old["ledger_id"]),
            },
        )
        delivered = births.deliver(connection, [birth])
        made = instances.find(connection, str(birth.id))
    runtime.hints.effects(delivered.effects_due)
    return made


def _birth(runtime: Runtime, task: RowMapping) -> Birth:
    context, before = task["context"], task["ledgers"]
    if not context.get("patch_id"):
        raise BadInput(f"task {task['entity_id']} has no patch: its context has no patch_id")
    says = {
        "patch_id": context["patch_id"],
        "workstream_id": str(task["workstream_id"]),
        "task_id": str(task["task_id"]),
        "run_id": str(task["run_id"]),
        "message": context.get("message") or task["entity_id"],
        "gates": task["gates"],
    }
    says |= {"phase_id": context["phase_id"]} if "phase_id" in context else {}
    says |= {"retry_of": before[-1]["id"]} if before else {}
    return Birth(
        definition=runtime.catalogue.get("patch_ledger"),
        entity_id=f"{task['entity_id'][:90]}^{len(before) + 1}",
        project_id=task["project_id"],
        created_by="crew",
        context=says,
    )


def validate_patch(runtime: Runtime, claimed: RowMapping) -> Told:
    """Effect: is it a diff, does it stay in scope, is it allowed (SSOT 2.2.4, created → validated)?"""
    entry, place = _looked_up(runtime, claimed)
    if place.repository is None:
        return Told("validation_failed", {"reason": "the plan has no repository for a patch to land in"})
    found = check(entry["body"], place.policy)
    verdicts = {"format": found.format, "scope": found.scope, "constraints": found.constraints}
    if found.passed:
        return Told("validation_passed", {"validation_results": verdicts})
    files = sorted({each.file for each in found.reasons if each.file})
    return Told("validation_failed", {"validation_results": verdicts, "reason": str(found), "files": files})


def apply_patch(runtime: Runtime, claimed: RowMapping) -> Told:
    """Effect: `git apply` in the workstream's worktree; each further try may go about it in one way more.

    Raises:
        WorktreeTaken, GitFault, RepositoryBusy: see there; it is tried again.
    """
    entry, place = _looked_up(runtime, claimed)
    if place.ended or place.repository is None:
        return Told("apply_failed", {"reason": f"workstream {place.name} is {place.state}", "files": []})
    tried = entry["apply_retries"] + 1
    with kept(runtime, claimed):
        outcome = _applied(runtime, place, entry, tried)
    if isinstance(outcome, Applied):
        return Told("apply_succeeded", {"try": tried, "way": outcome.way, "files": list(outcome.paths)})
    files = list(outcome.files) if isinstance(outcome, Conflict) else []
    return Told("apply_failed", {"try": tried, "reason": str(outcome), "files": files})


def _applied(
    runtime: Runtime, place: Workplace, entry: RowMapping, tried: int
) -> Applied | Conflict | Checked | Refusal:
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


def commit_patch(runtime: Runtime, claimed: RowMapping) -> Told:
    """Effect: commit the verified patch to its workstream's branch, then put the worktree back (SSOT 2.2.4).

    Returns:
        `commit_succeeded` with the commit; `commit_failed` where its workstream has ended meanwhile.

    Raises:
        PatchLost, WorktreeTaken, GitFault, RepositoryBusy: see there; it is tried again.
    """
    entry, place = _looked_up(runtime, claimed)
    if place.ended:  # its branch is gone, or goes: nothing that is committed there lands any more
        return Told("commit_failed", {"reason": f"workstream {place.name} is {place.state}"})
    with kept(runtime, claimed):
        opened = place.opened()
        if isinstance(opened, Refusal):
            raise PatchLost(str(opened))
        done = _committed(opened, entry)
        if isinstance(done, Refusal):  # somebody removed the worktree: once more, from the same commit
            found = _applied(runtime, place, entry, len(TRIES))
            done = _committed(opened, entry) if isinstance(found, Applied) else Refusal(str(found), "")
        if isinstance(done, Refusal):
            raise PatchLost(f"{place.path}: {done}")
        restore_after(opened, entry["ledger_id"])
    return Told("commit_succeeded", {"commit_sha": done.sha, "branch": place.branch})


def _committed(opened: Worktree, entry: RowMapping) -> Committed | Refusal:
    about = {"Interlock-Run": entry["run"]} | ({"Interlock-Task": entry["task"]} if entry["task"] else {})
    message = entry["context"].get("message") or entry["patch_id"]
    return commit(opened, str(entry["ledger_id"]), message, identity=COMMITTER, also=about)


def restore_worktree(runtime: Runtime, claimed: RowMapping) -> Mapping[str, Any]:
    """Effect: take a patch that was given up out of the worktree, unless it is gone or another's by now."""
    _, place = _looked_up(runtime, claimed)
    if place.repository is None or not place.path.is_dir():
        return {"restored": False}
    with kept(runtime, claimed):
        found = place.worktree()
        return {"restored": not isinstance(found, Refusal) and restore_after(found, claimed["workflow_id"], mine=True)}


def _looked_up(runtime: Runtime, claimed: RowMapping) -> tuple[RowMapping, Workplace]:
    with transaction(runtime.database) as connection:
        entry = patches.entry(connection, claimed["workflow_id"])
        return entry, workplace.of_workstream(connection, entry["workstream_id"], runtime.settings)
