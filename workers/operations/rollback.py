"""Rolls a committed patch back: first the compensation and, if all of it succeeded, the ledger's `roll_back` (PATCH-6).

If a required action fails, repository and ledger stay as they were. After a crash between the two, a repeated call
completes the rollback: it finds the reverts by their trailers.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration import patches
from interlock.db.orchestration.patches import PatchEntry
from interlock.workers.client.receipts import require_version
from interlock.workers.effects import workspace
from interlock.workers.effects.workspace import Workplace
from interlock.workers.git import branches, repository, revert
from interlock.workers.git.repository import Repository
from interlock.workers.git.results import Refusal
from interlock.workers.git.rollback import compensate
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.git.worktree import follow
from interlock.workers.operations.rollback_checks import callbacks_of
from interlock.workers.overrides.transaction import (
    Done,
    MadeMove,
    OverrideOrder,
    again_if_collided,
    operating,
    require_operator,
)
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, InterlockError, Refused
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered


class CannotRollBack(Refused):
    """Only a committed patch of a workstream with a repository can be rolled back; nothing was done."""


class CompensationFailed(InterlockError):
    """An action or validation that the plan requires failed; repository and ledger are as they were. Correct what the
    message names, or the plan, and ask again."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A rolled back patch, and what was done for it."""

    ledger_id: UUID
    entity_id: str
    compensation: Mapping[str, Any]
    moves: tuple[MadeMove, ...] = field(default=(), compare=False)


@door
def roll_back(
    runtime: Runtime,
    ledger_ref: str | UUID,
    plan: CompensationPlan | None = None,
    *,
    by: str,
    reason: str,
    mended: str | None = None,
) -> RolledBack:
    """Carry out a compensation plan, then record it in the ledger. Does nothing if the patch is already rolled back.

    Args:
        runtime: whose database and settings.
        ledger_ref: the ledger entry, by name or id.
        plan: what to do (PATCH-12); None: as `compensation_plan` says.
        by: the operator responsible for it.
        reason: why.
        mended: instead of a plan, the commit by which people undid the patch (RECOVER-12); the gates must pass.

    Raises:
        CannotRollBack: the patch is not committed, the plan names another branch, or neither a required revert of the
            plan nor the people's commit undoes this patch; nothing was done.
        BadInput: `mended` is not a commit's name, or a plan is given as well.
        CompensationFailed: a required action failed; nothing was changed.
        NotAnOperator: `by` is not an operator; nothing was done.
        UnknownInstance, AmbiguousInstance: no such entry, or several.
        RepositoryBusy, GitFault: try again.
    """
    order = OverrideOrder(by, reason)
    entry, where = _found(runtime, ledger_ref)
    if entry["state"] == "rolled_back":
        return RolledBack(entry["ledger_id"], entry["entity_id"], entry["rollback_compensation"] or {})
    _require_committed(entry, where)
    with transaction(runtime.database) as connection:
        require_operator(connection, by, "rollback-patch", entry["ledger_id"])
    plan = _planned(runtime, entry, where, plan, mended)
    _require_its_own(plan, entry, where)
    done = compensate(
        where.checkout,
        plan,
        str(entry["ledger_id"]),
        callbacks_of(runtime, entry, where),
        branch=_branch(plan, entry, where),
        scratch=workspace.worktrees(runtime.settings, where.account),
        isolation=where.isolation,
    )
    if isinstance(done, Refusal):
        raise CannotRollBack(str(done))
    if not done.success:
        raise CompensationFailed(f"{entry['entity_id']}: {done.error}")
    if not isinstance(tree := where.worktree(), Refusal):
        follow(tree)
    actions = [{"action": each.action, "required": each.required, **asdict(each.verdict)} for each in done.actions]
    outcome = {"actions": actions, "sha": plan.commit_sha or done.sha, "already": done.already}
    metadata = {"plan": plan.model_dump(mode="json"), **outcome}
    fired = _fire(runtime, entry, metadata, order)
    return RolledBack(entry["ledger_id"], entry["entity_id"], metadata, tuple(fired.moves))


@door
def override_roll_back(
    runtime: Runtime, ref: str, order: OverrideOrder, plan: CompensationPlan | None = None, mended: str | None = None
) -> Done:
    """`roll_back` with an override's result. Raises as `roll_back`, and `VersionConflict` before anything is done.

    A dry run lists what would be done, and that it was not tried.
    """
    with transaction(runtime.database) as connection:
        require_version(instances.find(connection, ref, runtime.settings.project, "patch_ledger"), order.if_version)
    if not order.dry_run:
        rolled = roll_back(runtime, ref, plan, by=order.by, reason=order.reason, mended=mended)
        notes = [f"{each['action']}: {each['message']}" for each in rolled.compensation["actions"]]
        return Done(dry_run=False, moves=list(rolled.moves), notes=notes)
    entry, where = _found(runtime, ref)
    _require_committed(entry, where)
    plan = _planned(runtime, entry, where, plan, mended)
    _require_its_own(plan, entry, where)
    done = _fire(runtime, entry, {"plan": plan.model_dump(mode="json")}, order)
    done.notes += [f"first, not tried now: {each.model_dump_json()}" for each in plan.actions]
    done.notes += [f"then, not run now: gate {each} has to pass" for each in plan.validation.required_gates]
    return done


