"""Agents: a token's holder registers as a worker of a project, claims its tasks, and reports on them.

It needs nothing but the token: another process with it is the same agent, and finds what it holds.
"""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from interlock.api.inside import inside
from interlock.api.models import (
    AgentClaim,
    AgentClaims,
    AgentLeaving,
    AgentReport,
    AgentState,
    LogAnswer,
    RegisteredAgent,
    Taken,
    Text,
)
from interlock.api.parameters import Wait
from interlock.api.problems import JsonAnswer, Responses, creating, documented
from interlock.api.working import AgentCalled
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.claims import Claim
from interlock.workers.pool.token_agents import AgentDescription

router = APIRouter(tags=["agents"])

NO_TASK: Responses = {204: {"description": "No task fits now, or the agent is full"}}
CLAIM = AgentClaim.model_fields
Token = Annotated[int, Field(strict=True, ge=1, le=2**63 - 1, description="the claim's")]


class NewAgent(Taken):
    """What an agent says of itself. Its name is the token's."""

    capabilities: list[Text] = Field([], max_length=100, examples=[["python", "git"]], description="what it can do")
    workstreams: list[Text] = Field([], max_length=100, description="take tasks of these only, by name or id")
    phases: list[Text] = Field([], max_length=100, description="take tasks of these phases only")

    def described(self) -> AgentDescription:
        """The same, as workers describe themselves."""
        said = {"workstreams": self.workstreams, "phases": self.phases}
        return AgentDescription(self.capabilities, {kind: wanted for kind, wanted in said.items() if wanted})


class TaskEnd(Taken):
    """How a claimed task ended."""

    token: Token
    exit_code: Annotated[int | None, Field(strict=True, ge=-(2**31), le=2**31 - 1)] = Field(
        None, description="default: 0, or with an error none"
    )
    error: Text | None = Field(None, description="what went wrong; the task is tried again while it has retries left")
    output: dict[str, Any] = Field({}, description="what it did, such as `stdout`; kept in the task's history")
    result: Any = Field(None, description="any JSON of at most 64 KiB, for later tasks")
    spent: dict[str, Any] | None = Field(
        None, examples=[{"tokens": 1200, "usd": 0.4}], description="what it cost; budgets count it"
    )


class TaskLog(Taken):
    """What an agent says while it works."""

    token: Token
    text: str = Field(max_length=1_000_000, description="appended as it is, newlines included")


@router.put("/agent", **creating(RegisteredAgent, "It lives already"))
async def register_agent(agent: AgentCalled, said: NewAgent) -> JsonAnswer:
    """Register as a worker of the project. Repeating it is harmless.

    Send a heartbeat within the seconds that the answer says; each claim counts as one.
    """
    new = await inside(agent.register, said.described())
    settings = agent.caller.access.runtime.settings
    answer = {
        "name": agent.caller.principal.name,
        "project": agent.project,
        "heartbeat_seconds": settings.heartbeat_seconds,
    }
    return JsonAnswer(answer, 201 if new else 200)


@router.post("/agent/claims", response_model=AgentClaim, responses=NO_TASK | documented(409))
async def claim_task(agent: AgentCalled, wait: Wait = 0.0) -> JsonAnswer:
    """Claim the next task that fits; it is running when this answers. With `wait`, wait for one."""
    claimed = await agent.claim(wait)
    return JsonAnswer(None, 204) if claimed is None else JsonAnswer(_shown(claimed))


@router.get("/agent/claims", response_model=AgentClaims, responses=documented(409))
async def list_claims(agent: AgentCalled) -> JsonAnswer:
    """The claims that the agent holds, with their tokens: after a restart, or for a token that was lost."""
    return JsonAnswer({"items": [_shown(each) for each in await agent.do(Agent.claims)]})


@router.post("/agent/heartbeat", response_model=AgentState, responses=documented(409))
async def send_heartbeat(
    agent: AgentCalled,
    token: Annotated[list[int], Query(max_length=100, description="A claim's; repeat it.")] = [],  # noqa: B006
) -> JsonAnswer:
    """Send a heartbeat, and ask which claims still hold: stop working on the others."""

    def beat(worker: Agent) -> dict[str, Any]:
        state = worker.heartbeat()
        return {"state": state, "holds": [each for each in token if worker.holds(each)]}

    return JsonAnswer(await agent.do(beat))


@router.post("/agent/finish", response_model=AgentReport, responses=documented(409))
async def finish_task(agent: AgentCalled, end: TaskEnd) -> JsonAnswer:
    """Report how a claimed task ended: completed if its exit code is expected, else failed. Repeat it safely."""
    said = {name: getattr(end, name) for name in ("exit_code", "error", "output", "result", "spent")}
    return JsonAnswer({"trigger": await agent.do(lambda worker: worker.finish(end.token, **said))})


@router.post("/agent/log", response_model=LogAnswer, responses=documented(409))
async def append_log(agent: AgentCalled, said: TaskLog) -> JsonAnswer:
    """Append to a claimed task's log, which `interlock run logs` shows live. Counts as a heartbeat."""
    return JsonAnswer({"kept": await agent.do(lambda worker: worker.log(said.token, said.text))})


@router.delete("/agent", response_model=AgentLeaving, responses=documented(409))
async def leave(
    agent: AgentCalled,
    wait_for_tasks: Annotated[bool, Query(description="Finish what it holds first, and claim nothing new.")] = False,
) -> JsonAnswer:
    """Stop being a worker. What it holds is given back to others."""
    left = await agent.do(lambda worker: worker.leave(wait_for_tasks=wait_for_tasks))
    return JsonAnswer({"tasks_left": left})


def _shown(claim: Claim) -> dict[str, Any]:
    return {name: value for name, value in asdict(claim).items() if name in CLAIM}
