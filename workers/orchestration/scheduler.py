"""The scheduler: finds what moved in a run, which instances that concerns, and the triggers to fire on them.

A pass locks the run, reads its signals (rows that say which instance moved), updates counts, and accepts the triggers
that pure functions name, all in one transaction; the engine applies them. The cost is proportional to what moved, not
to the size of the run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, RowMapping

from interlock.db.connection import transaction
from interlock.db.core import effects, instances, requests
from interlock.db.core.request_rows import by_run, internal, own_id
from interlock.db.orchestration import claim_triggers, claims, commands, scheduling
from interlock.workers.effects import gates, merge
from interlock.workers.engine import creation
from interlock.workers.orchestration import signals
from interlock.workers.orchestration.signals import Moved
from interlock.workers.runtime import Runtime
from interlock.workflows.definition import Definition
from interlock.workflows.input.names import likeness
from interlock.workflows.scheduling import next_trigger
from interlock.workflows.scheduling.next_trigger import Facts, NextStep

log = structlog.get_logger()

BATCH = 5_000  # signals per pass

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
    total, gate = 0, runtime.catalogue.get("test_gate")
    while True:
        with transaction(runtime.database) as connection:
            done = Pass(connection, run_id, gate)
            done.run()
        total += done.signals
        runtime.wakeups.partitions(done.fired)
        runtime.wakeups.effects(done.effects_due)
        runtime.wakeups.work(done.queued)
        if done.signals < BATCH:
            return total


@dataclass(slots=True)
class Pass:
    """One pass over a run, in the caller's transaction. Afterwards it holds the wake-ups to send after the commit."""

    connection: Connection
    run_id: UUID
    gate_definition: Definition
    signals: int = 0
    queued: int = 0
    fired: list[Mapping[str, Any]] = field(default_factory=list)
    effects_due: list[RowMapping] = field(default_factory=list)

    def run(self) -> None:
        """Process up to `BATCH` signals: count what moved, and accept the triggers that follow from it."""
        scheduling.lock(self.connection, self.run_id)
        if not (found := scheduling.take_signals(self.connection, self.run_id, limit=BATCH)):
            return
        moved = signals.read(self.run_id, found)
        self.signals, self.queued = len(found), moved.queued
        scheduling.count_tasks(self.connection, _rows(moved.tasks_counted))
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
        facts = scheduling.run_facts(self.connection, self.run_id)
        if facts and (due := next_trigger.run(facts)):
            rows.append(self._request("run", facts, due, moved.last))
        rows += self._freed_workers()
        accepted = requests.accept(self.connection, rows)
        known = (row for row in rows if row["request_id"] in accepted)
        self.fired = [dict(accepted[row["request_id"]]) | row["wakeup"] for row in known]
        log.info("scheduled", run=str(self.run_id), signals=self.signals, fired=len(rows))

    def _settle_gates(self, moved: Moved) -> None:
        """Reopen lost gates that new tasks need, mark gates that can never pass, and link new instances to reruns.

        A new instance that names a gate or task which was rerun is linked to what replaced it.
        """
        born = set[UUID]().union(*moved.born.values())
        scheduling.relink_born(self.connection, born)
        reopened = scheduling.reopen_gates(self.connection, moved.born["task"])
        failed = scheduling.facts(self.connection, "test_gate", moved.failed_gates)
        lost = scheduling.mark_gates_lost(
            self.connection,
            failed=[gate["id"] for gate in failed if next_trigger.gate(gate) is None],
            ended=moved.ended_workstreams,
            worked=moved.worked,
            moved=moved.looked_at["test_gate"] | reopened,
        )
        moved.judged |= lost
        moved.ended |= dict.fromkeys(lost - reopened, False)  # one that was lost before is counted for its dependents

    def _concerned(self, moved: Moved) -> dict[str, set[UUID]]:
        """Count down waiting tasks' and workstreams' dependencies; returns kind -> the instances to look at again."""
        looked_at = moved.looked_at
        looked_at["task"] |= scheduling.release_tasks(self.connection, moved.ended)
        looked_at["workstream"] |= scheduling.release_workstreams(self.connection, moved.ended_workstreams)
        for kind, id_ in scheduling.touched(self.connection, **moved.concerns()):
            looked_at[kind].add(id_)
        return {kind: looked_at[kind] for kind in NEXT_STEP_OF if looked_at[kind]}

    def _done_without_trigger(self, facts: Facts, due: NextStep) -> bool:
        """Do what is no trigger: run or rerun a gate, land a workstream; `hold` does nothing. False for a trigger."""
        if due.trigger == "run":
            self.effects_due += effects.intend(self.connection, [gates.intent(facts["id"], facts["version"])])
        elif due.trigger == "rerun":
            self._rerun_gate(facts)
        elif due.trigger == "land":
            wanted = merge.intent(self.connection, facts["id"], facts["version"])
            self.effects_due += effects.intend(self.connection, [wanted])
        else:
            return due.trigger == "hold"
        return True

    def _rerun_gate(self, facts: Facts) -> None:
        """Create a failed gate's successor, which replaces it in the links of all other instances (GATE-7)."""
        if scheduling.is_rerun(self.connection, facts["id"]):
            return
        old = instances.by_id(self.connection, facts["id"])
        needs = scheduling.gates_needed(self.connection, old["id"])  # if one was rerun since, its replacement
        again = creation.Birth(
            definition=self.gate_definition,
            entity_id=f"{likeness(old['entity_id'].partition('~')[0][:90])}~{facts['reruns_left']}",
            project=old["project"],
            created_by="scheduler",
            context=dict(old["context"])
            | {"reruns_left": facts["reruns_left"] - 1, "retry_of": str(old["id"]), "depends_on": needs},
        )
        creation.deliver_anyhow(self.connection, again)
        commands.copy(self.connection, old["id"], again.id)
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
        return bound | {"wakeup": {"workflow_type": kind, "entity_id": facts["entity_id"], "triggered_by": "scheduler"}}


def _rows(changes: Mapping[UUID, Mapping[str, int]]) -> list[dict[str, Any]]:
    return [{"id": each, **change} for each, change in changes.items()]
