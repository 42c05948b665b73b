"""`interlock mcp`: a client starts it, and it calls an API over the network; and what it prints for clients' files."""

import json
import sys
import tomllib
from pathlib import Path
from typing import get_args

import anyio
import pytest
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from interlock.cli.mcp.mcp import CLIENTS, Kind, configuration
from interlock.supervisor.environment import environment
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.calling import token
from tests.serving import serving


@pytest.mark.integration
def test_a_client_that_starts_it_needs_the_token_and_no_database(
    settings: Settings, client: Client, ann: None, tmp_path: Path
) -> None:
    client.create("story", "S-1")
    bearer = token(client.runtime, "agent-7")

    async def play(url: str, said: str) -> tuple[bool, dict[str, object]]:
        own = {name: value for name, value in environment(settings).items() if "DATABASE" not in name}
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "interlock.cli.main", "mcp", "serve"],
            env=own | {"INTERLOCK_API_URL": url, "INTERLOCK_API_TOKEN": said},
        )
        async with McpClient(command) as mcp:
            answer = await mcp.call_tool("show_instance", {"instance": "S-1"})
            return answer.is_error, dict(answer.structured_content or {})

    with serving(settings, tmp_path / "api.log") as (_, url):
        refused, shown = anyio.run(play, url, bearer)
        assert (refused, shown["current_state"]) == (False, "analysis")
        refused, shown = anyio.run(play, url, "ilk_" + "A" * 43)
        assert (refused, shown["status"]) == (True, 401)
    assert bearer not in (tmp_path / "api.log").read_text()


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
