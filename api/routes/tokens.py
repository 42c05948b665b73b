"""Tokens: who may act over HTTP and MCP. One is shown once, in the answer to whoever issues it."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.operating import ActReason, apart
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import list_model, row_model
from interlock.db.core.api_tokens import TokenRow
from interlock.workers.overrides import tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import NotYours
from interlock.workflows.machines.governance.api_token import Role

router = APIRouter(tags=["tokens"])

TOKEN = row_model(TokenRow)
ISSUED = row_model(TokenRow, token=Annotated[str, Field(description="the token itself, which is not shown again")])


class TokenOrder(ActReason):
    """A token to issue: its terms never change."""

    name: Text = Field(description="in whose name it acts")
    role: Role
    projects: list[Text] | None = Field(max_length=tokens.MOST_PROJECTS, description="where; null: in all")
    expires_at: AwareDatetime | None = Field(description="null: when it is revoked")


@router.get("/tokens", response_model=list_model(TOKEN), responses=documented())
async def list_tokens(
    caller: Called, all: Annotated[bool, Query(description="Also revoked and expired ones.")] = False
) -> JsonAnswer:
    """List tokens, oldest first: who acts with each, as what, where, until when, last used when. For admins.

    With an admin's token for some projects, those that are good for no others.
    """
    require_admin(caller)
    found = await inside(tokens.list_tokens, caller.access.runtime, ended=all)
    return JsonAnswer({"items": [row for row in found if covers(caller, row)]})


@router.post("/tokens", status_code=201, response_model=ISSUED, responses=documented(409))
async def issue_token(caller: Called, order: TokenOrder) -> JsonAnswer:
    """Issue a token, for no other projects than the admin's own is for, and no longer than that lasts. For admins.

    A repetition issues another: if the answer was lost, revoke the token that nobody has.
    """
    require_admin(caller)
    projects = None if order.projects is None else tuple(order.projects)
    terms = tokens.TokenTerms(order.name, order.role, projects, order.expires_at)
    why = OverrideOrder(caller.principal.name, order.reason, principal=caller.principal)
    usual = caller.access.runtime.settings.project
    issued = await apart(caller, usual, lambda runtime: tokens.issue(runtime, terms, why))
    return JsonAnswer({**issued.row, "token": issued.token}, 201, headers={"Cache-Control": "no-store"})


def require_admin(caller: Caller) -> None:
    """Raise `NotYours` for a token that is no admin's."""
    if caller.principal.role != "admin":
        raise NotYours(f"The token has the role {caller.principal.role}. Who may: a token with the role admin.")


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
