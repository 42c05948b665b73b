"""Queries for handing instances over to another system: who can be, what is frozen, and what goes with it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core.request_rows import Origin
from interlock.db.fast_path import rows
from interlock.db.schema import in_schema
from interlock.db.statements import queries
from interlock.workflows.definition import Authority
from interlock.workflows.input.arguments import record

sql = queries(__file__)

_FREE = in_schema("""
  FROM interlock.workflow_instances i
  JOIN interlock.definition_states s
    ON (s.type, s.version, s.state) = (i.workflow_type, i.definition_version, i.current_state) AND NOT s.terminal
 WHERE i.workflow_type = %(type)s AND i.definition_version = %(version)s
   AND (%(project)s::text IS NULL OR i.project = %(project)s)
   AND (%(only)s::uuid[] IS NULL OR i.id = ANY (%(only)s::uuid[]))
   AND NOT EXISTS (SELECT FROM interlock.handovers h WHERE h.workflow_id = i.id)
""")
_COUNT_FREE = f"SELECT count(*) AS many{_FREE}"
_PAGE = f"SELECT i.id{_FREE} AND (%(after)s::uuid IS NULL OR i.id > %(after)s) ORDER BY i.id LIMIT %(limit)s"
# Whoever wants to lease one of these waits for the commit, and finds it cancelled.
_HOLD_EFFECTS = in_schema("""
SELECT e.id FROM interlock.effects e
 WHERE e.status = 'pending'
   AND (e.workflow_id = ANY (%(ids)s::uuid[])
        OR e.workflow_id IN (SELECT r.held_by FROM interlock.trigger_requests r
                              WHERE r.workflow_id = ANY (%(ids)s::uuid[]) AND r.status = 'waiting'))
 ORDER BY e.id FOR UPDATE OF e
""")
_COUNT_FROZEN = in_schema("""
SELECT count(*) AS many
  FROM interlock.handovers h
  JOIN interlock.workflow_instances i ON i.id = h.workflow_id
  JOIN interlock.workflow_instances o ON o.id = h.handover_id AND o.current_state = 'frozen'
 WHERE i.workflow_type = %(type)s AND i.definition_version = %(version)s
   AND (%(project)s::text IS NULL OR i.project = %(project)s)
""")
# What is held with frozen instances, oldest first: by their handovers, or for approvals.
_HELD = in_schema("""
SELECT r.workflow_id, r.request_id, r.trigger, r.triggered_by, r.authority, r.metadata, r.origin, r.bound_version,
       r.not_before, r.granted, r.held_by, interlock.held_for(r.held_by) AS held_for
  FROM interlock.trigger_requests r
 WHERE r.workflow_id = ANY (%(ids)s::uuid[]) AND r.status = 'waiting' ORDER BY r.seq
""")
# Effects that frozen instances have asked for, and that nobody has carried out.
_EFFECTS = in_schema("""
SELECT e.id, e.workflow_id, e.version, e.name, e.done_trigger, e.failed_trigger, e.payload->>'trigger' AS trigger,
       e.payload->>'by' AS by, e.payload->>'state' AS state
  FROM interlock.effects e
  JOIN interlock.handovers h ON h.workflow_id = e.workflow_id
 WHERE e.workflow_id = ANY (%(ids)s::uuid[]) AND e.status = 'cancelled' AND e.result->>'handover' = h.handover_id::text
 ORDER BY e.created_at, e.id
""")
_FREEZING = in_schema("SELECT handover_id FROM interlock.handovers WHERE workflow_id = %(id)s")
_STAYING = in_schema("""
SELECT i.id FROM interlock.workflow_instances i
  JOIN interlock.definition_states s
    ON (s.type, s.version, s.state) = (i.workflow_type, i.definition_version, i.current_state) AND NOT s.terminal
 WHERE i.id = ANY (%(ids)s::uuid[]) AND NOT EXISTS (SELECT FROM interlock.handovers h WHERE h.workflow_id = i.id)
