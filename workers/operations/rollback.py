"""Take a committed patch back: the compensation first, and once all of it held the ledger's `roll_back` (SSOT 2.5).

A required action that fails leaves repository and ledger as they were. A crash between the two is completed by asking
again: the reverts are found by their trailers.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import RowMapping

from db import instances, patches
from db.connect import transaction
from workers.orchestration import workplace
from workers.orchestration.means import means_of
from workers.orchestration.patches import COMMITTER
from workers.orchestration.workplace import Workplace
from workers.overrides.operation import Done, Move, Order, operating, require_operator
from workers.repository import branches, place, reverting
from workers.repository.compensation import Compensation, compensate
from workers.repository.outcomes import Refusal
from workers.repository.place import Repository
from workers.repository.plan import CompensationPlan
from workers.runtime import Runtime
from workflows.errors import BadInput, InterlockError, Refused


class CannotRollBack(Refused):
    """Only a committed patch of a workstream with a repository can be rolled back; nothing was done."""


class CompensationFailed(InterlockError):
    """An action or validation that the plan requires failed; repository and ledger are as they were. Correct what the
    message names, or the plan, and ask again."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A patch that is rolled back, and what was done for it."""

    ledger_id: UUID
    entity_id: str
    compensation: Mapping[str, Any]
    moves: tuple[Move, ...] = field(default=(), compare=False)


def roll_back(
    runtime: Runtime,
    ledger_ref: str | UUID,
    plan: CompensationPlan | None = None,
    *,
    by: str,
    reason: str,
    mended: str | None = None,
) -> RolledBack:
    """Carry out a compensation plan, then say so in the ledger. A patch that is rolled back already is left alone.

    Args:
        runtime: whose database and settings.
        ledger_ref: the ledger entry, by name or id.
        plan: what to do (SSOT 2.5.3); None: as `compensation_plan` says.
        by: the operator who answers for it.
        reason: why.
        mended: instead of a plan, the commit by which people took it back by hand (SSOT 5.3.2): the gates must pass.

    Raises:
        CannotRollBack: it is not committed, the plan names another branch, or none of its required reverts, nor what
            people made, takes this patch back; nothing was done.
        BadInput: `mended` is no commit's name, or there is a plan too.
        CompensationFailed: a required action failed; nothing was changed.
        NotAnOperator: `by` is none; nothing was done.
        UnknownInstance, AmbiguousInstance: no such entry, or several.
        RepositoryBusy, GitFault: try again.
    """
    order = Order(by, reason)
    entry, where = _found(runtime, ledger_ref)
    if entry["state"] == "rolled_back":
        return RolledBack(entry["ledger_id"], entry["entity_id"], entry["rollback_compensation"])
    _require_committed(entry, where)
    with transaction(runtime.database) as connection:
        require_operator(connection, by)
    plan = _planned(runtime, entry, where, plan, mended)
    _require_its_own(plan, entry, where)
    done = compensate(
        where.checkout,
        plan,
        str(entry["ledger_id"]),
        means_of(runtime, entry),
        branch=_branch(plan, entry, where),
        scratch=runtime.settings.worktrees_directory,
        identity=COMMITTER,
    )
    if isinstance(done, Refusal):
        raise CannotRollBack(str(done))
    if not done.success:
        raise CompensationFailed(f"{entry['entity_id']}: {done.error}")
    says = {"plan": plan.model_dump(mode="json"), **_told(done)} | ({"sha": plan.commit_sha} if plan.commit_sha else {})
    told = _fire(runtime, entry, says, order)
    return RolledBack(entry["ledger_id"], entry["entity_id"], says, tuple(told.moves))


def override_roll_back(
    runtime: Runtime, ref: str, order: Order, plan: CompensationPlan | None = None, mended: str | None = None
) -> Done:
    """`roll_back` as an override tells of it; a dry run only names what would be done. Raises as `roll_back`."""
    if not order.dry_run:
        rolled = roll_back(runtime, ref, plan, by=order.by, reason=order.reason, mended=mended)
        notes = [f"{each['action']}: {each['says']}" for each in rolled.compensation["actions"]]
        return Done(dry_run=False, moves=list(rolled.moves), notes=notes)
    entry, where = _found(runtime, ref)
    _require_committed(entry, where)
    plan = _planned(runtime, entry, where, plan, mended)
    _require_its_own(plan, entry, where)
    done = _fire(runtime, entry, {"plan": plan.model_dump(mode="json")}, order)
    done.notes += [f"first: {each.model_dump_json()}" for each in plan.actions]
    done.notes += [f"first: gate {each} passes" for each in plan.validation.required_gates]
    return done


def compensation_plan(runtime: Runtime, ledger_ref: str | UUID) -> CompensationPlan:
    """A plan to begin with: revert the commit where it is now, and let the gates that it passed pass again.

    Raises:
        CannotRollBack: it is not committed.
        UnknownInstance, AmbiguousInstance: no such entry, or several.
    """
    entry, where = _found(runtime, ledger_ref)
    _require_committed(entry, where)
    return _generated(runtime, entry, where)


