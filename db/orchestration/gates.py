"""Test gates, as operators look at them: lists, and one with what its command printed (docs/spec/gate.md)."""

from datetime import datetime
from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, func, select

from interlock.db.core.instances import newest
from interlock.db.core.portions import NEWEST, Portion
from interlock.db.statements import matching
from interlock.db.tables.core import instances, links
from interlock.db.tables.orchestration import patch_ledger_entries as entries
from interlock.db.tables.orchestration import test_gates as gates


class ListedGate(TypedDict):
    """A gate in a list; `name` is the plan's, `entity_id` its own."""

    id: UUID
    entity_id: str
    name: str
    project: str
    gate_type: str
    moment: str
    state: str
    run_id: UUID | None
    workstream_id: UUID | None
    exit_code: int | None
    duration_sec: float | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


class ShownGate(ListedGate):
    """A gate, with its command and what that printed."""

    command: list[str] | str
    depends_on: list[UUID]
    stdout: str | None
    stderr: str | None
    reruns_left: int


_LISTED = (
    gates.c.gate_id.label("id"),
    instances.c.entity_id,
    func.coalesce(instances.c.context["name"].astext, instances.c.entity_id).label("name"),
    instances.c.project,
    *(gates.c[each] for each in (
        "gate_type", "moment", "state", "run_id", "workstream_id", "exit_code", "duration_sec", "created_at",
        "started_at", "completed_at",
    )),
)  # fmt: skip
_SHOWN = tuple(gates.c[each] for each in ("command", "depends_on", "stdout", "stderr", "reruns_left"))


def page(
    connection: Connection,
    portion: Portion = NEWEST,
    *,
    run: UUID | None = None,
    patch: UUID | None = None,
    state: str | None = None,
) -> list[ListedGate]:
    """The newest gates, those that were run again included.

    Args:
        connection: any.
        portion: which of them.
        run: of this run only.
        patch: only those that judge the task of this ledger entry.
        state: in this one only.
    """
    query = newest(select(*_LISTED), gates.c.gate_id, portion)
    query = matching(query, (gates.c.run_id, run), (gates.c.state, state))
    if patch is not None:
        task = select(entries.c.task_id).where(entries.c.ledger_id == patch).scalar_subquery()
        judging = select(links.c.target_id).where(links.c.source_id == task, links.c.role == "gates")
        query = query.where(gates.c.gate_id.in_(judging))
    return [cast(ListedGate, dict(row)) for row in connection.execute(query).mappings()]


def get(connection: Connection, gate_id: UUID) -> ShownGate:
    """A gate with its command and what that printed; the caller knows that there is one."""
    query = select(*_LISTED, *_SHOWN).join(instances, instances.c.id == gates.c.gate_id)
    return cast(ShownGate, dict(connection.execute(query.where(gates.c.gate_id == gate_id)).mappings().one()))