""")


@record
@dataclass(frozen=True, slots=True)
class Choice:
    """Instances of one version of a type: all that have not ended, of a project, or only some."""

    type: str
    version: str
    project: str | None = None
    only: Sequence[UUID] | None = None

    @property
    def _given(self) -> dict[str, Any]:
        only = None if self.only is None else list(self.only)
        return {"type": self.type, "version": self.version, "project": self.project, "only": only}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance that is to be handed over, or an approval of its `subject`; `why` it cannot be, None: it can."""

    id: UUID
    type: str
    entity_id: str
    project: str
    state: str
    at: int
    head: str
    subject: UUID | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Frozen:
    """An instance that is frozen, its handover, and what is left of the deadline of its state."""

    instance_id: UUID
    handover_id: UUID
    frozen_at: datetime
    type: str
    version: str
    entity_id: str
    project: str
    state: str
    at: int
    context: dict[str, Any]
    created_by: str
    created_at: datetime
    head: str
    by: str
    reason: str
    due_in: timedelta | None
    deadline: str | None


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """A request that is held with its instance. `held_by`: the approval that it waits for, or, if it is `granted`, that
    has released it; the instance was to be at version `held_for` then.
    """

    workflow_id: UUID
    request_id: str
    trigger: str
    triggered_by: str
    authority: Authority
    metadata: dict[str, Any]
    origin: Origin
    bound_version: int | None
    not_before: datetime
    granted: bool
    held_by: UUID | None
    held_for: int | None


@dataclass(frozen=True, slots=True)
class OpenEffect:
    """An effect that a frozen instance has asked for at a version."""

    id: UUID
    workflow_id: UUID
    version: int
    name: str
    done_trigger: str | None
    failed_trigger: str | None
    trigger: str
    by: str
    state: str


def count_free(connection: Connection, choice: Choice) -> int:
    """How many of the chosen instances live and are not frozen."""
    (found,) = rows(connection, _COUNT_FREE, choice._given)
    return int(found["many"])


def free(connection: Connection, choice: Choice, *, size: int) -> Iterator[list[UUID]]:
    """The chosen instances that live and are not frozen, each once, in pages."""
    last: UUID | None = None
    while page := [row["id"] for row in rows(connection, _PAGE, choice._given | {"after": last, "limit": size})]:
        yield page
        last = page[-1]


def judged(connection: Connection, ids: Sequence[UUID]) -> list[Candidate]:
    """Instances, with the approvals that hold their triggers; nobody leases their effects until the commit."""
    rows(connection, _HOLD_EFFECTS, {"ids": list(ids)})
    return [Candidate(**row) for row in rows(connection, sql("judged"), {"ids": list(ids)})]


def count_frozen(connection: Connection, choice: Choice) -> int:
    """How many instances of a version are frozen, neither confirmed nor given back; of a project, or all."""
    (found,) = rows(connection, _COUNT_FROZEN, choice._given)
    return int(found["many"])


def frozen(connection: Connection, choice: Choice, *, size: int) -> Iterator[list[Frozen]]:
    """The instances of `count_frozen`, each once, in pages."""
    last: UUID | None = None
    while page := _frozen(connection, **choice._given, ids=None, after=last, limit=size):
        yield page
        last = page[-1].instance_id


def frozen_among(connection: Connection, ids: Collection[UUID]) -> dict[UUID, Frozen]:
    """Those of these instances that are frozen, by their ids."""
    given = {"type": None, "version": None, "project": None, "after": None, "limit": None}
    return {each.instance_id: each for each in _frozen(connection, **given, ids=list(ids))}


def _frozen(connection: Connection, **given: Any) -> list[Frozen]:
    return [Frozen(**row) for row in rows(connection, sql("frozen"), given)]


def held(connection: Connection, ids: Sequence[UUID]) -> list[HeldRequest]:
    """What is held with frozen instances, oldest first."""
    return [HeldRequest(**row) for row in rows(connection, _HELD, {"ids": list(ids)})]


def open_effects(connection: Connection, ids: Sequence[UUID]) -> list[OpenEffect]:
    """What frozen instances have asked for, and nobody has carried out, oldest first."""
    return [OpenEffect(**row) for row in rows(connection, _EFFECTS, {"ids": list(ids)})]


def freezing(connection: Connection, instance_id: UUID) -> UUID | None:
    """The handover that freezes an instance; None: nothing does."""
    found = rows(connection, _FREEZING, {"id": instance_id})
    return found[0]["handover_id"] if found else None


def staying(connection: Connection, ids: Collection[UUID]) -> set[UUID]:
    """Those of these instances that live, and are not handed over."""
    return {row["id"] for row in rows(connection, _STAYING, {"ids": list(ids)})}
