"""The tools: what an agent can do, each one call of the HTTP API."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, ToolAnnotations
from pydantic import Field

from interlock.api.mcp.bearer import token_of
from interlock.api.mcp.door import ApiDoor, answered, at, given, of
from interlock.api.presented import Presented

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
CLAIM = "claim_task"
FIRE = "fire_trigger"
SUBMIT = "submit_run"

Ctx = Context[Any, Any]
Ref = Annotated[str, Field(description="UUID, TYPE/ENTITY_ID, or an entity id that is unique in the project")]
Project = Annotated[str | None, Field(description="default: the token's only project")]
Seconds = Annotated[float, Field(ge=0, le=60, description="how long to wait for the outcome, at most")]
Held = Annotated[int, Field(description="`token` of a claim, as claim_task returned it")]


def add_tools(server: MCPServer[Any], door: ApiDoor) -> None:
    """Add every tool to a server that calls the API by `door`."""

    call = partial(_called, door)

    @server.tool(annotations=READS)
    async def find_instances(
        ctx: Ctx,
        *,
        project: Project = None,
        type: Annotated[str | None, Field(description="such as `story`")] = None,
        state: str | None = None,
        limit: Annotated[int, Field(ge=1, le=500)] = 20,
        before: Annotated[str | None, Field(description="`next` of the page before")] = None,
    ) -> CallToolResult:
        """Find work: instances, newest first, by type and state. `next` asks for the next page."""
        asked = given(project=project, type=type, state=state, limit=limit, before=before)
        return await call(ctx, "GET", "/api/instances", params=asked)

    @server.tool(annotations=READS)
    async def show_instance(ctx: Ctx, *, instance: Ref, project: Project = None) -> CallToolResult:
        """Show an instance: its state, which triggers are legal now, and what is missing for others."""
        return await call(ctx, "GET", at("/api/instances", instance), params=given(project=project))

    @server.tool(annotations=READS)
    async def show_history(ctx: Ctx, instance: Ref, project: Project = None, after: int = 0) -> CallToolResult:
        """Read an instance's moves, oldest first: who made each, when, why and with which right. It is verified."""
        asked = given(project=project, after=after)
        return await call(ctx, "GET", at("/api/history", instance), params=asked)

    @server.tool(annotations=READS)
    async def show_definition(
        ctx: Ctx, type: str, version: Annotated[str | None, Field(description="default: the newest")] = None
    ) -> CallToolResult:
        """Show a machine: its states, and who may fire which trigger from which state under which conditions."""
        return await call(ctx, "GET", at("/api/definitions", type), params=given(version=version))

    @server.tool(annotations=WRITES)
    async def create_instance(
        ctx: Ctx,
        *,
        type: str,
        entity_id: Annotated[str, Field(description="its name, unique in the project for its type")],
        project: Project = None,
        context: Annotated[Mapping[str, Any] | None, Field(description="what its guards read; fixed")] = None,
    ) -> CallToolResult:
        """Create an instance of a machine. Repeating it is harmless."""
        said = given(type=type, entity_id=entity_id, project=project, context=context)
        return await call(ctx, "POST", "/api/instances", json=said)

    @server.tool(name=FIRE, annotations=WRITES)
    async def fire_trigger(
        ctx: Ctx,
        *,
        instance: Ref,
        trigger: str,
        project: Project = None,
        data: Annotated[Mapping[str, Any] | None, Field(description="kept in the event")] = None,
        request_id: Annotated[str | None, Field(description="your own key: the same again fires once")] = None,
        if_version: Annotated[int | None, Field(description="only if the instance is at this version")] = None,
        wait: Seconds = 5.0,
    ) -> CallToolResult:
        """Fire a trigger, and wait for its outcome. A refusal says the state, the legal triggers and what is missing.

        If it is held for an approval, the status is `waiting`: it goes on by itself once the approval is decided.
        """
        said = given(
            instance=instance, trigger=trigger, project=project, data=data, request_id=request_id, if_version=if_version
        )
        return await call(ctx, "POST", "/api/triggers", json=said, params={"wait": wait})

    @server.tool(annotations=READS)
    async def show_request(ctx: Ctx, request_id: str, wait: Seconds = 0.0) -> CallToolResult:
        """Show what became of a trigger that was fired."""
        return await call(ctx, "GET", at("/api/requests", request_id), params={"wait": wait})

    @server.tool(annotations=READS)
    async def list_approvals(ctx: Ctx, project: Project = None) -> CallToolResult:
        """List the approvals that wait for your decision."""
        return await call(ctx, "GET", "/api/approvals", params=given(project=project))

    @server.tool(annotations=WRITES)
    async def decide_approval(
        ctx: Ctx,
        *,
        approval: Annotated[str, Field(description="its UUID")],
        decision: Literal["approve", "reject"],
        reason: str = "",
    ) -> CallToolResult:
        """Approve or reject what an approval holds. Nobody decides on what is their own."""
        said = {"decision": decision, "reason": reason}
        return await call(ctx, "POST", f"{at('/api/approvals', approval)}/decision", json=said)

    _add_work(server, door)
    _add_runs(server, door)
    _add_operating(server, door)


