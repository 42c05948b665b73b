"""The newest instances as people look at them: by state, and by a part of a name. Each look is bounded."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core.instances import as_uuid
from interlock.db.fast_path import rows
from interlock.db.statements import queries

sql = queries(__file__)

LOOKED_AT = 10_000
PROJECTS = 200


class BoardRow(TypedDict):
    """A card of a board. `many`: how many of the instances looked at are in its state."""

    id: UUID
    entity_id: str
    project: str
    current_state: str
    error: str | None
    updated_at: datetime
    many: int


class StateCount(TypedDict):
    """How many instances of a type are in a state."""

    workflow_type: str
    current_state: str
    many: int


class NamedInstance(TypedDict):
    """An instance that a text may name."""

    id: UUID
    workflow_type: str
    entity_id: str
    current_state: str
    project: str


def board(
    connection: Connection, type_: str, *, projects: Collection[str] | None, words: str, cards: int
) -> Sequence[BoardRow]:
    """The newest instances of a type, newest first.

    Args:
        connection: any.
        type_: theirs.
        projects: of these only; None: of all.
        words: what their names contain, in any case.
        cards: the most of each state.
    """
    given = {"type": type_, "projects": _listed(projects), "words": words, "cards": cards, "most": LOOKED_AT}
    return cast(Sequence[BoardRow], rows(connection, sql("board"), given))


def by_state(connection: Connection, projects: Collection[str]) -> Sequence[StateCount]:
    """Of the newest instances of some projects, how many are in each state."""
    given = {"projects": list(projects), "most": LOOKED_AT}
    return cast(Sequence[StateCount], rows(connection, sql("by_state"), given))


def named(
    connection: Connection, words: str, *, projects: Collection[str] | None, limit: int
) -> Sequence[NamedInstance]:
    """Instances of which `words` is the id or the name, then the newest that have it in their name.

    Args:
        connection: any.
        words: what somebody typed so far.
        projects: of these only; None: of all.
        limit: the most to return.
    """
    given = {"words": words, "id": as_uuid(words), "projects": _listed(projects), "limit": limit, "most": LOOKED_AT}
    return cast(Sequence[NamedInstance], rows(connection, sql("named"), given))


def first_projects(connection: Connection) -> list[str]:
    """The projects that have instances, but Interlock's own, by name, `PROJECTS` at most."""
    return [row["project"] for row in rows(connection, sql("first_projects"), {"most": PROJECTS})]


def _listed(projects: Collection[str] | None) -> list[str] | None:
    return None if projects is None else list(projects)
