"""Definitions as PostgreSQL keeps them, and as it checks every move against them."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, func, insert, select, text

from db import deprecations
from db.tables import definition_states, definition_transitions, definitions
from workflows.catalogue import Catalogue
from workflows.compare import compare
from workflows.definition import Definition
from workflows.errors import DefinitionChanged
from workflows.export import checksum, recorded


def record(connection: Connection, catalogue: Catalogue) -> list[Definition]:
    """Record the definitions that are new, and announce what the code marks as deprecated; those recorded.

    Raises:
        DefinitionChanged: a version that is recorded now has other content; the message says which part of the
            version to raise (SSOT 9.1.4). Nothing is recorded.
    """
    connection.execute(text("LOCK TABLE workflow_definitions IN SHARE ROW EXCLUSIVE MODE"))
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
                f"{definition.type} {definition.version} is recorded with other content; give the changed definition "
                f"a new version, {difference.wanted}. The difference is {difference.verdict}."
            )
    deprecations.record_marks(connection, catalogue)
    return new


def listed(connection: Connection) -> Sequence[RowMapping]:
    """Every recorded definition."""
    order = (definitions.c.type, definitions.c.version)
    return connection.execute(select(definitions).order_by(*order)).mappings().all()


def age_seconds(connection: Connection) -> float:
    """Seconds since the first definition was recorded: how old this installation is."""
    age = func.extract("epoch", func.now() - func.min(definitions.c.recorded_at))
    return float(connection.execute(select(age)).scalar() or 0.0)


def _insert(connection: Connection, definition: Definition) -> None:
    key = {"type": definition.type, "version": definition.version}
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
            key | {"source": source, "trigger": move.trigger, "dest": move.dest}
            for move in definition.transitions
            for source in move.sources
        ],
    )
