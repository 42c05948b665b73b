"""Moves live instances to another version of their definition: each in one transaction, under its partition's lock.

An interrupted migration can be run again: migrated instances are no longer found under the old version.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, RowMapping
from sqlalchemy.exc import DBAPIError
from uuid_utils.compat import uuid7

from interlock.db.connection import retryable, transaction
from interlock.db.core import guard_rows, instances, requests
from interlock.db.operations import instance_migration
from interlock.db.retry import retried
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.transaction import require_operator
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput, UnknownInstance, UnknownWorkflow
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door, record
from interlock.workflows.versioning.migration import MIGRATE, Open, Subject, clock, destination, obstacles
from interlock.workflows.versioning.rules import Form

log = structlog.get_logger()


@record
@dataclass(frozen=True, slots=True)
class Migration:
    """A migration: instances of a type, from one version to another.

    Attributes:
        type, old, new: the type and its two versions.
        by, reason: the operator, and why; both are kept in each event.
        renamed: states that the new version lacks -> their replacements.
        only: these instances; None for all that have not ended.
        dry_run: migrate each one for real and roll it back.
    """

    type: str
    old: str
    new: str
    by: str
    reason: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[UUID] | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Unmigrated:
    """An instance that cannot be migrated as it is, with all reasons."""

    id: UUID
    entity_id: str
    state: str
    why: tuple[str, ...]


@dataclass(slots=True)
class Migrated:
    """What a migration did or, in a dry run, would do."""

    found: int = 0
    moved: int = 0
    stays: list[Unmigrated] = field(default_factory=list)


@door
def migrate(
    database: Engine, catalogue: Catalogue, order: Migration, progress: Callable[[int, int], None] = lambda _, __: None
) -> Migrated:
    """Migrate every instance that fits; name the others, each with the reasons.

    Args:
        database, catalogue: where, and the definitions this process knows.
        order: what is to be migrated, by whom and why.
        progress: called with the number of instances looked at, and their total.

    Raises:
        NotAnOperator: `order.by` is not an operator.
        UnknownWorkflow: the new version is not in the code or not recorded, or the old one is not recorded.
        BadInput: a name or a mapping is not valid.
        DBAPIError: the infrastructure failed. Instances migrated before stay migrated, and running it again continues.
    """
    with transaction(database) as connection:
        crossing = _crossing(connection, catalogue, order)
        total = (
            instance_migration.count_live(connection, order.type, order.old) if order.only is None else len(order.only)
        )
    done = Migrated()
    with database.connect() as reading:
        for page in instance_migration.pages(reading, order.type, order.old, order.only):
            reading.rollback()  # no transaction is open between pages
            for instance_id in page:
                done.found += 1
                came = crossing.take(database, instance_id)
                if isinstance(came, Unmigrated):
                    done.stays.append(came)
                else:
                    done.moved += came
                progress(done.found, max(total, done.found))
    log.info("migrated", type=order.type, old=order.old, new=order.new, moved=done.moved, stay=len(done.stays))
    return done


def _crossing(connection: Connection, catalogue: Catalogue, order: Migration) -> "_Crossing":
    names.name("by", order.by)
    names.reason("--reason, which each event keeps,", order.reason)
    require_operator(connection, order.by, "migrate", f"{order.type} {order.old}")
    if order.old == order.new:
        raise BadInput(f"the old and the new version are the same, {order.type} {order.old}")
    new = catalogue.get(order.type, order.new)
    old, recorded = (instance_migration.form(connection, order.type, version) for version in (order.old, order.new))
    if old is None or recorded is None:
        missing = order.old if old is None else order.new
        raise UnknownWorkflow(f"{order.type} {missing} is not recorded in this database. Run `interlock migrate`.")
    for state, dest in order.renamed.items():
        if wrong := _wrong(old, new, state, dest):
            raise BadInput(f"--map {state}={dest}: {wrong}")
    return _Crossing(order, old, new)


def _wrong(old: Form, new: Definition, state: str, dest: str) -> str | None:
    if state not in old["states"]:
        return f"{old['type']} {old['version']} has no state {state!r}"
    if state in new.states:
        return f"{new.version} also has {state!r}, so instances in it keep it"
    if dest not in new.states:
        return f"{new.version} has no state {dest!r}. It has: {', '.join(new.states)}"
    return None


@dataclass(frozen=True, slots=True)
class _Crossing:
    """Migrates instances from one version to another, one by one."""

    order: Migration
    old: Form
    new: Definition

    def take(self, database: Engine, instance_id: UUID) -> Unmigrated | bool:
        """Migrate one instance. Returns why it stays, or whether it moved (False: it ended or left the old version)."""
        return retried(lambda _: self._try(database, instance_id))

    def _try(self, database: Engine, instance_id: UUID) -> Unmigrated | bool:
        row: RowMapping | None = None
        try:
            with transaction(database) as connection:
                row = instance_migration.lock(connection, instance_id)
                if (
                    row is None
                    or row["definition_version"] != self.order.old
                    or self.old["states"][row["current_state"]]["terminal"]
                ):
                    return False
                subject = self._subject(connection, row)
                if why := obstacles(self.old, self.new, subject, self.order.renamed):
                    return _unmigrated(row, *why)
                self._move(connection, row, subject)
                instance_migration.check_now(connection)
                if self.order.dry_run:
                    connection.rollback()
        except Exception as error:
            if row is None or retryable(error):
                raise
            return _unmigrated(row, self._error_text(row, error))
        return True

    def _error_text(self, row: RowMapping, error: Exception) -> str:
        """An error as text. If our own code fails on an instance, it stays too, so that the others can go on."""
        if isinstance(error, UnknownInstance):
            return f"a link that {self.new.version} declares: {error}"
        if isinstance(error, DBAPIError):
            return f"PostgreSQL refuses it: {str(error.orig or error).strip().splitlines()[0]}"
        log.exception("not_migrated", instance=str(row["id"]))
        return f"it cannot be judged: {type(error).__name__}: {error}"

    def _subject(self, connection: Connection, row: RowMapping) -> Subject:
        kind = "lineage" if self.new.version.startswith("0.") else self.new.type
        known = kind in guard_rows.STATEMENTS
        columns = guard_rows.rows(connection, {kind: [row["id"]]}).get(row["id"]) if known else None
        return Subject(
            state=row["current_state"],
            version=row["version"],
            context=instance_migration.context(connection, row["id"]),
            requests=[_open(each) for each in instance_migration.unfinished(connection, row["id"])],
            reports=instance_migration.outcome_triggers(connection, row["id"]),
            row_readable=columns is not None,
            row=dict(columns or {}),
        )

    def _move(self, connection: Connection, row: RowMapping, subject: Subject) -> None:
        dest = destination(self.new, subject.state, self.order.renamed)
        timers = self._timers(connection, row, subject)
        instance_migration.migrate(
            connection,
            {
                "id": uuid7(),
                "workflow_id": row["id"],
                "seq": row["version"] + 1,
                "workflow_type": self.order.type,
                "definition_version": self.order.new,
                "from_state": subject.state,
                "to_state": dest,
                "trigger": MIGRATE,
                "triggered_by": self.order.by,
                "metadata": json.dumps(self._migration_metadata()),
            },
        )
        instances.link(connection, self._links(row))
        requests.accept(connection, timers)

    def _migration_metadata(self) -> dict[str, Any]:
        order = self.order
        metadata = {"from_version": order.old, "to_version": order.new, "reason": order.reason}
        return metadata | ({"renamed": dict(order.renamed)} if order.renamed else {})

    def _timers(self, connection: Connection, row: RowMapping, subject: Subject) -> list[dict[str, Any]]:
        """The timer of its present state, because the one armed before is bound to a version that it leaves."""
        age = instance_migration.age_seconds(connection, row["id"])
        runs_out = clock(self.old, self.new, subject, self.order.renamed, age)
        if runs_out is None:
            return []
        begun = requests.timers(connection, [row["id"]]) if runs_out.kept else ()
        due = begun[0]["not_before"] if begun else None
        return [creation.timer(row["id"], row["version"] + 1, runs_out.deadline, due=due)]

    def _links(self, row: RowMapping) -> list[dict[str, Any]]:
        """The links that only the new version declares, from its context."""
        known = {link["role"] for link in self.old["links"]}
        birth = Birth(self.new, row["entity_id"], row["project"], row["created_by"], row["context"], row["id"])
        return [link for link in creation.links(birth) if link["role"] not in known]


def _unmigrated(row: RowMapping, *why: str) -> Unmigrated:
    return Unmigrated(row["id"], row["entity_id"], row["current_state"], why)


def _open(row: RowMapping) -> Open:
    columns = ("request_id", "trigger", "status", "origin", "bound_version")
    values = [*(row[each] for each in columns), row["held_by"] is not None, row["metadata"]]
    return Open(*values)
