"""MCP, with the SDK's own client over HTTP: what an agent does, and what it is told when it may not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from httpx2 import ASGITransport
from httpx2 import AsyncClient as HttpClient
from mcp import Client as McpClient
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult
from mcp_types import Request

from interlock.api import access
from interlock.api.mcp.tasks import IDENTIFIER, TaskAcknowledged, TaskHandle, TaskLook, TaskParams
from interlock.api.rates import Rates
from interlock.workers.access.tokens import Principal, find
from interlock.workers.client.client import Client
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests.calling import BASE, Calls, bearing, token
from tests.crewing import Site
from tests.driving import drain_all
from tests.landscape import ONE_LINE, Landscape
from tests.repositories import diff

pytestmark = pytest.mark.integration
TASK = {"kind": "agent", "agent": {"prompt": "write a test"}}


class Tasks(ClientExtension):
    """The client's side of the extension: what is returned as a task is handed to the test."""

    identifier = IDENTIFIER

    def claims(self) -> list[ResultClaim[TaskHandle]]:
        async def never(_handle: TaskHandle, _context: ClaimContext) -> CallToolResult:
            raise AssertionError("the tests poll by themselves")

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=never)]


class Session:
    """What a model does by its client."""

    def __init__(self, client: McpClient) -> None:
        self.client = client

    async def __call__(self, tool: str, **said: Any) -> dict[str, Any]:
        """Call a tool that lets it through."""
        answer = await self.client.call_tool(tool, said)
        assert not answer.is_error, answer.structured_content
        return dict(answer.structured_content or {})

    async def refused(self, tool: str, **said: Any) -> dict[str, Any]:
        """Call a tool that refuses."""
        answer = await self.client.call_tool(tool, said)
        assert answer.is_error
        return dict(answer.structured_content or {})

    async def begun(self, tool: str, **said: Any) -> TaskHandle:
        """Call a tool that returns a task."""
        answer = await self.client.session.call_tool(tool, said, allow_claimed=True)
        assert isinstance(answer, TaskHandle), answer
        return answer

    async def look(self, task_id: str) -> TaskLook:
        """Poll a task."""
        request = Request[TaskParams, str](method="tasks/get", params=TaskParams(task_id=task_id))
        return await self.client.session.send_request(request, TaskLook)

    async def ended(self, task_id: str) -> Mapping[str, Any]:
        """Poll a task until it is completed; returns what its tool would have."""
        while (found := await self.look(task_id)).status == "working":
            pass  # each look is a request
        return dict((found.result or {})["structuredContent"])


@asynccontextmanager
async def session(call: Calls, bearer: str, *, tasks: bool = False) -> AsyncIterator[Session]:
    """A client that is connected with a token."""
    http = HttpClient(transport=ASGITransport(call.app), base_url=BASE, headers=bearing(bearer), timeout=60)
    async with http:
        transport = streamable_http_client(f"{BASE}/mcp/", http_client=http)
        async with McpClient(transport, extensions=[Tasks()] if tasks else []) as client:
            yield Session(client)


@contextmanager
def applying(runtime: Runtime) -> Iterator[None]:
    """Apply triggers, as nodes do, until the block ends."""
    over = threading.Event()

    def apply() -> None:
        while not over.wait(0.02):
            drain_all(runtime)

    thread = threading.Thread(target=apply)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def text(agent: Session, uri: str) -> str:
    """A resource's text."""
    (read,) = (await agent.client.read_resource(uri)).contents
    return str(read.text)  # type: ignore[union-attr]


def played(call: Calls, play: Callable[[], Awaitable[None]]) -> None:
    call.loop.run(play())  # type: ignore[arg-type]


