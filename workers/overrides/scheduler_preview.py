"""A run's scheduler inside an override's transaction: up to date before it, and let go on after it to see the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from db import overrides
from db.requests import lane_of
from workers.engine import Applier
from workers.orchestration.scheduler import BATCH, Pass
from workers.runtime import Runtime
from workflows.definition import Definition

ROUNDS = 100  # what has not come to rest by then would fill pages
LINES = 200


@dataclass(slots=True)
class Follow:
    """One run. `fired` and `effects_due` are what to hint at once the override is committed."""

    connection: Connection
    applier: Applier
    run_id: UUID
    gate: Definition
    fired: list[Mapping[str, Any]] = field(default_factory=list)
    effects_due: list[RowMapping] = field(default_factory=list)

    def catch_up(self) -> set[UUID]:
        """Let the scheduler read every move there was; the instances that it fired something on."""
        moved: set[UUID] = set()
        while True:
            done = Pass(self.connection, self.run_id, self.gate)
            done.take()
            self.fired += done.fired
            self.effects_due += done.effects_due
            moved |= {each["workflow_id"] for each in done.fired}
            if done.signals < BATCH:
                return moved

    def told(self) -> list[str]:
        """Let engine and scheduler go on as far as they come alone; what that comes to, a line each."""
        for _ in range(ROUNDS):
            if not (moved := self.catch_up()):
                break
            for instance_id in moved:
                self.applier.round(self.connection, lane_of(instance_id), only=instance_id)
        lines = overrides.followed(self.connection, self.run_id)
        return lines[:LINES] + ([f"… and {len(lines) - LINES} more"] if len(lines) > LINES else [])

    def publish(self, runtime: Runtime) -> None:
        """After the commit: hint at what became due."""
        runtime.hints.lanes(self.fired)
        runtime.hints.effects(self.effects_due)
        runtime.hints.runs({str(self.run_id)})
