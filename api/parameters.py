"""What several routes take: a project, a filter, a keyset page, a time to wait, an idempotency key."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Query

from interlock.api.models import Text
from interlock.workflows.errors import BadInput
from interlock.workflows.input.names import NAME_LIMIT, REQUEST_ID_LIMIT

MOST = 500  # of a page
WAIT_SECONDS, LONGEST_WAIT_SECONDS = 5.0, 60.0

Asked = Annotated[Text | None, Query(max_length=NAME_LIMIT)]
Project = Annotated[
    Text | None,
    Query(max_length=NAME_LIMIT, description="Default: the token's only project; of one for all, the server's."),
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="The most to return.")]
Before = Annotated[UUID | None, Query(description="`next` of the page before this one.")]
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds to wait for the outcome, at most.")]
IdempotencyKey = Annotated[
    Text | None,
    Header(alias="Idempotency-Key", max_length=REQUEST_ID_LIMIT + 2, description="The same as `request_id`."),
]


def page(found: Sequence[Mapping[str, Any]], limit: int, key: str = "id") -> dict[str, Any]:
    """A page of at most `limit` rows, of which one more was asked for; `next` is None on the last page."""
    items = found[:limit]
    return {"items": items, "next": items[-1][key] if len(found) > limit else None}


def one_key(request_id: str, header: str | None) -> str:
    """The idempotency key of a request that may give it in its body, its header (with quotes or without), or both.

    Raises:
        BadInput: they differ.
    """
    said = (header or "").removeprefix('"').removesuffix('"')
    if request_id and said and request_id != said:
        raise BadInput("Idempotency-Key and request_id differ: give one of them")
    return request_id or said
