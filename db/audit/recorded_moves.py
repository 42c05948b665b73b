"""Checks events of history against the recorded definitions: their moves, and migrations."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from interlock.db.core import definitions
from interlock.db.tables.core import definition_states, definition_transitions
from interlock.workflows.input.json_text import read
from interlock.workflows.versioning.export import canonical_checksum
from interlock.workflows.versioning.migration import MIGRATE, misfit

Move = tuple[bytes, bytes, bytes]  # source, trigger, destination, in UTF-8, as the audit reads them
Right = tuple[Move, frozenset[str]]  # a move, and who may make it
MIGRATION = MIGRATE.encode()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one type: its moves and its recorded definitions, each by version."""

    moves: Mapping[bytes, frozenset[Move]]
    forms: Mapping[str, Mapping[str, Any]]

    def broken(self, under: bytes, to: bytes, move: Move, metadata: bytes) -> str | None:
        """Why an event is illegal; None if it is legal.

        Args:
            under: the version of its instance before the event.
            to: the version the event names.
            move: the event's trigger and states.
            metadata: the event's metadata, as JSON.
        """
        if move[1] != MIGRATION and under == to:
            return None if move in self.moves.get(to, ()) else _named(move)
        if move[1] != MIGRATION:
            return f"{_named(move)}: under {to.decode()}, but {under.decode()} was its version"
        source, dest = move[0].decode(), move[2].decode()
        message = misfit(
            self.forms, under=under.decode(), to=to.decode(), source=source, dest=dest, metadata=read(metadata)
        )
        return message and f"{_named(move)}: {message}"

    def begins(self, version: str) -> str | None:
        """The state in which instances of a version begin; None if it is not recorded."""
        form = self.forms.get(version)
        return str(form["initial"]) if form else None


NO_RULES = Rules({}, {})


def _named(move: Move) -> str:
    source, trigger, dest = (each.decode() for each in move)
    return f"illegal: {source} → {dest} by {trigger}"


def recorded(connection: Connection, only: str | None = None) -> dict[str, Rules]:
    """Type -> its rules; of one type, if it is given."""
    bodies = definitions.listed(connection, only)
    return {
        type_: Rules(
            {row["version"].encode(): _moves(row["body"]["transitions"]) for row in bodies if row["type"] == type_},
            {row["version"]: row["body"] for row in bodies if row["type"] == type_},
        )
        for type_ in {row["type"] for row in bodies}
    }


def changed(connection: Connection) -> Iterator[tuple[str, str]]:
    """Definitions that differ from what was recorded: which, and how."""
    enforced: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in connection.execute(select(definition_transitions)).mappings():
        enforced.setdefault((row["type"], row["version"]), []).append(dict(row))
    terminal: dict[tuple[str, str], dict[str, Any]] = {}
    for row in connection.execute(select(definition_states)).mappings():
        terminal.setdefault((row["type"], row["version"]), {})[row["state"]] = {"terminal": row["terminal"]}
    for row in definitions.listed(connection):
        type_, version = row["type"], row["version"]
        if canonical_checksum(row["body"]) != row["checksum"]:
            yield f"definition {type_} {version}", "changed: its checksum is not that of its content"
        if _rights(enforced.get((type_, version), ())) != _rights(row["body"]["transitions"]):
            yield (
                f"definition {type_} {version}",
                "changed: the moves PostgreSQL enforces, or who may make them, are not those it recorded",
            )
        if (terminal.get((type_, version)), row["initial_state"]) != (row["body"]["states"], row["body"]["initial"]):
            yield (
                f"definition {type_} {version}",
                "changed: its first state, or its states and which of them are terminal, are not those it recorded",
            )


def _moves(listed: Iterable[Mapping[str, Any]]) -> frozenset[Move]:
    return frozenset(_move(each) for each in listed)


def _rights(listed: Iterable[Mapping[str, Any]]) -> frozenset[Right]:
    return frozenset((_move(each), frozenset(each["by"])) for each in listed)


def _move(each: Mapping[str, Any]) -> Move:
    return each["source"].encode(), each["trigger"].encode(), each["dest"].encode()
