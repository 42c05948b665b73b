"""Finds stuck instances with a few queries, however many they are, then derives the reasons with pure functions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import one_snapshot, transaction
from interlock.db.core import approvals, instances, limits
from interlock.db.fast_path import Row
from interlock.db.operations import stuck
from interlock.db.operations.stuck import Thresholds
from interlock.db.orchestration import phases, workers
from interlock.workers.operations.stuck import reasons_by_type, request_reasons
from interlock.workers.operations.stuck.facts import Facts, Reason
from interlock.workers.operations.stuck.reasons_by_type import KINDS
from interlock.workers.operations.stuck.words import show
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.definition import Definition
from interlock.workflows.errors import UnknownWorkflow
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.output.suggestions import offered

M = TypeVar("M", RowMapping, Row)

LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Stuck:
    """A stuck instance: its state, since when, why, and the command that would help."""

    workflow_id: UUID
    version: int
    workflow_type: str
    entity_id: str
    project: str
    state: str
    since: datetime
    seconds: float
    reason: str
    command: str


def thresholds(chosen: Settings) -> Thresholds:
    """How long is too long, from the settings; 0 turns a threshold off."""
    return Thresholds(
        task=chosen.stuck_task_seconds or None,
        workstream=chosen.stuck_workstream_seconds or None,
        silent=chosen.silent_seconds,
        due=chosen.stuck_due_seconds or None,
        general=chosen.stuck_seconds or None,
    )


def survey(
    runtime: Runtime,
    *,
    type_: str | None = None,
    project: str | None = None,
    everything: bool = False,
    limit: int = LIMIT,
) -> tuple[int, list[Stuck]]:
    """How many instances are stuck now, and those stuck for longest, with their reasons, longest first.

    Args:
        runtime: the process's.
        type_, project: only these; with a project, the reasons name no instance of others.
        everything: all that wait, however short, except instances that are at rest.
        limit: the most to list.

    Raises:
        DBAPIError: the database is unreachable.
    """
    chosen = thresholds(runtime.settings)
    wanted = Thresholds(0.0, 0.0, chosen.silent, 0.0, 0.0) if everything else chosen
    with transaction(runtime.database) as connection:
        one_snapshot(connection)  # a task that is running in one query and given back in the next has no worker
        same = _unservable(connection, wanted.due, limit)
        late = stuck.late(
            connection,
            wanted,
            resting=runtime.catalogue.resting,
            healthy=everything,
            type_=type_,
            project=project,
            unservable=list(same),
            limit=limit,
        )
        found = _facts(connection, runtime, late, same, named_everywhere=project is None) if late else []
        well = {row["id"] for row in late} - _late_ids(connection, runtime, type_, project) if everything else set()
    told = [_stuck(row, facts, well) for row, facts in zip(late, found, strict=True)]
    return (late[0]["total"] if late else 0), told


def late_ids(runtime: Runtime, type_: str) -> set[UUID]:
    """All instances of a type that are stuck now, except those that no worker can take."""
    with transaction(runtime.database) as connection:
        return _late_ids(connection, runtime, type_, None)


def _late_ids(connection: Connection, runtime: Runtime, type_: str | None, project: str | None) -> set[UUID]:
    chosen, resting = thresholds(runtime.settings), runtime.catalogue.resting
    rows = stuck.late(connection, chosen, resting=resting, type_=type_, project=project, limit=None)
    return {row["id"] for row in rows}


def _unservable(connection: Connection, waited: float | None, limit: int) -> dict[UUID, int]:
    """Of the tasks that no worker can take for the same reason: the oldest -> how many more there are."""
    if waited is None:
        return {}
    found = workers.unservable(connection, waited_seconds=waited, limit=limit)
    return {row["task_id"]: row["tasks"] - 1 for row in found}


def why(facts: Facts) -> Reason:
    """Why an instance is stuck, by the first rule that applies; the most certain rules come first."""
    for rule in RULES:
        if reason := rule(facts):
            return reason
    return request_reasons.nobody(facts)


def _by_kind(facts: Facts) -> Reason | None:
    kind = KINDS.get(facts.instance["workflow_type"])
    return kind(facts) if kind else None


RULES = (
    request_reasons.dead_request,
    request_reasons.dead_effect,
    request_reasons.retrying,
    request_reasons.held,
    request_reasons.unapplied,
    reasons_by_type.frozen,
    request_reasons.effect,
    _by_kind,
    request_reasons.refused,
    request_reasons.timer,
)


def _stuck(row: RowMapping, facts: Facts | None, well: Collection[UUID]) -> Stuck:
    reason = why(facts) if facts else Reason("this process does not know its definition", offered("doctor"))
    command = show(row) if reason.harms and row["id"] in well else reason.command
    columns = ("id", "version", "workflow_type", "entity_id", "project", "current_state", "since", "seconds")
    values = [*(row[each] for each in columns), reason.text, command]
    return Stuck(*values)


def _facts(
    connection: Connection,
    runtime: Runtime,
    late: Sequence[RowMapping],
    same: Mapping[UUID, int],
    *,
    named_everywhere: bool,
) -> list[Facts | None]:
    ids = [row["id"] for row in late]
    requests = _grouped(stuck.requests_of(connection, ids))
    effects = _grouped(stuck.effects_of(connection, ids))
    links = _grouped(instances.linked(connection, ids))
    details = _details(connection, runtime, late, same)
    asked = _asked(connection, late, requests, links)
    spent = limits.full(connection)
    return [
        Facts(
            row,
            definition,
            requests.get(row["id"], ()),
            effects.get(row["id"], ()),
            links.get(row["id"], ()) if named_everywhere else [_told(row, each) for each in links.get(row["id"], ())],
            details.get(row["id"], {}),
            asked,
            [each for each in spent if each["project"] == row["project"]],
        )
        if (definition := _definition(runtime, row))
        else None
        for row in late
    ]


def _told(row: RowMapping, link: Row) -> Row:
    """A link as whoever looks at the project of `row` may be told of it: what is of another has no name."""
    if link["project"] == row["project"]:
        return link
    return {**link, "id": row["id"], "entity_id": "of another project"}


def _definition(runtime: Runtime, row: RowMapping) -> Definition | None:
    with suppress(UnknownWorkflow):
        return runtime.catalogue.get(row["workflow_type"], row["definition_version"])
    return None


def _details(
    connection: Connection, runtime: Runtime, late: Sequence[RowMapping], same: Mapping[UUID, int]
) -> dict[UUID, Mapping[Any, Any]]:
    by_type: dict[str, list[UUID]] = {}
    for row in late:
        by_type.setdefault(row["workflow_type"], []).append(row["id"])
    found: dict[UUID, Mapping[Any, Any]] = {}
    if tasks := by_type.get("task"):
        known = stuck.tasks(connection, tasks, silent=runtime.settings.silent_seconds)
        found |= {id_: {**row, "same": same.get(id_, 0)} for id_, row in known.items()}
    if groups := [*by_type.get("workstream", ()), *by_type.get("run", ())]:
        found |= stuck.groups(connection, groups)
    held = phases.holding(connection, by_type.get("task", ()), by_type.get("workstream", ()))
    found |= {id_: {**found.get(id_, {}), "frozen": row} for id_, row in held.items() if id_ in {r["id"] for r in late}}
    if scheduled := by_type.get("schedule"):
        found |= {
            id_: {**row, "known": (row["target_type"], row["target_version"]) in runtime.catalogue}
            for id_, row in stuck.schedules(connection, scheduled).items()
        }
    if subscribed := by_type.get("subscription"):
        found |= stuck.subscriptions(connection, subscribed)
    if worker_ids := [*by_type.get("worker", ()), *by_type.get("uet_worker", ())]:
        found |= stuck.last_heartbeats(connection, worker_ids)
    if pending := by_type.get("approval"):
        releasable = approvals.releasable(connection, pending)
        found |= {id_: {"releases": id_ in releasable} for id_ in pending}
    return found


def _asked(
    connection: Connection,
    late: Sequence[RowMapping],
    requests: Mapping[UUID, Sequence[Mapping[Any, Any]]],
    links: Mapping[UUID, Sequence[Mapping[Any, Any]]],
) -> dict[UUID, Mapping[Any, Any]]:
    """The terms and voters of the approvals that these instances are, or wait for."""
    ids = {row["id"] for row in late if row["workflow_type"] == APPROVAL.type}
    ids |= {each["approval_id"] for rows in requests.values() for each in rows if each["approval_id"]}
    ids |= {each["id"] for rows in links.values() for each in rows if each["workflow_type"] == APPROVAL.type}
    if not ids:
        return {}
    voted = _grouped(approvals.votes(connection, ids))
    return {
        row["id"]: {**row, "voters": {each["triggered_by"] for each in voted.get(row["id"], ())}}
        for row in approvals.terms(connection, ids)
    }


def _grouped(rows: Iterable[M]) -> dict[UUID, list[M]]:
    grouped: dict[UUID, list[M]] = {}
    for row in rows:
        grouped.setdefault(row["workflow_id"], []).append(row)
    return grouped