def _add_runs(server: MCPServer[Any], door: ApiDoor) -> None:
    """The tools of who runs plans."""
    call = partial(_called, door)

    @server.tool(name=SUBMIT, annotations=WRITES)
    async def submit_run(
        ctx: Ctx,
        *,
        plan: Annotated[Mapping[str, Any], Field(description="as `interlock run` takes it: `name`, `workstreams`, …")],
        name: Annotated[str | None, Field(description="the run's name, which is its idempotency key")] = None,
        priority: Annotated[int | None, Field(description="higher goes first")] = None,
        directory: Annotated[str | None, Field(description="on the server: the base of the plan's paths")] = None,
        project: Project = None,
    ) -> CallToolResult:
        """Run a plan: workstreams of tasks and gates. For operators. show_run says how far it is."""
        asked = given(project=project, name=name, priority=priority, directory=directory)
        return await call(ctx, "POST", "/api/runs", json=dict(plan), params=asked)

    @server.tool(annotations=READS)
    async def show_run(ctx: Ctx, run: Ref, project: Project = None) -> CallToolResult:
        """Show a run with its workstreams, tasks, gates and patches: their states, and why they wait or failed."""
        return await call(ctx, "GET", at("/api/runs", run), params=given(project=project))

    @server.tool(annotations=READS)
    async def read_run_log(
        ctx: Ctx,
        *,
        run: Ref,
        task: Annotated[str, Field(description="WORKSTREAM/TASK")],
        after: Annotated[int | None, Field(description="`next` of the part before")] = None,
        project: Project = None,
        wait: Seconds = 0.0,
    ) -> CallToolResult:
        """Read what a task printed, part by part; with `wait`, wait for more."""
        asked = given(project=project, task=task, after=after) | {"wait": wait}
        return await call(ctx, "GET", f"{at('/api/runs', run)}/logs", params=asked)


def _add_operating(server: MCPServer[Any], door: ApiDoor) -> None:
    """The tools of who finds out why something waits, and of operators."""
    call = partial(_called, door)

    @server.tool(annotations=READS)
    async def list_stuck(ctx: Ctx, project: Project = None, type: str | None = None) -> CallToolResult:
        """List what is stuck: since when, why, and the command and the request that would help."""
        return await call(ctx, "GET", "/api/stuck", params=given(project=project, type=type))

    @server.tool(annotations=READS)
    async def show_gate(ctx: Ctx, gate: Ref, project: Project = None) -> CallToolResult:
        """Show a gate: its command, its exit code and what the command printed."""
        return await call(ctx, "GET", at("/api/gates", gate), params=given(project=project))

    @server.tool(annotations=READS)
    async def show_patch(ctx: Ctx, patch: Ref, project: Project = None) -> CallToolResult:
        """Show a patch: its diff, its checks, its moves, and why it was set aside."""
        return await call(ctx, "GET", at("/api/patches", patch), params=given(project=project))

    @server.tool(annotations=WRITES)
    async def submit_patch(
        ctx: Ctx,
        *,
        based_on: Annotated[str, Field(description="the patch that was set aside: its name or UUID")],
        diff: Annotated[str, Field(description="the corrected diff, as `git diff` prints it")],
        reason: Annotated[str, Field(description="what was wrong; kept in history")],
        workstream: Annotated[str | None, Field(description="default: the old patch's")] = None,
        project: Project = None,
        dry_run: Annotated[bool, Field(description="say what would happen, and change nothing")] = False,
    ) -> CallToolResult:
        """Hand in a corrected patch in place of one that was quarantined, rolled back or dropped. For operators.

        Gates judge it before it is committed.
        """
        said = given(based_on=based_on, diff=diff, reason=reason, workstream=workstream, dry_run=dry_run)
        return await call(ctx, "POST", "/api/patches", json=said, params=given(project=project))


