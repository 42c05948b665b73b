"""`interlock api`: serve the HTTP API, or print its OpenAPI document."""

from typing import Annotated

import typer

from interlock.api.server import DEFAULT_PORT, configure_logs
from interlock.api.server import serve as serve_api
from interlock.cli.lib.options import Port, port_of
from interlock.cli.lib.output import print_json, say
from interlock.console.site import create_site
from interlock.workers.settings import settings

app = typer.Typer(name="api", help="The HTTP API, for agents and programs with a token.", no_args_is_help=True)


@app.command("serve")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default: INTERLOCK_API_HOST.")] = None,
    port: Port = None,
) -> None:
    """Serve the HTTP API and the console. `interlock up` does this too, as its part `api`.

    By default it listens on INTERLOCK_API_HOST (127.0.0.1) and INTERLOCK_API_PORT (8080). Whoever binds it elsewhere
    gives it a certificate (INTERLOCK_API_TLS_CERTIFICATE) or puts a proxy with TLS before it: tokens travel in the
    clear otherwise. Any number of these processes may serve one database.

    \b
    Examples:
      interlock api serve
      interlock api serve --host 0.0.0.0 --port 8443
    """
    chosen = settings()
    configure_logs()
    serve_api(create_site, chosen, host or chosen.api_host, port_of(port, chosen.api_port, DEFAULT_PORT), say)


@app.command("document")
def document() -> None:
    """Print the OpenAPI 3.1 document as JSON: for generators of clients. It needs no server.

    \b
    Example:
      interlock api document > interlock.openapi.json
    """
    from interlock.api.app import create_app  # noqa: PLC0415 - a third of a second, which `serve` need not wait
    from interlock.workers.client.async_client import AsyncRuntime  # noqa: PLC0415 - likewise

    print_json(create_app(AsyncRuntime(settings())).openapi())
