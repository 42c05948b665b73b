"""Tokens: who may act over HTTP and MCP. They are issued on the command line, which alone prints them."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.operating import ActReason, apart
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, row_model
from interlock.db.core.api_tokens import TokenRow
from interlock.workers.overrides import tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import NotYours

router = APIRouter(tags=["tokens"])

TOKEN = row_model(TokenRow)


@router.get("/tokens", response_model=list_model(TOKEN), responses=documented())
async def list_tokens(
    caller: Called, all: Annotated[bool, Query(description="Also revoked and expired ones.")] = False
) -> JsonAnswer:
    """List tokens, oldest first: who acts with each, as what, where, until when, last used when. For admins.

    With an admin's token for some projects, those that are good for no others.
    """
    if caller.principal.role != "admin":
        raise NotYours(f"The token has the role {caller.principal.role}. Who may: a token with the role admin.")
    found = await inside(tokens.list_tokens, caller.access.runtime, ended=all)
    return JsonAnswer({"items": [row for row in found if covers(caller, row)]})


def covers(caller: Caller, row: TokenRow) -> bool:
    """Whether a token is good for no other projects than the caller's."""
    own = caller.principal.projects
    return own is None or (row["projects"] is not None and own.issuperset(row["projects"]))


@router.post("/tokens/{token_id}/revoke", response_model=list_model(TOKEN), responses=documented(409))
async def revoke_token(caller: Called, token_id: UUID, order: ActReason) -> JsonAnswer:
    """Revoke a token: from now on it gives no right. For admins whose token covers it, and for who acts in its name."""
    principal = caller.principal
    if principal.role == "read-only":
        raise NotYours("The token is read-only. Who may: an admin's token, or one of the same name.")
    known = await inside(tokens.list_tokens, caller.access.runtime)
    named = next((row for row in known if row["token_id"] == token_id), None)
    own = named is not None and named["name"] == principal.name
    if principal.role != "admin" and not own:
        raise NotYours(f"The token has the role {principal.role}. Who may: an admin's token, or one of the same name.")
    if named is None or not (own or covers(caller, named)):
        raise tokens.NoSuchToken(f"no token in force is {token_id}")
    why = OverrideOrder(principal.name, order.reason, principal=principal)
    usual = caller.access.runtime.settings.project
    return JsonAnswer(
        {"items": await apart(caller, usual, lambda runtime: tokens.revoke_tokens(runtime, str(token_id), why))}
    )
