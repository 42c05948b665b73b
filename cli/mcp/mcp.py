"""`interlock mcp`: serve MCP over stdio, and print how clients are configured."""

from typing import Annotated, Any, Literal, get_args

import typer

from interlock.cli.lib import projects
from interlock.cli.lib.output import AsJson, errors, print_json, say
from interlock.supervisor.processes import status as report
from interlock.workers.settings import Settings, settings
from interlock.workflows.errors import BadInput

app = typer.Typer(name="mcp", help="MCP, for agents: serve it over stdio, or print a client's configuration.")

Kind = Literal["claude-code", "claude-desktop", "cursor", "vscode", "codex"]
CLIENTS: dict[str, str] = {
    "claude-code": ".mcp.json in the project",
    "claude-desktop": "claude_desktop_config.json",
    "cursor": ".cursor/mcp.json in the project",
    "vscode": ".vscode/mcp.json in the project",
    "codex": "~/.codex/config.toml",
}
TOKEN, URL = "INTERLOCK_API_TOKEN", "INTERLOCK_API_URL"
DEFAULT_URL = "http://127.0.0.1:8080"


@app.command()
def serve() -> None:
    """Serve MCP over standard input and output, for a client that starts it.

    It calls the HTTP API at INTERLOCK_API_URL with the token in INTERLOCK_API_TOKEN, and needs no database. Clients
    that speak streamable HTTP need no command: the API serves MCP at /mcp.

    \b
    Example:
      INTERLOCK_API_TOKEN=ilk_… interlock mcp serve
    """
    projects.use_none()
    from httpx2 import AsyncClient  # noqa: PLC0415 - half a second, which `install` need not wait

    from interlock.api.mcp.door import ApiDoor  # noqa: PLC0415 - likewise
    from interlock.api.mcp.server import make_server  # noqa: PLC0415 - likewise

    chosen = settings()
    if chosen.api_token is None:
        raise BadInput(f"set {TOKEN}: the token of the agent, which `interlock token create` prints")
    client = AsyncClient(base_url=_url(chosen))
    make_server(ApiDoor(client, chosen.api_token.get_secret_value())).run("stdio")


@app.command()
def install(
    client: Annotated[Kind | None, typer.Option(help=f"Only for one of {', '.join(get_args(Kind))}.")] = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Have the client start `interlock mcp serve`.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what to write into an MCP client's configuration. Nothing is changed, and no token is in it.

    \b
    Examples:
      interlock mcp install --client claude-code
      interlock mcp install --client cursor --stdio
      interlock mcp install --json
    """
    projects.use_none()
    url = _url(settings())
    wanted = [client] if client else list(CLIENTS)
    made = {each: {"file": CLIENTS[each], "content": configuration(each, url, stdio=stdio)} for each in wanted}
    if print_json(made, as_json):
        return
    for name, each in made.items():
        say(f"# {name}: {each['file']}", to=errors)
        if isinstance(each["content"], dict):
            print_json(each["content"])
        else:
            for line in each["content"].splitlines():
                say(line)
    say(f"Set {TOKEN} where the client runs: interlock token create --role agent --name NAME --by YOU", to=errors)


def configuration(client: str, url: str, *, stdio: bool) -> dict[str, Any] | str:
    """What a client's configuration file has to say; JSON, or for codex TOML.

    Args:
        client: one of `CLIENTS`.
        url: of the API.
        stdio: start a process, instead of asking the API itself.
    """
    reference = "${env:%s}" if client in ("cursor", "vscode") else "${%s}"
    if client == "codex":
        if stdio:
            return f'[mcp_servers.interlock]\ncommand = "interlock"\nargs = ["mcp", "serve"]\nenv_vars = ["{TOKEN}"]'
        return f'[mcp_servers.interlock]\nurl = "{url}/mcp/"\nbearer_token_env_var = "{TOKEN}"'
    if stdio or client == "claude-desktop":  # which knows no headers
        environment = {URL: url, TOKEN: reference % TOKEN}
        said: dict[str, Any] = {"command": "interlock", "args": ["mcp", "serve"], "env": environment}
    else:
        said = {"type": "http", "url": f"{url}/mcp/", "headers": {"Authorization": f"Bearer {reference % TOKEN}"}}
    return {"servers" if client == "vscode" else "mcpServers": {"interlock": said}}


def _url(chosen: Settings) -> str:
    return chosen.api_url or report.status(chosen).api_url or DEFAULT_URL
