"""Checks events of history against the recorded definitions: their moves, who made them by which right, migrations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, select

from interlock.db.tables.core import definition_states, definition_transitions
from interlock.workflows.input.json_text import read
from interlock.workflows.versioning.export import canonical_checksum
from interlock.workflows.versioning.migration import MIGRATE, misfit
from interlock.workflows.versioning.rules import by_arrow

Move = tuple[bytes, bytes, bytes]  # source, trigger, destination, in UTF-8, as the audit reads them
Right = tuple[Move, frozenset[str], str | None]  # a move, who may make it, the name of its events
Grounds = tuple[bytes, bytes | None, bytes]  # an event's authority, its proof, and its metadata as JSON
MIGRATION = MIGRATE.encode()
ANYONE, OPERATOR = b"anyone", b"operator"
UNPROVEN = (ANYONE, b"decider")  # nothing proves that one is anyone; a decider is judged by the approval's guards


class Legal(NamedTuple):
    """How a move is made: who may make it, and whether an approval must be given for it."""

    by: frozenset[bytes]
    approved: bool

    def refuses(self, grounds: Grounds) -> str | None:
        """Why an event makes the move without the right to it (AUTHORITY-1); None if it has one.

        An override needs neither (AUTHORITY-5), but an operator's grant.
        """
        authority, proof, metadata = grounds
        if not self.approved and ANYONE in self.by and authority == ANYONE:
            return None
        if authority not in UNPROVEN and proof is None:
            return f"not proven: it says it is of {authority.decode()}, and names no proof"
        if authority == OPERATOR and "override" in read(metadata):
            return None
        if authority not in self.by and ANYONE not in self.by:
            allowed = ", ".join(sorted(each.decode() for each in self.by))
            return f"not allowed: it is of {authority.decode()}, but open to {allowed}"
        if self.approved and not (proof or b"").startswith(b"approval:"):
            return "not approved: its definition asks for an approval, and it names none"
        return None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one type: its moves and its recorded definitions, each by version."""

    moves: Mapping[bytes, Mapping[Move, Legal]]
    forms: Mapping[str, Mapping[str, Any]]

    def broken(self, under: bytes, to: bytes, move: Move, grounds: Grounds) -> str | None:
        """Why an event is illegal; None if it is legal. Whether its proof exists, `proofs.sql` looks up.

        Args:
            under: the version of its instance before the event.
            to: the version the event names.
            move: the event's trigger and states.
            grounds: by which right the event was made.
        """
        if move[1] != MIGRATION and under == to:
            legal = self.moves.get(to, {}).get(move)
            return legal.refuses(grounds) if legal else _named(move)
        if move[1] != MIGRATION:
            return f"{_named(move)}: under {to.decode()}, but {under.decode()} was its version"
        authority, proof, metadata = grounds
        if authority != OPERATOR or proof is None:
            return f"{_named(move)}: no operator's grant proves it"
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


def rules(bodies: Sequence[RowMapping]) -> dict[str, Rules]:
    """Type -> its rules, by recorded definitions (`definitions.listed`)."""
    return {
        type_: Rules(
            {row["version"].encode(): _moves(row["body"]) for row in bodies if row["type"] == type_},
            {row["version"]: row["body"] for row in bodies if row["type"] == type_},
        )
        for type_ in {row["type"] for row in bodies}
    }


def changed(connection: Connection, bodies: Sequence[RowMapping]) -> Iterator[tuple[str, str]]:
    """Definitions, of all that are recorded, that differ from what was recorded: which, and how."""
    enforced: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in connection.execute(select(definition_transitions)).mappings():
        enforced.setdefault((row["type"], row["version"]), []).append(dict(row))
    terminal: dict[tuple[str, str], dict[str, Any]] = {}
    for row in connection.execute(select(definition_states)).mappings():
        terminal.setdefault((row["type"], row["version"]), {})[row["state"]] = {"terminal": row["terminal"]}
    for row in bodies:
        type_, version = row["type"], row["version"]
        if canonical_checksum(row["body"]) != row["checksum"]:
            yield f"definition {type_} {version}", "changed: its checksum is not that of its content"
        if _rights(enforced.get((type_, version), ())) != _rights(row["body"]["transitions"]):
            yield (
                f"definition {type_} {version}",
                "changed: the moves PostgreSQL enforces, who may make them, or the names of their events, are not as "
                "it recorded them",
            )
        if (terminal.get((type_, version)), row["initial_state"]) != (row["body"]["states"], row["body"]["initial"]):
            yield (
                f"definition {type_} {version}",
                "changed: its first state, or its states and which of them are terminal, are not those it recorded",
            )


def _moves(body: Mapping[str, Any]) -> Mapping[Move, Legal]:
    ruled, none = by_arrow(body), [{"approval": None}]
    return {
        _move(each): Legal(
            frozenset(name.encode() for name in each["by"]),
            all(rule["approval"] for rule in ruled.get((each["trigger"], each["source"], each["dest"]), none)),
        )
        for each in body["transitions"]
    }


def _rights(listed: Iterable[Mapping[str, Any]]) -> frozenset[Right]:
    return frozenset((_move(each), frozenset(each["by"]), each.get("event")) for each in listed)


def _move(each: Mapping[str, Any]) -> Move:
    return each["source"].encode(), each["trigger"].encode(), each["dest"].encode()
