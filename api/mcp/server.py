"""Makes the MCP server: tools, resources and the Tasks extension over one way to the API."""

import json
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from interlock.api.mcp.bearer import token_of
from interlock.api.mcp.door import ApiDoor, at
from interlock.api.mcp.tasks import InterlockTasks
from interlock.api.mcp.tools import Ctx, add_tools

MERMAID = "text/vnd.mermaid"
INSTRUCTIONS = """\
Interlock keeps the state of stories, pull requests, approvals, runs and tasks, and lets only legal moves through.
Find work with find_instances or claim_task. Read show_instance before you fire: `legal` lists the triggers, `missing`
says what others lack. A refusal is an answer: it says the state, what is legal, what is missing, or who may. Do not
repeat it unchanged. While you work on a claimed task, send heartbeat at least once a minute; end it by finish_task.
"""


def make_server(door: ApiDoor) -> MCPServer[Any]:
    """The server over a way to the API, which stays its caller's to close."""
    server: MCPServer[Any] = MCPServer(
        "interlock",
        title="Interlock",
        version=version("interlock"),
        instructions=INSTRUCTIONS,
        extensions=[InterlockTasks(door)],
        log_level="WARNING",
    )
    add_tools(server, door)

    async def read(ctx: Ctx, path: str) -> str:
        answer = await door.ask(token_of(ctx, door), "GET", path)
        if answer.status_code >= 400:
            raise ResourceNotFoundError(str(answer.json().get("detail") or answer.json()["title"]))
        return answer.text

    @server.resource("interlock://instances/{+instance}", mime_type="application/json")
    async def instance(instance: str, ctx: Ctx) -> str:
        """An instance: its state, its legal triggers, its links; its history is verified."""
        return await read(ctx, at("/api/instances", instance))

    async def drawn(ctx: Ctx, path: str) -> str:
        return str(json.loads(await read(ctx, path))["mermaid"])

    @server.resource("interlock://projects/{project}/instances", mime_type="application/json")
    async def newest_instances(project: str, ctx: Ctx) -> str:
        """The newest instances of a project."""
        return await read(ctx, f"/api/instances?project={quote(project, safe='')}")

    @server.resource("interlock://runs/{run}", mime_type="application/json")
    async def run_tree(run: str, ctx: Ctx) -> str:
        """A run of a plan, with its workstreams, tasks, gates and patches."""
        return await read(ctx, at("/api/runs", run))

    @server.resource("interlock://diagrams/{+instance}", mime_type=MERMAID)
    async def diagram(instance: str, ctx: Ctx) -> str:
        """An instance's machine as a Mermaid state diagram, its current state lit."""
        return await drawn(ctx, at("/api/diagrams", instance))

    @server.resource("interlock://definitions/{type}/diagram", mime_type=MERMAID)
    async def definition_diagram(type: str, ctx: Ctx) -> str:
        """A machine as a Mermaid state diagram."""
        return await drawn(ctx, f"{at('/api/definitions', type)}/diagram")

    @server.resource("interlock://definitions/{type}", mime_type="application/json")
    async def definition(type: str, ctx: Ctx) -> str:
        """A machine: its states and moves."""
        return await read(ctx, at("/api/definitions", type))

    return server