def test_a_story_goes_from_analysis_to_done_with_one_refusal_and_one_approval(call: Calls, client: Client) -> None:
    bob = token(client.runtime, "bob")

    async def play() -> None:
        async with session(call, call.token) as agent, session(call, bob) as reviewer:
            await agent("create_instance", type="story", entity_id="S-1")
            await agent("create_instance", type="pr_review", entity_id="PR-1", context={"story_id": "S-1"})
            for trigger in ("design_complete", "start_coding", "submit_pr"):
                await agent("fire_trigger", instance="story/S-1", trigger=trigger)
            refused = await agent.refused("fire_trigger", instance="story/S-1", trigger="tests_pass")
            assert (refused["status"], refused["state"], refused["title"]) == (
                409, "review", "The machine does not allow that now",
            )  # fmt: skip
            assert "approve" in refused["legal"]
            for trigger in ("start_review", "approve"):
                await reviewer("fire_trigger", instance="PR-1", trigger=trigger)
            held = await agent("fire_trigger", instance="PR-1", trigger="merge")
            assert held["status"] == "waiting"
            (waiting,) = (await reviewer("list_approvals"))["items"]
            own = await agent.refused("decide_approval", approval=waiting["id"], decision="approve")
            assert own["status"] == 403
            await reviewer("decide_approval", approval=waiting["id"], decision="approve", reason="fine")
            assert (await agent("show_request", request_id=held["request_id"], wait=20))["status"] == "applied"
            while (await agent("show_instance", instance="S-1"))["current_state"] == "review":
                pass  # the follow-up is applied by itself
            done = await agent("fire_trigger", instance="S-1", trigger="tests_pass")
            assert done["result"]["to"] == "done"
            moves = (await agent("show_history", instance="S-1"))["items"]
            assert [each["triggered_by"] for each in moves if each["trigger"] != "approve"] == ["agent-7"] * 4
            assert '"current_state": "done"' in await text(agent, "interlock://instances/story/S-1")
            assert '"entity_id": "S-1"' in await text(agent, "interlock://projects/default/instances")
            diagram = await text(agent, "interlock://diagrams/story/S-1")
            assert diagram.startswith("stateDiagram-v2\n")
            assert "class done current" in diagram
            assert diagram.startswith(await text(agent, "interlock://definitions/story/diagram"))

    with applying(client.runtime):
        played(call, play)


def test_a_task_that_was_waited_for_outlives_the_connection_and_the_claim_is_found_again(
    call: Calls, client: Client
) -> None:
    site = Site(client, "default")

    async def play() -> None:
        async with session(call, call.token, tasks=True) as agent:
            waits = await agent.begun("claim_task", wait=0)
            assert (await agent.look(waits.task_id)).status == "working"
        await asyncio.to_thread(site.queue, 1, **TASK)
        async with session(call, call.token, tasks=True) as agent:  # it comes back
            claim = (await agent.ended(waits.task_id))["claim"]
            assert claim["context"]["agent"] == TASK["agent"]
        async with session(call, call.token) as agent:  # and once more, without a word of tasks
            again = (await agent("claim_task", wait=0))["claim"]
            assert again == claim
            assert (await agent("heartbeat", tokens=[claim["token"]]))["holds"] == [claim["token"]]
            ended = await agent("finish_task", token=claim["token"], result={"tests": 3}, output={"summary": "done"})
            assert ended == {"trigger": "execution_completed"}
            stale = await agent.refused("finish_task", token=claim["token"] + 1)
            assert stale["title"] == "The claim no longer counts"

    with applying(client.runtime):
        played(call, play)


def test_a_held_trigger_is_a_task_until_its_approval_is_decided(call: Calls, client: Client) -> None:
    bob = token(client.runtime, "bob")

    async def play() -> None:
        async with session(call, call.token, tasks=True) as agent, session(call, bob) as decider:
            await agent("create_instance", type="sprint", entity_id="sprint-1")
            held = await agent.begun("fire_trigger", instance="sprint-1", trigger="start")
            look = await agent.look(held.task_id)
            assert (look.status, look.status_message) == ("working", "the trigger is waiting")
            request = Request[TaskParams, str](method="tasks/cancel", params=TaskParams(task_id=held.task_id))
            await agent.client.session.send_request(request, TaskAcknowledged)
            with pytest.raises(MCPError, match="There is no task"):
                await agent.look("trigger:nobody's")
            (waiting,) = (await decider("list_approvals"))["items"]
            await decider("decide_approval", approval=waiting["id"], decision="reject", reason="too early")
            assert (await agent.ended(held.task_id))["status"] in ("rejected", "superseded")

    with applying(client.runtime):
        played(call, play)


