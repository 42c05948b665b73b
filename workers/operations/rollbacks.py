"""Rollbacks that operators order, and that workers carry out (docs/spec/rollback.md)."""

from collections.abc import Callable
from secrets import token_hex
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.effects import ClaimedEffect
from interlock.db.core.instances import InstanceRow
from interlock.db.orchestration import patches, rollbacks
from interlock.workers.effects.lease import renewed_lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.operations.rollback import CannotRollBack, CompensationFailed, RolledBack, roll_back
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, Refused
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import ME, offered

COMPENSATION_TRIES = 3  # RECOVER-2: the base branch may move meanwhile, and a gate may be flaky
NAME_LEFT = 80  # of a name's 100 characters


@door
def order_rollback(
    runtime: Runtime, ref: str, order: OverrideOrder, plan: CompensationPlan | None = None, *, mended: str | None = None
) -> InstanceRow:
    """Have workers roll a committed patch back, as `roll_back` does it.

    Args:
        runtime: whose database and definitions.
        ref: the ledger entry, by name or id.
        order: the operator, and why.
        plan: what to do (PATCH-12); None: as `compensation_plan` says, when a worker begins.
        mended: instead of a plan, the commit by which people undid the patch (RECOVER-12).

    Returns:
        The rollback's instance: a new one, or the one of this patch that is under way, which is left as it is.

    Raises:
        NotAnOperator: `order.by` is none.
        CannotRollBack: the patch is not committed.
        BadInput: `mended` is not a commit's name, or a plan is given as well.
        UnknownInstance, AmbiguousInstance: no such entry, or several.
        CannotMove, StillDeciding: see `at_once`.
    """
    if plan and mended:
        raise BadInput("give a plan or a commit, not both: the plan of a manual fix can name the commit (commit_sha)")
    with at_once(runtime) as acting:
        found = instances.find(acting.connection, ref, runtime.settings.project, "patch_ledger")
        require_operator(acting.connection, order.by, "roll_back", found["id"], project=found["project"])
        entry = patches.entry(acting.connection, found["id"])
        if entry["state"] != "committed":
            raise CannotRollBack(f"only a committed patch can be rolled back; {entry['entity_id']} is {entry['state']}")
        if under_way := rollbacks.under_way(acting.connection, found["id"]):
            return instances.by_id(acting.connection, under_way)
        terms: dict[str, object] = {"run_id": str(entry["run_id"]), "ledger_id": str(found["id"])}
        terms |= {"plan": plan.model_dump(mode="json", exclude_none=True)} if plan else {}
        terms |= {"commit_sha": mended} if mended else {}
        if wrong := runtime.catalogue.get("rollback").wrong_fields(terms):
            raise BadInput("; ".join(wrong))
        name = f"{entry['entity_id'][:NAME_LEFT]}:{token_hex(4)}"
        made = acting.born("rollback", name, by=order.by, terms=terms, project=found["project"], proof=order.proof)
        acting.move(made, "roll_back", by=order.by, reason=order.reason, right=order.right)
        return instances.by_id(acting.connection, made)


def roll_back_patch(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome:
    """Effect: roll a patch back as `roll_back` does, by whoever ordered it.

    Raises:
        CompensationFailed, StillDeciding, RepositoryBusy, GitFault: try again.
    """
    with transaction(runtime.database) as connection:
        of = rollbacks.ordered(connection, claimed["workflow_id"], claimed["version"])
    plan = CompensationPlan.model_validate(of["plan"]) if of["plan"] else None
    reason = f"{of['reason']} (rollback {of['entity_id']})"
    return carried_out(
        runtime,
        claimed,
        of["ledger_id"],
        lambda: roll_back(runtime, of["ledger_id"], plan, by=of["by"], reason=reason, mended=of["commit_sha"]),
    )


def carried_out(
    runtime: Runtime, claimed: ClaimedEffect, ledger_id: UUID, make: Callable[[], RolledBack]
) -> EffectOutcome:
    """What becomes of an effect that rolls a patch back.

    Args:
        runtime, claimed: whose lease is renewed meanwhile.
        ledger_id: the patch.
        make: rolls it back.

    Raises:
        CompensationFailed: try again; after `COMPENSATION_TRIES`, it is `roll_back_failed`, as a refusal is at once.
    """
    try:
        with renewed_lease(runtime, claimed):
            done = make()
    except CompensationFailed as failed:
        if claimed["attempts"] < COMPENSATION_TRIES:
            raise
        return _failed(ledger_id, failed)
    except Refused as refused:
        return _failed(ledger_id, refused)
    return EffectOutcome("roll_back_succeeded", {"patch": done.entity_id, "compensation": done.compensation})


def _failed(ledger_id: UUID, error: Exception) -> EffectOutcome:
    by_hand = offered("playbook", "run", "emergency-rollback", ledger_id, by=ME, reason="WHY")
    return EffectOutcome("roll_back_failed", {"reason": f"{error}. Roll it back by hand: {by_hand}"})