def _planned(
    runtime: Runtime, entry: RowMapping, where: Workplace, plan: CompensationPlan | None, mended: str | None
) -> CompensationPlan:
    if mended is None:
        return plan or _generated(runtime, entry, where)
    if plan:
        raise BadInput("a plan or a commit: the plan of what was mended by hand can name it (commit_sha)")
    made = _generated(runtime, entry, where).model_dump(mode="json")
    notices = [each for each in made["actions"] if each["action"] != "git_revert"]
    try:
        return CompensationPlan.model_validate(
            made | {"compensation_type": "manual_fix", "commit_sha": mended, "actions": notices}
        )
    except ValidationError as error:
        raise BadInput(f"--commit-sha {mended!r} is no commit's name: 7 to 64 hexadecimal digits") from error


def _generated(runtime: Runtime, entry: RowMapping, where: Workplace) -> CompensationPlan:
    with transaction(runtime.database) as connection:
        gates = patches.gates_of_run(connection, entry["run_id"])
    passed = {
        each["gate_type"]
        for each in gates
        if each["workstream_id"] == entry["workstream_id"] and each["state"] == "PASSED"
    }
    revert = {"action": "git_revert", "commit_sha": entry["commit_sha"], "branch": _carrying(entry, where)}
    notice = {"action": "notify", "channels": ["all"]}
    return CompensationPlan.model_validate(
        {
            "compensation_type": "git_revert",
            "actions": [revert, *([notice] if runtime.settings.notify_urls else [])],
            "validation": {"required_gates": sorted(passed), "verify_clean_state": True},
        }
    )


def _found(runtime: Runtime, ledger_ref: str | UUID) -> tuple[RowMapping, Workplace]:
    with transaction(runtime.database) as connection:
        instance = instances.find(connection, str(ledger_ref))
        if instance["workflow_type"] != "patch_ledger":
            raise CannotRollBack(f"{instance['entity_id']} is a {instance['workflow_type']}, no patch ledger entry")
        entry = patches.entry(connection, instance["id"])
        return entry, workplace.of_workstream(connection, entry["workstream_id"], runtime.settings)


def _require_committed(entry: RowMapping, where: Workplace) -> None:
    if entry["state"] != "committed":
        raise CannotRollBack(f"only a committed patch can be rolled back; {entry['entity_id']} is {entry['state']}")
    if where.repository is None:
        raise CannotRollBack(f"the plan of {entry['entity_id']} has no repository")


def _require_its_own(plan: CompensationPlan, entry: RowMapping, where: Workplace) -> None:
    """Else the ledger would say of this patch what was done to another."""
    commit, git = entry["commit_sha"], _repository(where).git()
    branch = _branch(plan, entry, where)
    tip = branches.tip(git, branch)
    if plan.commit_sha and not (tip and reverting.mends(git, plan.commit_sha, commit, tip)):
        raise CannotRollBack(
            f"{plan.commit_sha} did not take {entry['entity_id']} back: it is no commit of {branch} that came after "
            f"{commit} and changes a file that that one changed"
        )
    if plan.reverts and not any(reverting.takes_back(git, each, commit) for each in plan.reverts if each.required):
        raise CannotRollBack(
            f"no required git_revert of the plan takes {entry['entity_id']} back: it is commit {commit} "
            f"(`interlock patch plan {entry['entity_id']}` makes a plan that does)"
        )


def _branch(plan: CompensationPlan, entry: RowMapping, where: Workplace) -> str:
    if plan.reverts:
        return plan.reverts[0].branch
    return _carrying(entry, where) if plan.commit_sha else where.base_branch


def _carrying(entry: RowMapping, where: Workplace) -> str:
    """The branch with the patch's commit: the base branch once its workstream has landed, its own before."""
    git = _repository(where).git()
    base = branches.tip(git, where.base_branch)
    return where.base_branch if base and branches.contains(git, base, entry["commit_sha"]) else where.branch


def _repository(where: Workplace) -> Repository:
    found = place.find(where.checkout)
    if isinstance(found, Refusal):
        raise CannotRollBack(str(found))
    return found


def _told(done: Compensation) -> dict[str, Any]:
    actions = [{"action": each.action, "required": each.required, **asdict(each.verdict)} for each in done.actions]
    return {"actions": actions, "sha": done.sha, "already": done.already}


def _fire(runtime: Runtime, entry: RowMapping, compensation: Mapping[str, Any], order: Order) -> Done:
    """Tell the ledger, whose guards are asked: this leaves a terminal state (SSOT 8.2.3)."""
    with operating(runtime, order) as operation:
        instance = operation.find(entry["ledger_id"])
        if instance["current_state"] != "rolled_back":  # else another did the same meanwhile
            says = {"authorized_by": order.by, "compensation": compensation}
            operation.fire(operation.enter(entry["run_id"], instance), "roll_back", "rolled_back", says)
    return operation.done
