"""The Tasks extension (`io.modelcontextprotocol/tasks`, SEP-2663): what lasts is a task, which a client polls.

Three things last: a trigger that is held for an approval or not yet applied, the wait for a task to claim, and a run.
Nothing of them is kept here: a task's id says what to look at in the API, so it outlives connections, sessions and this
process.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, Result
from mcp_types import RequestParams

from interlock.api.mcp.bearer import token_of
from interlock.api.mcp.door import ApiDoor, answered, at, of
from interlock.api.mcp.tools import CLAIM, FIRE, SUBMIT, claimed
from interlock.api.presented import Presented

IDENTIFIER = "io.modelcontextprotocol/tasks"
VERSIONS = frozenset({"2026-07-28"})
POLL_MS = 1_000
TRIGGER, WAIT, RUN = "trigger", "claim", "run"
Ctx = ServerRequestContext[Any, Any]


class TaskHandle(Result):
    """An unfinished task, in the place of a tool's result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int = POLL_MS


class TaskLook(TaskHandle):
    """A task as `tasks/get` finds it, with its result once it is completed."""

    result_type: Literal["complete"] = "complete"  # type: ignore[assignment]
    result: dict[str, Any] | None = None


class TaskAcknowledged(Result):
    """An empty answer."""

    result_type: Literal["complete"] = "complete"


class TaskParams(RequestParams):
    """Which task."""

    task_id: str


class InterlockTasks(Extension):
    """The extension. `result` of a completed task is what the tool would have returned."""

    identifier = IDENTIFIER

    def __init__(self, door: ApiDoor) -> None:
        self._door = door

    def methods(self) -> list[MethodBinding]:
        """`tasks/get`, `tasks/update` and `tasks/cancel`."""
        bound = {"tasks/get": self._get, "tasks/update": self._acknowledge, "tasks/cancel": self._acknowledge}
        return [MethodBinding(name, TaskParams, handler, VERSIONS) for name, handler in bound.items()]

    async def intercept_tool_call(self, params: CallToolRequestParams, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Return a task for what lasts, if the client knows tasks."""
        answer = await call_next(ctx)
        if not isinstance(answer, CallToolResult) or answer.is_error or not _knows_tasks(ctx):
            return answer
        said = answer.structured_content or {}
        if params.name == FIRE and said.get("status") not in (None, "applied"):
            return _handle(f"{TRIGGER}:{said['request_id']}", f"the trigger is {said['status']}")
        if params.name == CLAIM and said.get("claim") is None:
            project = (params.arguments or {}).get("project") or ""
            return _handle(f"{WAIT}:{project}", "no task fits yet")
        if params.name == SUBMIT:
            return _handle(f"{RUN}:{said['id']}", "the run is accepted")
        return answer

    async def _get(self, ctx: Ctx, params: TaskParams) -> TaskLook:
        require_client_extension(ctx, IDENTIFIER)
        kind, _, name = params.task_id.partition(":")
        who = token_of(ctx, self._door)
        if kind == TRIGGER and name:
            return await self._trigger(who, params.task_id, name)
        if kind == RUN and name:
            return await self._run(who, params.task_id, name)
        if kind == WAIT:
            answer = await claimed(self._door, who, name or None, [], 0.0)
            open_ = not answer.is_error and (answer.structured_content or {})["claim"] is None
            return _look(params.task_id, None if open_ else answer, "no task fits yet")
        raise MCPError(code=INVALID_PARAMS, message=f"There is no task {params.task_id!r}.")

    async def _trigger(self, who: Presented, task_id: str, request_id: str) -> TaskLook:
        answer = await self._door.ask(who, "GET", at("/api/requests", request_id))
        if answer.status_code == 404:
            raise MCPError(code=INVALID_PARAMS, message=f"There is no task {task_id!r} for this token.")
        said: Mapping[str, Any] = answer.json()
        open_ = answer.status_code == 200 and said["status"] in ("waiting", "pending", "scheduled")
        refused = said.get("status") in ("rejected", "superseded", "dead")
        done = None if open_ else (of(said, failed=True) if refused else answered(answer))
        return _look(task_id, done, f"the trigger is {said.get('status')}")

    async def _run(self, who: Presented, task_id: str, run_id: str) -> TaskLook:
        answer = await self._door.ask(who, "GET", at("/api/runs", run_id))
        if answer.status_code == 404:
            raise MCPError(code=INVALID_PARAMS, message=f"There is no task {task_id!r} for this token.")
        said: Mapping[str, Any] = answer.json()
        if answer.status_code >= 400:
            return _look(task_id, answered(answer), "")
        ended = said["state"] in ("succeeded", "failed", "canceled")
        done = of(said, failed=said["state"] != "succeeded") if ended else None
        return _look(task_id, done, f"the run is {said['state']}")

    async def _acknowledge(self, ctx: Ctx, _params: TaskParams) -> TaskAcknowledged:
        """Nothing waits for input here, and what was fired or claimed is taken back by its own means."""
        require_client_extension(ctx, IDENTIFIER)
        return TaskAcknowledged()


def _knows_tasks(ctx: Ctx) -> bool:
    try:
        require_client_extension(ctx, IDENTIFIER)
    except MCPError:
        return False
    return ctx.protocol_version in VERSIONS


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _handle(task_id: str, message: str) -> TaskHandle:
    now = _now()
    return TaskHandle(task_id=task_id, status="working", status_message=message, created_at=now, last_updated_at=now)


def _look(task_id: str, done: CallToolResult | None, message: str) -> TaskLook:
    now = _now()
    common = {"task_id": task_id, "created_at": now, "last_updated_at": now}
    if done is None:
        return TaskLook(**common, status="working", status_message=message)
    return TaskLook(**common, status="completed", result=done.model_dump(by_alias=True, mode="json", exclude_none=True))
