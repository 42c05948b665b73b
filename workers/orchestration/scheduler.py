"""The scheduler: finds what moved in a run, which instances that concerns, and the triggers to fire on them.

A pass locks the run, reads its signals (rows that say which instance moved), updates counts, and accepts the triggers
that pure functions name. If these are few, the engine applies them in the same transaction, and the pass goes on with
what they moved; otherwise the nodes apply them. The cost is proportional to what moved, not to the size of the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import collided, retryable, transaction
from interlock.db.core import effects, instances, requests, rounds
from interlock.db.core.request_rows import by_run, internal, own_id
from interlock.db.fast_path import Row
from interlock.db.orchestration import claim_triggers, claims, commands, regressions, scheduling
from interlock.workers.effects import intents
from interlock.workers.engine import creation
from interlock.workers.engine.applier import Applier, Round
from interlock.workers.engine.round_writes import LostRace
from interlock.workers.orchestration import signals
from interlock.workers.orchestration.signals import Moved
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.errors import UnknownWorkflow
from interlock.workflows.input.names import likeness
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.scheduling import next_trigger
from interlock.workflows.scheduling.next_trigger import Facts, NextStep

log = structlog.get_logger()
T = TypeVar("T")

BATCH = 5_000  # signals per pass
AT_ONCE = 16  # triggers that a pass applies itself; more are applied sooner by several nodes

NEXT_STEP_OF: Mapping[str, Callable[[Facts], NextStep | None]] = {
    "task": next_trigger.task,
    "test_gate": next_trigger.gate,
    "patch_ledger": next_trigger.patch,
    "workstream": next_trigger.workstream,
}


def schedule(runtime: Runtime, run_id: UUID) -> int:
    """Fire the triggers that a run's recent moves make due. Any process may call it, at any time.

    Returns:
        How many signals were read.

    Raises:
        DBAPIError: the infrastructure failed; the signals of the failed pass remain.
    """

    def pass_over(connection: Connection, applier: Applier | None) -> Pass:
        done = Pass(connection, run_id, runtime.catalogue, applier)
        done.run(frees=True)
        return done

    total = 0
    while True:
        done = at_once(runtime, pass_over)
        done.publish(runtime)
        total += done.signals
        if done.signals < BATCH:
            return total


def at_once(runtime: Runtime, act: Callable[[Connection, Applier | None], T]) -> T:
    """Run a transaction that applies triggers which follow from it. If one of them cannot be applied, run it again.

    Args:
        runtime: this process's connections.
        act: what to do in the transaction. Its second argument is None the second time: leave the triggers to the
            nodes, which apply them one by one, so that one faulty trigger holds up nothing else.

    It is run again, too, if another transaction was in its way: what moved an instance meanwhile may have a later place
    in history than this transaction could give its own move.

    Raises:
        DBAPIError: the infrastructure failed; nothing was changed.
    """
    try:
        with transaction(runtime.database) as connection:
            return act(connection, runtime.applier)
    except (DBAPIError, LostRace, UnknownWorkflow) as error:
        if retryable(error) and not collided(error):
            raise
        log.warning("left_to_nodes", error=str(error))
    with transaction(runtime.database) as connection:
        return act(connection, None)


@dataclass(slots=True)
class Pass:
    """One pass over a run, in the caller's transaction; `publish` what it did after the commit.

    Attributes:
        applier: applies the triggers that follow; None: they are accepted, and left to the nodes.
        up_to_date: whether it has read every signal that it can see.
        queued: how many tasks became queued.
        fired: the triggers that are left to the nodes, with their wake-ups.
        effects_due: the effects that are due now.
        applied: the moves it made itself.
    """

    connection: Connection
    run_id: UUID
    catalogue: Catalogue
    applier: Applier | None = None
    signals: int = 0
    queued: int = 0
    up_to_date: bool = False
    fired: list[Mapping[str, Any]] = field(default_factory=list)
    effects_due: list[Row] = field(default_factory=list)
    applied: Round = field(default_factory=Round)

    def run(self, *, patient: bool = True, frees: bool = False) -> None:
        """Process up to `BATCH` signals: count what moved, and accept or apply the triggers that follow from it.

        Args:
            patient: wait for the run's lock. If not, and another scheduler works on the run, nothing is done: for
                callers that hold other locks already.
            frees: first take note of claims that were revoked, and free their workers. Not for callers that may have
                revoked some: workers are locked before their claims, everywhere.
        """
        if not scheduling.lock(self.connection, self.run_id, patient=patient):
            return
        if frees:
            self.apply(self._freed_workers())
        while (limit := BATCH - self.signals) > 0:
            found = scheduling.take_signals(self.connection, self.run_id, limit=limit)
            if not found or not self.apply(self._follow(found)):
                self.up_to_date = frees or not claims.any_revoked(self.connection, self.run_id)
                return

    def apply(self, wanted: Sequence[dict[str, Any]]) -> bool:
        """Accept triggers and, if they are few, apply them; whether moves may have followed. The nodes get the others.

        The run is locked, or a claim: so partitions that somebody else has are not waited for. Nor is a claim revoked
        here, whose worker may be about to report.

        Args:
            wanted: rows as `requests.accept` takes them, each with its `wakeup`: `workflow_type`, `entity_id` and
                `triggered_by` for that, and whether the move `revokes` a claim.
        """
        if self.applier is None or not 0 < len(wanted) <= AT_ONCE:
            self.fired += requests.accept_named(self.connection, wanted)
            return False
        later = [each["request_id"] for each in wanted if each["wakeup"].get("revokes")]
        accepted, due = rounds.accept_and_gather(self.connection, wanted, later)
        done = self.applier.round(self.connection, due)
        self.applied += done
        self.fired += (
            each | {"partition": requests.partition_of(each["workflow_id"]), "status": status} | each["wakeup"]
            for each in wanted
            if (status := accepted.get(each["request_id"]))
            and done.requests.get(each["request_id"], "pending") == "pending"
        )
        return done.taken > 0

    def foresee(self, task_id: UUID) -> list[dict[str, Any]]:
        """What completes a running task whose worker reports that it did its work: none if something judges it first.

        The report and this are applied in one round (DERIVE-12). If the report is refused, this is superseded.
        """
        for facts in scheduling.facts(self.connection, "task", [task_id]):
            reported = facts | {"state": "validating", "version": facts["version"] + 1}
            due = next_trigger.task(reported)
            if due and due.trigger == "validation_passed":
                return [self._request("task", reported, due, 0)]
        return []

    def publish(self, runtime: Runtime) -> None:
        """After the commit, announce what was applied, and send the wake-ups for what became due."""
        runtime.publish(self.applied, scheduled=[self.run_id] if self.up_to_date else ())
        runtime.wakeups.partitions(self.fired)
        runtime.wakeups.effects(self.effects_due)
        runtime.wakeups.work(self.queued)

    def _follow(self, found: Sequence[Row]) -> list[dict[str, Any]]:
        """Count what moved; returns the triggers that follow, with their wake-ups."""
        moved = signals.read(self.run_id, found)
        self.signals += len(found)
        self.queued += moved.queued
        moved.leave_out(scheduling.count_tasks(self.connection, _rows(moved.tasks_counted)))
        scheduling.count_workstreams(self.connection, _rows(moved.workstreams_counted))
        self._settle_gates(moved)
        scheduling.recount_born(self.connection, "tasks", moved.born["task"], ending=moved.ended)
        scheduling.recount_born(
            self.connection, "workstreams", moved.born["workstream"], ending=moved.ended_workstreams
        )
        rows = [
            self._request(kind, facts, due, moved.last)
            for kind, ids in self._concerned(moved).items()
            for facts in scheduling.facts(self.connection, kind, ids)
            if (due := NEXT_STEP_OF[kind](facts)) and not self._done_without_trigger(facts, due)
        ]
        if moved.run_moved or moved.workstreams_counted:
            facts = scheduling.run_facts(self.connection, self.run_id)
            if facts and (due := next_trigger.run(facts)):
                rows.append(self._request("run", facts, due, moved.last))
        log.info("scheduled", run=str(self.run_id), signals=len(found), fired=len(rows))
        return rows

    def _settle_gates(self, moved: Moved) -> None:
        """Reopen lost gates that new tasks need, mark gates that can never pass, and link new instances to reruns.

        A new instance that names a gate or task which was rerun is linked to what replaced it.
        """
        born = set[UUID]().union(*moved.born.values())
        scheduling.relink_born(self.connection, born)
        reopened = scheduling.reopen_gates(self.connection, moved.born["task"])
        facts = scheduling.facts(self.connection, "test_gate", moved.failed_gates)
        given_up = scheduling.gates_given_up(self.connection, moved.ended_workstreams)
        failed = [gate["id"] for gate in facts if next_trigger.gate(gate) is None] + given_up
        self._look_for_culprits(failed)
        lost = scheduling.mark_gates_lost(
            self.connection,
            failed=failed,
            ended=moved.ended_workstreams,
            worked=moved.worked,
            moved=moved.looked_at["test_gate"] | reopened,
        )
        moved.judged |= lost
        moved.ended |= dict.fromkeys(lost - reopened, False)  # one that was lost before is counted for its dependents

    def _look_for_culprits(self, failed: Sequence[UUID]) -> None:
        """Begin a search for the patch that broke each of these gates, if patches of the run have landed."""
        for row in regressions.due(self.connection, self.run_id, failed):
            search = creation.Birth(
                definition=self.catalogue.get("regression"),
                entity_id=f"{likeness(row['entity_id'][:85])}:regression",  # a REF of the gate stays its own
                project=row["project"],
                created_by="scheduler",
                context={"run_id": str(self.run_id), "gate_id": str(row["gate_id"]), "gate": row["gate"]},
            )
            self.effects_due += creation.deliver_anyhow(self.connection, search)[1].effects_due

    def _concerned(self, moved: Moved) -> dict[str, set[UUID]]:
        """Count down waiting tasks' and workstreams' dependencies; returns kind -> the instances to look at again."""
        looked_at = moved.looked_at
        looked_at["task"] |= scheduling.release_tasks(self.connection, moved.ended)
        looked_at["workstream"] |= scheduling.release_workstreams(self.connection, moved.ended_workstreams)
        for kind, id_ in scheduling.touched(self.connection, **moved.concerns()):
            looked_at[kind].add(id_)
        return {kind: looked_at[kind] for kind in NEXT_STEP_OF if looked_at[kind]}

    def _done_without_trigger(self, facts: Facts, due: NextStep) -> bool:
        """Do what is no trigger: run or rerun a gate, land a workstream or ask for that; `hold` does nothing.

        Returns:
            False for a trigger.
        """
        if due.trigger == "run":
            self.effects_due += effects.intend(self.connection, [intents.of_gate(facts["id"], facts["version"])])
        elif due.trigger == "rerun":
            self._rerun_gate(facts)
        elif due.trigger == "land":
            wanted = intents.of_landing(self.connection, facts["id"], facts["version"])
            self.effects_due += effects.intend(self.connection, [wanted])
        elif due.trigger == "ask":
            self._ask(facts)
        else:
            return due.trigger == "hold"
        return True

    def _ask(self, facts: Facts) -> None:
        """Create the approval that a workstream needs to land (PHASE-7)."""
        terms = scheduling.landing_terms(self.connection, facts["id"])
        approval = creation.Birth(
            definition=APPROVAL,
            entity_id=f"{likeness(facts['entity_id'][:60])}:land",
            project=terms["project"],
            created_by="scheduler",
            context={
                "subject": f"workstream/{facts['entity_id']}",
                "subject_id": str(facts["id"]),
                "subject_version": facts["version"],
                "trigger": "validation_passed",
                "requested_by": terms["author"],
                "author": terms["author"],
                "quorum": 1,
                "deciders": terms["approvers"],
                "lands": str(facts["id"]),
            },
        )
        self.effects_due += creation.deliver_anyhow(self.connection, approval)[1].effects_due

    def _rerun_gate(self, facts: Facts) -> None:
        """Create a failed gate's successor, which replaces it in the links of all other instances (GATE-7)."""
        if scheduling.is_rerun(self.connection, facts["id"]):
            return
        old = instances.by_id(self.connection, facts["id"])
        needs = scheduling.gates_needed(self.connection, old["id"])  # if one was rerun since, its replacement
        again = creation.Birth(
            definition=self.catalogue.get("test_gate"),
            entity_id=f"{likeness(old['entity_id'].partition('~')[0][:90])}~{facts['reruns_left']}",
            project=old["project"],
            created_by="scheduler",
            context=dict(old["context"])
            | {"reruns_left": facts["reruns_left"] - 1, "retry_of": str(old["id"]), "depends_on": needs},
        )
        creation.deliver_anyhow(self.connection, again)
        commands.copy(self.connection, {old["id"]: again.id})
        scheduling.relink_gate(self.connection, old["id"], again.id)

    def _freed_workers(self) -> list[dict[str, Any]]:
        """Take note of claims that the moves revoked: their workers have room again."""
        return [
            {**row, "wakeup": {"workflow_type": "worker", "entity_id": claim["worker"], "triggered_by": "crew"}}
            for claim in claims.end_revoked(self.connection, self.run_id)
            for row in claim_triggers.freed(claim)
        ]

    def _request(self, kind: str, facts: Facts, due: NextStep, last: int) -> dict[str, Any]:
        # Bound to the version seen: if the instance moves first, this is superseded, and its signal is read later.
        bound = internal(
            own_id(facts["id"], facts["version"], due.trigger, last),
            facts["id"],
            due.trigger,
            by="scheduler",
            right=by_run(self.run_id),
            version=facts["version"],
            metadata=({"reason": due.reason} if due.reason else {}) | dict(due.metadata),
        )
        said = {"workflow_type": kind, "entity_id": facts["entity_id"], "triggered_by": "scheduler"}
        return bound | {"wakeup": said | {"revokes": kind == "task" and facts["state"] == "running"}}


def _rows(changes: Mapping[UUID, Mapping[str, int]]) -> list[dict[str, Any]]:
    return [{"id": each, **change} for each, change in changes.items()]
