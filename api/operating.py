"""What operators do: by the functions that the commands call, in the token's name, each act in a thread.

Such an act may hold every partition's lock, read files or verify much history. In a thread, with connections of its
own, it does not hold up the event loop; a few run at a time, the others wait for their turn.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Annotated, Any, TypeVar
from uuid import UUID

import structlog
from pydantic import Field

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.models import Taken, Text, Whole
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotYours

log = structlog.get_logger()
T = TypeVar("T")

OPERATORS = "a token with the role operator or admin, in the name of an operator"
Reason = Annotated[Text, Field(min_length=1, description="why: one line, kept in history")]


class ActReason(Taken):
    """Why an operator does something."""

    reason: Reason


class VersionedAct(ActReason):
    """Why an operator does something to an instance, and at which version of it."""

    if_version: Whole | None = Field(None, description="only if the instance is at this version")


class ActOrder(VersionedAct):
    """Why an operator does something to an instance, and under which conditions."""

    dry_run: bool = Field(False, description="say what would happen, and change nothing")


async def apart(
    caller: Caller, project: str, work: Callable[[Runtime], T], turns: asyncio.Semaphore | None = None
) -> T:
    """Do something that blocks, in a thread, with a runtime whose names are looked up in a project.

    Args:
        caller: who asks.
        project: that project.
        work: what is done.
        turns: for what others than operators may ask for, and would keep them waiting with; default: operators' own.

    Raises:
        NoAnswer: PostgreSQL does not answer; what the thread does is then not known.
    """
    settings = caller.access.runtime.settings.model_copy(update={"project": project})

    def done() -> T:
        with closing(Runtime(settings)) as runtime:
            return work(runtime)

    async def in_turn() -> T:
        free = turns or caller.access.acts
        await free.acquire()
        doing = asyncio.create_task(asyncio.to_thread(done))
        doing.add_done_callback(partial(_ended, free))
        return await asyncio.shield(doing)  # a thread cannot be stopped, and has its turn until it ends

    return await caller.access.readiness.attended(in_turn())


def _ended(free: asyncio.Semaphore, doing: "asyncio.Task[Any]") -> None:
    free.release()
    if not doing.cancelled() and (error := doing.exception()):
        log.info("act_failed", error=type(error).__name__)  # whoever asked may have been answered before


async def operate(caller: Caller, named: str | None, said: ActReason, act: Callable[[Runtime, OverrideOrder], T]) -> T:
    """Do what operators do in a project: the named one, or the token's only one.

    Raises:
        NotYours: the token does not cover it, or has no operator's role.
    """
    project = caller.project(named)
    order = _order(caller, project, said)
    return await apart(caller, project, lambda runtime: act(runtime, order))


async def operate_on(
    caller: Caller,
    ref: str,
    named: str | None,
    said: ActReason,
    act: Callable[[Runtime, str, OverrideOrder], T],
    *types: str,
) -> T:
    """Do what operators do to an instance.

    Args:
        caller: in whose name.
        ref, named: the instance, as `Caller.located` takes it.
        said: why, and under which conditions.
        act: takes the instance's UUID.
        types: only an instance of these types; none given: of any.

    Raises:
        UnknownInstance: there is no such instance for this token.
        NotYours: the token has no operator's role.
    """

    def found() -> tuple[str, UUID, OverrideOrder]:
        with caller.located(ref, named) as (client, one):
            order = _order(caller, client.project, said)
            with transaction(client.runtime.database) as connection:
                return client.project, instances.find(connection, one, client.project, *types)["id"], order

    project, id_, order = await inside(found)
    return await apart(caller, project, lambda runtime: act(runtime, str(id_), order))


def require_operator(caller: Caller, project: str) -> None:
    """Raise `NotYours` for a token without an operator's role in a project; PostgreSQL judges the name's grant."""
    if not caller.principal.may_operate(project):
        raise NotYours(f"The token has the role {caller.principal.role}. Who may: {OPERATORS}.")


def _order(caller: Caller, project: str, said: ActReason) -> OverrideOrder:
    require_operator(caller, project)
    principal = caller.principal
    more = said.model_dump(include={"dry_run", "if_version"})
    return OverrideOrder(principal.name, said.reason, principal=principal, **more)
