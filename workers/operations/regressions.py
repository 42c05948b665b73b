"""The effects of a regression: find the patch that made a gate fail, and roll it back (docs/spec/regression.md)."""

from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core.effects import ClaimedEffect
from interlock.db.operations import operators
from interlock.db.orchestration import commands, patches, regressions
from interlock.db.orchestration.regressions import RegressionSearch
from interlock.workers.effects import workspace
from interlock.workers.effects.lease import renewed_lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.git.rollback_plan import CompensationPlan, RunTests
from interlock.workers.operations import bisect, rollback
from interlock.workers.operations.bisect import NothingToFind, Regression
from interlock.workers.operations.rollback import RolledBack
from interlock.workers.operations.rollbacks import carried_out
from interlock.workers.runtime import Runtime


def find_culprit(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome:
    """Effect: bisect the run's patches on the base branch with the failed gate's command (PATCH-14).

    Returns:
        `culprit_found` with the patch and the evidence; `roll_back_allowed` if the plan says `roll_back` and an
        operator submitted it; `nothing_found` with the reason.

    Raises:
        RepositoryBusy, GitFault: try again.
    """
    with transaction(runtime.database) as connection:
        of = regressions.search(connection, claimed["workflow_id"])
    try:
        with renewed_lease(runtime, claimed):
            found = _found(runtime, of)
    except NothingToFind as nothing:
        return EffectOutcome("nothing_found", {"reason": str(nothing)})
    return _judged(runtime, of, found)


def roll_back_culprit(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome:
    """Effect: roll the patch back as `rollback.roll_back` does, by whoever decided on it (PATCH-6).

    Beside the gates that a rollback requires, the gate that failed has to pass on the reverted tree.

    Raises:
        CompensationFailed, StillDeciding, RepositoryBusy, GitFault: try again.
    """
    with transaction(runtime.database) as connection:
        of = regressions.search(connection, claimed["workflow_id"])
        decided = regressions.decided(connection, of["id"], claimed["version"])
    if (ledger_id := decided["ledger_id"]) is None:  # an operator's override led here
        return EffectOutcome("roll_back_failed", {"reason": "no search has found a patch to roll back"})
    reason = f"it broke gate {of['gate']} (regression {of['entity_id']})"  # its history says who decided, and why

    def make() -> RolledBack:
        plan = _plan(runtime, ledger_id, of["gate"])
        return rollback.roll_back(runtime, ledger_id, plan, by=decided["by"], reason=reason)

    return carried_out(runtime, claimed, ledger_id, make)


def _found(runtime: Runtime, of: RegressionSearch) -> Regression:
    with transaction(runtime.database) as connection:
        row = commands.of(connection, of["gate_id"])
        entries = patches.committed(connection, run=of["run_id"])
        if row is None or not entries:
            raise NothingToFind("its gate has no command, or its run has no committed patch any more")
        where = workspace.of_workstream(connection, entries[0]["workstream_id"], runtime.settings)
    return bisect.bisected(entries, where, row, name=of["run"])


def _judged(runtime: Runtime, of: RegressionSearch, found: Regression) -> EffectOutcome:
    """Which trigger follows from the result of a search."""
    commit = f"commit {found.commit_sha} ({found.subject})"
    if found.among:
        message = f"{commit} or one of {', '.join(found.among)} broke {of['gate']}, which could not judge all of them"
        return EffectOutcome("nothing_found", {"reason": message})
    if found.ledger_id is None:
        return EffectOutcome("nothing_found", {"reason": f"{commit} broke {of['gate']}; it is no patch of this run"})
    with transaction(runtime.database) as connection:
        other = regressions.blame(connection, of, found.ledger_id)
        entry = patches.entry(connection, found.ledger_id)
        repository = workspace.of_workstream(connection, entry["workstream_id"], runtime.settings).repository
        operator = of["submitted_by"] in operators.current(connection, [of["submitted_by"]])
    message = f"patch {found.entry} broke {of['gate']}"
    if other:
        return EffectOutcome("nothing_found", {"reason": f"{message}; regression {other} has found it already"})
    evidence = _evidence(of, found)
    if repository is None or repository.regressions != "roll_back":
        return EffectOutcome("culprit_found", evidence | {"reason": message})
    if operator:
        allowed = f"{message}, and the plan of {of['submitted_by']} says to roll it back"
        return EffectOutcome("roll_back_allowed", evidence | {"reason": allowed, "authorized_by": of["submitted_by"]})
    only = f"{message}; an operator has to decide, because {of['submitted_by']}, who submitted the plan, is none"
    return EffectOutcome("culprit_found", evidence | {"reason": only})


def _evidence(of: RegressionSearch, found: Regression) -> dict[str, Any]:
    return {
        "patch": found.entry,
        "ledger_id": str(found.ledger_id),
        "commit_sha": found.commit_sha,
        "subject": found.subject,
        "workstream": found.workstream,
        "gate": of["gate"],
        "exit_code": of["exit_code"],
        "output": of["output"],
        "tried": found.tried,
    }


def _plan(runtime: Runtime, ledger_id: UUID, gate: str) -> CompensationPlan | None:
    """The plan of a rollback, with the failed gate; None if the patch is not committed: `roll_back` judges that."""
    with transaction(runtime.database) as connection:
        if patches.state_of(connection, ledger_id) != "committed":
            return None
    plan = rollback.compensation_plan(runtime, ledger_id)
    test = RunTests(action="run_tests", test_suite=gate, required=True)
    return plan.model_copy(update={"actions": (*plan.actions, test)})
