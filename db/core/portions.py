"""Which rows of a list are read: the newest, a portion at a time."""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID


class Portion(NamedTuple):
    """A portion of the newest rows.

    Attributes:
        projects: of these only; None: of all.
        limit: the most to return.
        before: only older ones than this, for the next page: its id.
    """

    projects: Collection[str] | None = None
    limit: int = 50
    before: UUID | None = None


NEWEST = Portion()
