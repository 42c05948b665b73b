"""What posts do as an operator, and what they say instead of a button."""

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from fastapi import Form, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.models import Text
from interlock.api.operating import ActOrder, operate, operate_on
from interlock.console.rendering import say
from interlock.workers.overrides.transaction import Done, OverrideOrder
from interlock.workers.runtime import Runtime

Reason = Annotated[Text, Form(min_length=1)]
Version = Annotated[int | None, Form(ge=0, le=2**31 - 1)]
Act = Callable[[Runtime, OverrideOrder], str]
ActOn = Callable[[Runtime, str, OverrideOrder], str]


def why_no_operator(caller: Caller, project: str) -> str:
    """Why the visitor is no operator in a project; empty: they are. PostgreSQL judges the name's grant."""
    if caller.principal.may_operate(project):
        return ""
    return f"It is for operators; your session is of the role {caller.principal.role}."


async def act(
    request: Request, caller: Caller, project: str, reason: str, work: Act, *, title: str, if_version: int | None = None
) -> Response:
    """Do what operators do in a project, and say so; `work` returns the words."""
    return say(request, title, await operate(caller, project, ActOrder(reason=reason, if_version=if_version), work))


async def act_on(
    request: Request, caller: Caller, id_: UUID, said: ActOrder, work: ActOn, *types: str, title: str
) -> Response:
    """Do what operators do to an instance of one of these types, and say so; `work` returns the words."""
    return say(request, title, await operate_on(caller, str(id_), None, said, work, *types))


def told(done: Done) -> str:
    """An override in words."""
    moves = [f"{each.instance}: {each.from_state} → {each.to_state}" for each in done.moves]
    return "; ".join([*moves, *done.notes, *(f"new: {name}" for name in done.made)])
