"""The recorded definitions, against which PostgreSQL checks every move."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from interlock.db.connection import take_lock
from interlock.db.schema import lock_number
from interlock.db.tables.core import definition_states, definition_transitions, definitions
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import Definition
from interlock.workflows.errors import DefinitionChanged
from interlock.workflows.versioning.diff import compare
from interlock.workflows.versioning.export import checksum, recorded

RECORD_LOCK = lock_number(0x1E71_0C50)


def record(connection: Connection, catalogue: Catalogue) -> list[Definition]:
    """Record new definitions; returns those that are new.

    Raises:
        DefinitionChanged: a recorded version has other content in the code; the message says which part of the version
            to raise (VERSION-4). Nothing is recorded.
    """
    take_lock(connection, RECORD_LOCK)
    known = {(row["type"], row["version"]): row for row in listed(connection)}
    new = []
    for definition in catalogue:
        row = known.get((definition.type, definition.version))
        if row is None:
            _insert(connection, definition)
            new.append(definition)
        elif row["checksum"] != checksum(definition):
            difference = compare(row["body"], recorded(definition))
            raise DefinitionChanged(
                f"{definition.type} {definition.version} was changed after it was recorded in this database, and the "
                f"change is {difference.verdict}. Give the changed definition a new version, {difference.wanted}."
            )
    return new


def unrecorded(connection: Connection, catalogue: Catalogue) -> list[str]:
    """The definitions (`TYPE VERSION`) that are not recorded, or recorded differently."""
    known = checksums(connection)
    return [
        f"{each.type} {each.version}" for each in catalogue if known.get((each.type, each.version)) != checksum(each)
    ]


def checksums(connection: Connection) -> dict[tuple[str, str], str]:
    """(type, version) -> checksum of every recorded definition, without reading its content."""
    query = select(definitions.c.type, definitions.c.version, definitions.c.checksum)
    return {(type_, version): checksum for type_, version, checksum in connection.execute(query)}


def listed(connection: Connection, type_: str | None = None) -> Sequence[RowMapping]:
    """Every recorded definition; of one type, if it is given."""
    query = select(definitions).order_by(definitions.c.type, definitions.c.version)
    return connection.execute(query if type_ is None else query.where(definitions.c.type == type_)).mappings().all()


def age_seconds(connection: Connection) -> float:
    """Seconds since the first definition was recorded: how old this installation is."""
    age = func.extract("epoch", func.now() - func.min(definitions.c.recorded_at))
    return float(connection.execute(select(age)).scalar() or 0.0)


def _insert(connection: Connection, definition: Definition) -> None:
    key: dict[str, Any] = {"type": definition.type, "version": definition.version}
    connection.execute(
        insert(definitions).values(
            **key,
            checksum=checksum(definition),
            body=recorded(definition),
            initial_state=definition.initial,
        )
    )
    connection.execute(
        insert(definition_states),
        [key | {"state": state, "terminal": state in definition.terminal} for state in definition.states],
    )
    connection.execute(
        insert(definition_transitions),
        [
            key
            | {
                "source": source,
                "trigger": move.trigger,
                "dest": move.dest,
                "by": list(move.authorities),
                "event": move.event or None,
            }
            for move in definition.transitions
            for source in move.sources
        ],
    )