@door
def compensation_plan(runtime: Runtime, ledger_ref: str | UUID) -> CompensationPlan:
    """A default plan: revert the commit on the branch it is on now, and require the gates that it passed to pass again.

    Raises:
        CannotRollBack: it is not committed.
        UnknownInstance, AmbiguousInstance: no such entry, or several.
    """
    entry, where = _found(runtime, ledger_ref)
    _require_committed(entry, where)
    return _generated(runtime, entry, where)


def _planned(
    runtime: Runtime, entry: PatchEntry, where: Workplace, plan: CompensationPlan | None, mended: str | None
) -> CompensationPlan:
    if mended is None:
        return plan or _generated(runtime, entry, where)
    if plan:
        raise BadInput(
            "give a plan or --commit-sha, not both: the plan of a manual fix can name the commit (commit_sha)"
        )
    made = _generated(runtime, entry, where).model_dump(mode="json")
    notices = [each for each in made["actions"] if each["action"] != "git_revert"]
    try:
        return CompensationPlan.model_validate(
            made | {"compensation_type": "manual_fix", "commit_sha": mended, "actions": notices}
        )
    except ValidationError as error:
        raise BadInput(f"--commit-sha {mended!r} is not a commit id: 7 to 64 hexadecimal digits") from error


def _generated(runtime: Runtime, entry: PatchEntry, where: Workplace) -> CompensationPlan:
    with transaction(runtime.database) as connection:
        gates = patches.gates_of_run(connection, entry["run_id"])
    passed = {
        each["gate_type"]
        for each in gates
        if each["workstream_id"] == entry["workstream_id"] and each["state"] == "PASSED"
    }
    git_revert = {"action": "git_revert", "commit_sha": entry["commit_sha"], "branch": _carrying(entry, where)}
    notice = {"action": "notify", "channels": ["all"]}
    return CompensationPlan.model_validate(
        {
            "compensation_type": "git_revert",
            "actions": [git_revert, *([notice] if runtime.settings.notify_urls else [])],
            "validation": {"required_gates": sorted(passed), "verify_clean_state": True},
        }
    )


def _found(runtime: Runtime, ledger_ref: str | UUID) -> tuple[PatchEntry, Workplace]:
    with transaction(runtime.database) as connection:
        entry = patches.find(connection, ledger_ref, runtime.settings.project)
        return entry, workspace.of_workstream(connection, entry["workstream_id"], runtime.settings)


def _require_committed(entry: PatchEntry, where: Workplace) -> None:
    if entry["state"] != "committed":
        raise CannotRollBack(f"only a committed patch can be rolled back; {entry['entity_id']} is {entry['state']}")
    if where.repository is None:
        raise CannotRollBack(f"the plan of {entry['entity_id']} has no repository")


def _commit_of(entry: PatchEntry) -> str:
    assert entry["commit_sha"], f"{entry['entity_id']} is committed, so it has a commit"
    return entry["commit_sha"]


def _require_its_own(plan: CompensationPlan, entry: PatchEntry, where: Workplace) -> None:
    """Require that the plan undoes this patch; otherwise the ledger would be wrong about it."""
    commit, git = _commit_of(entry), _repository(where).git()
    branch = _branch(plan, entry, where)
    tip = branches.tip(git, branch)
    if plan.commit_sha and not (tip and revert.mends(git, plan.commit_sha, commit, tip)):
        raise CannotRollBack(
            f"{plan.commit_sha} does not undo {entry['entity_id']}: it must be a commit of {branch} that comes after "
            f"{commit} and changes a file that {commit} changed"
        )
    if plan.reverts and not any(revert.takes_back(git, each, commit) for each in plan.reverts if each.required):
        raise CannotRollBack(
            f"no required git_revert of the plan reverts {entry['entity_id']}, which is commit {commit} "
            f"({offered('patch', 'plan', entry['ledger_id'])} makes a plan that does)"
        )


def _branch(plan: CompensationPlan, entry: PatchEntry, where: Workplace) -> str:
    if plan.reverts:
        return plan.reverts[0].branch
    return _carrying(entry, where) if plan.commit_sha else where.base_branch


def _carrying(entry: PatchEntry, where: Workplace) -> str:
    """The branch with the patch's commit: the base branch if its workstream has landed, otherwise the workstream's."""
    git = _repository(where).git()
    base = branches.tip(git, where.base_branch)
    return where.base_branch if base and branches.contains(git, base, _commit_of(entry)) else where.branch


def _repository(where: Workplace) -> Repository:
    found = repository.find(where.checkout)
    if isinstance(found, Refusal):
        raise CannotRollBack(str(found))
    return found


@again_if_collided
def _fire(runtime: Runtime, entry: PatchEntry, compensation: Mapping[str, Any], order: OverrideOrder) -> Done:
    """Fire `roll_back` on the ledger entry. Its guards are checked, because it leaves a terminal state (POLICY-6)."""
    with operating(runtime, order, "rollback-patch", entry["ledger_id"]) as operation:
        instance = operation.find(entry["ledger_id"])
        if instance["current_state"] != "rolled_back":  # otherwise another caller has done it meanwhile
            metadata = {"authorized_by": order.by, "compensation": compensation}
            operation.fire(operation.enter(entry["run_id"], instance), "roll_back", "rolled_back", metadata)
    return operation.done