def test_a_request_looks_its_token_up_once_and_the_next_one_anew(
    call: Calls, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def counted(runtime: Runtime, bearer: str, prefix: str) -> Principal | None:
        looked.append(bearer)
        return find(runtime, bearer, prefix)

    monkeypatch.setattr(access, "find", counted)

    async def play() -> None:
        async with session(call, call.token) as agent:
            await agent("claim_task", wait=0)  # the client has asked for the list of tools, too
            looked.clear()
            assert (await agent("claim_task", wait=0))["claim"] is None
            assert looked == [call.token], "three calls of the API, one look-up"
            await asyncio.to_thread(revoke_tokens, client.runtime, "agent-7", OverrideOrder("ann", "a test"))
            answer = await call.client.post(
                f"{BASE}/mcp/", headers=bearing(call.token), json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            )
            assert answer.status_code == 401

    played(call, play)


def test_an_operators_agent_sees_why_a_patch_was_set_aside_and_hands_in_a_corrected_one(
    call: Calls, client: Client, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    land = Landscape(client.runtime, dba, tmp_path)
    land.patch("no diff", "bad")
    land.settle()
    operator = token(client.runtime, "ann", "operator")
    corrected = {"based_on": "demo/w/bad^1", "diff": diff(land.checkout, dict(ONE_LINE)), "reason": "it was no diff"}

    async def play() -> None:
        async with session(call, operator) as agent, session(call, call.token) as other:
            shown = await other("show_patch", patch="demo/w/bad^1")
            assert "cannot read it as a diff" in shown["quarantine_reason"]
            refused = await other.refused("submit_patch", **corrected)
            assert (refused["status"], "Who may: " in refused["detail"]) == (403, True)
            done = await agent("submit_patch", **corrected)
            assert done["made"]
            assert (await agent("list_stuck"))["total"] == 0

    played(call, play)


def test_a_run_is_a_task_until_it_has_ended(call: Calls, client: Client, ann: None) -> None:
    operator = token(client.runtime, "ann", "operator")
    plan = {
        "name": "night",
        "workstreams": [{"id": "w", "tasks": [{"id": "t", "agent": {"instructions": "write a test"}}]}],
    }

    async def play() -> None:
        async with session(call, operator, tasks=True) as agent, session(call, call.token, tasks=True) as other:
            refused = await other.refused("submit_run", plan=plan)
            assert refused["status"] == 403
            begun = await agent.begun("submit_run", plan=plan, name="night-1")
            assert begun.task_id.startswith("run:")
            assert (await agent.look(begun.task_id)).status == "working"
            assert (await other("show_run", run="night-1"))["name"] == "night-1"
            assert '"night-1"' in await text(agent, "interlock://runs/night-1")
            run = await agent("show_run", run="night-1")
            await asyncio.to_thread(cancelled, client, run["id"])
            ended = await agent.look(begun.task_id)
            assert (ended.status, (ended.result or {})["isError"]) == ("completed", True)
            assert (ended.result or {})["structuredContent"]["state"] == "canceled"
            with pytest.raises(MCPError, match="There is no task"):
                await other.look("run:nobody's")

    played(call, play)


def cancelled(client: Client, run: str) -> None:
    """Cancel a run that has not begun, and let what takes part in it end."""
    client.fire(run, "cancel", by="ann")
    drain_all(client.runtime)
    while schedule(client.runtime, UUID(run)) or drain_all(client.runtime):
        pass


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("show_instance", {"instance": "../../api/tokens"}),
        ("show_instance", {"instance": "story/../../runs"}),
        ("show_definition", {"type": "../stuck"}),
        ("show_run", {"run": "../approvals"}),
        ("show_request", {"request_id": "./../../api/breakers"}),
    ],
)
def test_no_reference_leads_a_tool_to_another_route(call: Calls, tool: str, said: dict[str, str]) -> None:
    async def asks() -> dict[str, Any]:
        async with session(call, call.token) as agent:
            return await agent.refused(tool, **said)

    refused = call.loop.run(asks())
    assert refused["status"] == 404, refused
    assert "items" not in refused


def test_what_is_named_with_dots_is_found(call: Calls, client: Client) -> None:
    client.create("story", "S-1/../2", by="ann")

    async def asks() -> dict[str, Any]:
        async with session(call, call.token) as agent:
            return await agent("show_instance", instance="story/S-1/../2")

    assert call.loop.run(asks())["entity_id"] == "S-1/../2"


@pytest.mark.parametrize("presented", ["", "ilk_" + "A" * 43])
def test_without_a_valid_token_nothing_of_mcp_answers(call: Calls, presented: str) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = call("POST", "/mcp/", token=presented, json=hello)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "detail" not in answer.json()


def test_mcp_has_no_stream_that_is_open_for_ever_and_counts_as_requests_do(call: Calls, client: Client) -> None:
    for method in ("GET", "DELETE"):
        refused = call(method, "/mcp/")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    call.app.state.access.rates = Rates(0.001)
    assert [call("POST", "/mcp/", json={}).status_code for _ in range(2)][1] == 429
