"""`interlock mcp`: a client starts it, and it calls an API over the network; and what it prints for clients' files."""

import json
import sys
import tomllib
from typing import get_args

import anyio
import pytest
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from interlock.cli.mcp.mcp import CLIENTS, Kind, configuration
from interlock.supervisor.environment import environment
from interlock.workers.client.client import Client
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.settings import Settings
from tests.calling import token
from tests.serving import served_here


@pytest.mark.integration
def test_a_client_that_starts_it_needs_a_valid_token_and_no_database(
    settings: Settings, client: Client, ann: None
) -> None:
    client.create("story", "S-1")
    bearer = token(client.runtime, "agent-7")

    async def show(mcp: McpClient) -> tuple[bool, dict[str, object]]:
        answer = await mcp.call_tool("show_instance", {"instance": "S-1"})
        return answer.is_error, dict(answer.structured_content or {})

    async def play(url: str) -> None:
        own = {name: value for name, value in environment(settings).items() if "DATABASE" not in name}
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "interlock.cli.main", "mcp", "serve"],
            env=own | {"INTERLOCK_API_URL": url, "INTERLOCK_API_TOKEN": bearer},
        )
        async with McpClient(command) as mcp:
            refused, shown = await show(mcp)
            assert (refused, shown["current_state"]) == (False, "analysis")
            revoke_tokens(client.runtime, "agent-7", OverrideOrder("ann", "a test"))
            refused, shown = await show(mcp)
            assert (refused, shown["status"]) == (True, 401)

    with served_here(settings) as url:
        anyio.run(play, url)


@pytest.mark.parametrize("stdio", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_printed_is_of_the_clients_form_and_holds_no_token(client: str, stdio: bool) -> None:
    said = configuration(client, "http://127.0.0.1:8080", stdio=stdio)
    read = tomllib.loads(said) if isinstance(said, str) else json.loads(json.dumps(said))
    (servers,) = read.values()
    assert set(servers) == {"interlock"}
    assert "INTERLOCK_API_TOKEN" in str(read)
    assert "ilk_" not in str(read)


def test_every_client_that_is_offered_has_its_form() -> None:
    assert set(get_args(Kind)) == set(CLIENTS)
