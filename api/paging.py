"""Lists that are read page by page: the parameters that all of them take, and the page that is answered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.parameters import Before, Limit, Project, page
from interlock.api.problems import JsonAnswer
from interlock.db.connection import transaction
from interlock.db.core.portions import Portion

Row = Mapping[Any, Any]
IN_STATE = Query(description="Only those in this state.")


@dataclass(frozen=True, slots=True)
class PageCaller:
    """Who asks for a page of a list, of which project (None: of all that the token covers), and which page."""

    caller: Caller
    project: str | None
    limit: int
    before: UUID | None

    @property
    def portion(self) -> Portion:
        """What is read of the list, one row more than the page has: it says whether there is another page."""
        return Portion(self.caller.projects(self.project), self.limit + 1, self.before)

    async def page(
        self,
        read: Callable[..., Sequence[Row]],
        shown: Callable[[Row], Row] | None = None,
        *,
        key: str = "id",
        **where: object,
    ) -> JsonAnswer:
        """The page.

        Args:
            read: gets a connection, a `Portion` and, by name, `where`; returns the newest rows.
            shown: what of a row is answered; default: all.
            key: the field that the next page begins behind.
            where: filters.

        Raises:
            NotYours: the token does not cover the project.
        """

        def found() -> list[Row]:
            with transaction(self.caller.access.runtime.database) as connection:  # which records a `NotYours`
                rows = read(connection, self.portion, **where)
                return [shown(each) for each in rows] if shown else [*rows]

        return JsonAnswer(page(await inside(found), self.limit, key))

    async def of(self, ref: str | None, type_: str) -> UUID | None:
        """The instance to which a filter limits the list; None: the filter is not given."""
        if not ref:
            return None
        found: UUID = (await inside(self.caller.instance, ref, self.project, type_))["id"]
        return found


def paging(caller: Called, project: Project = None, limit: Limit = 50, before: Before = None) -> PageCaller:
    """The sender of a request for a page."""
    return PageCaller(caller, project, limit, before)


Paging = Annotated[PageCaller, Depends(paging)]
