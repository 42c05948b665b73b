"""The command or patch of each task and gate, as a plan or an operator gave it.

PostgreSQL accepts a row only in the transaction that creates its instance, and never lets it change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, Uuid, column, insert, literal, select, values

from interlock.db.core.archive import records
from interlock.db.schema import in_schema
from interlock.db.statements import execute
from interlock.db.tables.orchestration import commands

Kind = Literal["command", "shell", "patch"]


@dataclass(frozen=True, slots=True)
class CommandRow:
    """The command that is run for one instance, with its limits; or the patch that it lands.

    Attributes:
        kind: `command`: `argv` is a program and its arguments; `shell`: `argv` is one line for `/bin/sh`; `patch`:
            `patch_id` lands with `message`.
        env: variables; `env_from`: variables by reference, NAME -> where the worker finds the value.
        cwd: relative to its workstream's working directory.
        limits, sandbox: as in the plan.
        timeout_sec: None: the worker's default.
        tool: the circuit breaker that guards it.
    """

    kind: Kind
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    timeout_sec: float | None = None
    expected_exit_codes: tuple[int, ...] = (0,)
    tool: str | None = None
    patch_id: str | None = None
    message: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """What it says, by column."""
        return {name: getattr(self, name) for name in FIELDS}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where commands come from (a plan or an operator), by whom, and why; a plan needs no reason."""

    source: Literal["plan", "operator"]
    by: str
    reason: str | None = None


# All in one statement: each would have its rows' constraints prepared anew (ADR 28).
_STORE = in_schema("""
INSERT INTO interlock.commands SELECT * FROM json_populate_recordset(NULL::interlock.commands, %(rows)s::json)
""")
FIELDS = tuple(CommandRow.__dataclass_fields__)


def store(connection: Connection, run_id: UUID, rows_by_id: Mapping[UUID, CommandRow], origin: Origin) -> None:
    """Store the commands of instances that this transaction creates in a run with a plan.

    Raises:
        IntegrityError: PostgreSQL refuses one: its instance existed before, its run has no plan, or its giver may not.
    """
    common = {"run_id": run_id, "source": origin.source, "made_by": origin.by, "reason": origin.reason}
    rows = [{"workflow_id": each, **common, **_columns(row)} for each, row in rows_by_id.items()]
    execute(connection, _STORE, rows)


def copy(connection: Connection, new_by_old: Mapping[UUID, UUID], origin: Origin | None = None) -> None:
    """Copy the commands of instances, of those that have one, to the instances that replace them. Raises as `store`.

    Args:
        connection: the transaction that creates the new instances.
        new_by_old: the instance that has the command -> the one that gets it.
        origin: where they come from; None: from the same as the old ones, as when a gate is run again.
    """
    if not new_by_old:
        return
    pairs = values(column("old", Uuid), column("new", Uuid), name="pairs").data([*new_by_old.items()])
    other = {"source": origin.source, "made_by": origin.by, "reason": origin.reason} if origin else {}
    changed = {"workflow_id": pairs.c.new} | {name: literal(value) for name, value in other.items()}
    query = select(*(changed.get(each.name, each) for each in commands.c)).join(
        pairs, pairs.c.old == commands.c.workflow_id
    )
    connection.execute(insert(commands).from_select([each.name for each in commands.c], query))


def of(connection: Connection, workflow_id: UUID) -> CommandRow | None:
    """The command of an instance; None if neither a plan nor an operator gave one."""
    return of_many(connection, [workflow_id]).get(workflow_id)


def of_many(connection: Connection, workflow_ids: Sequence[UUID]) -> dict[UUID, CommandRow]:
    """Instance -> its command, for those that have one."""
    query = select(commands).where(commands.c.workflow_id.in_(workflow_ids))
    return {row["workflow_id"]: row_of(row) for row in connection.execute(query).mappings()}


def shown(connection: Connection, workflow_id: UUID) -> dict[str, Any] | None:
    """The command of an instance, live or archived, and where it comes from; None if it has none."""
    row = connection.execute(select(commands).where(commands.c.workflow_id == workflow_id)).mappings().first()
    archived = select(records.c.body).where(records.c.kind == "commands", records.c.key == str(workflow_id))
    found: Mapping[Any, Any] | None = row or connection.execute(archived).scalar()
    if found is None:
        return None
    return {name: value for name, value in found.items() if name not in ("workflow_id", "run_id")}


def row_of(columns: Mapping[Any, Any]) -> CommandRow:
    """A command from its row."""
    values = {name: columns[name] for name in FIELDS}
    lists = {name: tuple(values[name]) for name in ("argv", "expected_exit_codes")}
    return CommandRow(**values | lists)


def _columns(row: CommandRow) -> dict[str, Any]:
    return row.columns | {"argv": list(row.argv), "expected_exit_codes": list(row.expected_exit_codes)}
