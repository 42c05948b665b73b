"""Runs a run's scheduler inside an override's transaction: before it, and after it to preview its consequences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import Row
from interlock.db.operations import overrides
from interlock.workers.engine.applier import Applier
from interlock.workers.orchestration.scheduler import BATCH, Pass
from interlock.workers.runtime import Runtime

ROUNDS = 100  # a preview ends after this many rounds, even if more would follow
LINES = 200


@dataclass(slots=True)
class Follow:
    """The scheduler of one run. `fired`, `effects_due`: for the wake-ups to send after the override's commit."""

    connection: Connection
    applier: Applier
    run_id: UUID
    fired: list[Mapping[str, Any]] = field(default_factory=list)
    effects_due: list[Row] = field(default_factory=list)

    def catch_up(self) -> set[UUID]:
        """Let the scheduler process all signals. Returns the instances on which it fired triggers."""
        moved: set[UUID] = set()
        while True:
            done = Pass(self.connection, self.run_id, self.applier.catalogue)
            done.run()
            self.fired += done.fired
            self.effects_due += done.effects_due
            moved |= {each["workflow_id"] for each in done.fired}
            if done.signals < BATCH:
                return moved

    def consequences(self) -> list[str]:
        """Run engine and scheduler until nothing more follows by itself; the consequences, one per line."""
        for _ in range(ROUNDS):
            if not (moved := self.catch_up()):
                break
            self.applier.apply_for(self.connection, moved)
        lines = overrides.consequences(self.connection, self.run_id)
        return lines[:LINES] + ([f"… and {len(lines) - LINES} more"] if len(lines) > LINES else [])

    def publish(self, runtime: Runtime) -> None:
        """After the commit, send the wake-ups for what became due."""
        runtime.wakeups.partitions(self.fired)
        runtime.wakeups.effects(self.effects_due)
        runtime.wakeups.runs({str(self.run_id)})
