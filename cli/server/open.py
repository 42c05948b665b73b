"""`interlock open`: the HTTP API in the browser, or its address."""

import os
import sys
import webbrowser

from interlock.cli.lib import projects
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.supervisor.home import home_of
from interlock.supervisor.processes import status as report
from interlock.workers.settings import settings
from interlock.workflows.errors import NotRunning

PAGE = "/api/openapi.json"


def open_(as_json: AsJson = False) -> None:
    """Open the HTTP API's description in the browser, and print its address; where there is no display, only that.

    \b
    Examples:
      interlock open
      interlock open --json | jq -r .url
    """
    projects.use_none()
    chosen = settings()
    found = report.status(chosen)
    if not found.running or found.api_url is None:
        raise NotRunning(home_of(chosen).path)
    url = f"{found.api_url}{PAGE}"
    if not print_json({"url": url}, as_json):
        say(url)
        if sys.stdout.isatty() and has_display():
            webbrowser.open(url)


def has_display() -> bool:
    """Whether a browser could show anything: always on macOS, elsewhere in a graphical session."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
