"""Tokens: who acts with which, and their end."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.routes.tokens import covers
from interlock.console.rendering import page, say
from interlock.console.session import Visitor
from interlock.db.core.api_tokens import TokenRow
from interlock.workers.access.tokens import Principal
from interlock.workers.overrides.tokens import list_tokens, revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import NotYours

router = APIRouter()

WHO = "Who may: an operator with a session of the role admin, or whoever acts in the token's name."


@router.get("/tokens")
async def tokens(request: Request, caller: Visitor, ended: Annotated[bool, Query(alias="all")] = False) -> Response:
    """The tokens that the visitor may see."""
    found = await inside(_seen, caller, ended)
    why_not = {each["token_id"]: "" if _may_revoke(caller.principal, each) else WHO for each in found}
    return page(request, "tokens.html", found=found, ended=ended, why_not=why_not)


@router.post("/tokens/{id_}/revoke")
async def revoke(request: Request, caller: Visitor, id_: UUID, reason: Annotated[str, Form()]) -> Response:
    """Revoke one of them."""

    def act() -> None:
        if not any(each["token_id"] == id_ and _may_revoke(caller.principal, each) for each in _seen(caller, False)):
            raise NotYours(f"There is no token {id_} that is yours to revoke. {WHO}")
        order = OverrideOrder(caller.principal.name, reason, principal=caller.principal)
        revoke_tokens(caller.access.runtime, str(id_), order)

    await inside(act)
    return say(request, "Revoked", "From now on it gives no right.")


def _seen(caller: Caller, ended: bool) -> Sequence[TokenRow]:
    """Those that the visitor's covers: of an admin's all, of others those in its name, as the API shows them."""
    every, name = caller.principal.role == "admin", caller.principal.name
    found = list_tokens(caller.access.runtime, ended=ended)
    return [each for each in found if covers(caller, each) and (every or each["name"] == name)]


def _may_revoke(visitor: Principal, row: TokenRow) -> bool:
    """Whether a button is worth showing; PostgreSQL decides."""
    own = row["name"] == visitor.name and visitor.role != "read-only"
    return row["state"] == "active" and (own or visitor.role == "admin")