def _add_work(server: MCPServer[Any], door: ApiDoor) -> None:
    """The tools of an agent that takes tasks of plans."""
    call = partial(_called, door)

    @server.tool(name=CLAIM, annotations=WRITES)
    async def claim_task(
        ctx: Ctx,
        *,
        project: Project = None,
        capabilities: Annotated[list[str] | None, Field(description="what you can do, such as `python`")] = None,
        wait: Annotated[float, Field(ge=0, le=60, description="how long to wait for a task, at most")] = 20.0,
    ) -> CallToolResult:
        """Claim the next task that fits you: `claim.context` has your instructions. Then work, heartbeat, finish_task.

        You are registered first, if you are not. If you hold a claim already, because you lost your connection or were
        restarted, that one is returned. Without a task `claim` is null.
        """
        return await claimed(door, token_of(ctx, door), project, capabilities or [], wait)

    @server.tool(annotations=WRITES)
    async def heartbeat(
        ctx: Ctx,
        *,
        project: Project = None,
        tokens: Annotated[list[int] | None, Field(description="of the claims that you work on")] = None,
    ) -> CallToolResult:
        """Say that you are alive, and ask which of your claims still hold. Stop working on the others."""
        asked = given(project=project, token=tokens)
        return await call(ctx, "POST", "/api/agent/heartbeat", params=asked)

    @server.tool(annotations=WRITES)
    async def log(
        ctx: Ctx,
        *,
        token: Held,
        text: Annotated[str, Field(max_length=1_000_000, description="newlines included")],
        project: Project = None,
    ) -> CallToolResult:
        """Say what you do on a claimed task: operators follow it live. Counts as a heartbeat."""
        said, asked = {"token": token, "text": text}, given(project=project)
        return await call(ctx, "POST", "/api/agent/log", json=said, params=asked)

    @server.tool(annotations=WRITES)
    async def finish_task(
        ctx: Ctx,
        *,
        token: Held,
        project: Project = None,
        exit_code: Annotated[int | None, Field(description="default: 0, or with an error none")] = None,
        error: Annotated[str | None, Field(description="what went wrong; the task may be tried again")] = None,
        output: Annotated[Mapping[str, Any] | None, Field(description="what you did; kept in history")] = None,
        result: Annotated[Any, Field(description="JSON for later tasks, at most 64 KiB")] = None,
        spent: Annotated[Mapping[str, Any] | None, Field(description="its cost: `tokens` (whole) and `usd`")] = None,
    ) -> CallToolResult:
        """Hand in a claimed task: completed, or failed with an error. Repeating it is harmless."""
        said = given(token=token, exit_code=exit_code, error=error, output=output, result=result, spent=spent)
        asked = given(project=project)
        return await call(ctx, "POST", "/api/agent/finish", json=said, params=asked)

    @server.tool(annotations=WRITES)
    async def leave(ctx: Ctx, project: Project = None) -> CallToolResult:
        """Stop taking tasks. What you hold is given back to others."""
        return await call(ctx, "DELETE", "/api/agent", params=given(project=project))


async def _called(door: ApiDoor, ctx: Ctx, method: str, path: str, **said: Any) -> CallToolResult:
    """What a tool returns that is one call of the API."""
    return answered(await door.ask(token_of(ctx, door), method, path, **said))


async def claimed(
    door: ApiDoor, who: Presented, project: str | None, capabilities: list[str], wait: float
) -> CallToolResult:
    """What `claim_task` returns: the claim that the agent holds already, or a new one."""
    where = given(project=project)
    registered = await door.ask(who, "PUT", "/api/agent", json={"capabilities": capabilities}, params=where)
    if registered.status_code >= 400:
        return answered(registered)
    held = (await door.ask(who, "GET", "/api/agent/claims", params=where)).json().get("items")
    if held:
        return of({"claim": held[0]})
    answer = await door.ask(who, "POST", "/api/agent/claims", params=where | {"wait": wait})
    if answer.status_code >= 400:
        return answered(answer)
    return of({"claim": None if answer.status_code == 204 else answer.json()})
