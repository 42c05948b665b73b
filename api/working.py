"""What a token's holder does as an agent: it speaks for its worker by the token (`workers.pool.token_agents`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from interlock.api.access import Called, Caller, Credentials
from interlock.api.inside import inside
from interlock.api.parameters import Project
from interlock.workers.pool import token_agents
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.claims import Claim
from interlock.workers.pool.token_agents import AgentDescription

T = TypeVar("T")
AGAIN_SECONDS = 2.0  # an agent asks again after this even if nothing was queued: a limit or a breaker may have let go


@dataclass(frozen=True, slots=True)
class AgentCaller:
    """A sender of requests that works in one project.

    Attributes:
        caller: the sender.
        project: whose tasks it takes.
        secret: its worker's.
        request: the one that is answered.
    """

    caller: Caller
    project: str
    secret: str
    request: Request

    def register(self, description: AgentDescription) -> bool:
        """Register; for use in a greenlet only. Returns whether it was not registered yet."""
        client = self.caller.client(self.project, write=True)
        return token_agents.register(client, self.caller.principal.name, description, self.secret)[1]

    async def do(self, work: Callable[[Agent], T]) -> T:
        """Do something as the registered agent.

        Raises:
            UnknownInstance, ShutDown: it has not registered, or its worker has ended.
        """

        def done() -> T:
            self.caller.client(self.project, write=True)
            runtime, name = self.caller.access.runtime, self.caller.principal.name
            return work(token_agents.registered(runtime, name, self.project, self.secret))

        return await inside(done)

    async def claim(self, seconds: float) -> Claim | None:
        """Claim the next task that fits; wait for one for so many seconds at most.

        Raises:
            TooManyHeld: too many of the token's requests wait.
        """
        if not seconds:
            return await self.do(Agent.claim)
        with self.caller.access.waits.held(self.caller.principal.token_id):
            return await self._claimed(seconds)

    async def _claimed(self, seconds: float) -> Claim | None:
        await self.request.body()  # what comes after it is the disconnection
        loop = asyncio.get_running_loop()
        until, queued = loop.time() + seconds, self.caller.access.queued
        seen = await queued.changed(set(), 0.0)
        while (claimed := await self.do(Agent.claim)) is None and (left := until - loop.time()) > 0:
            seen = await queued.changed(seen, min(left, AGAIN_SECONDS))
            await self.caller.still()
            if await self.request.is_disconnected():
                return None  # or nobody would know of the claim
        return claimed


def agent(request: Request, caller: Called, given: Credentials, project: Project = None) -> AgentCaller:
    """The sender of a request, as an agent."""
    named = caller.project(project)
    assert given is not None  # or there were no caller
    return AgentCaller(caller, named, token_agents.secret_of(given.credentials, named), request)


AgentCalled = Annotated[AgentCaller, Depends(agent)]
