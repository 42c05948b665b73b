"""`interlock up`, `down` and `status`: the servers, the workers and the supervisor that keeps them running."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from interlock.cli.lib import projects
from interlock.cli.lib.output import AsJson, Screen, line, picture, print_json, say
from interlock.supervisor import daemon
from interlock.supervisor import purge as purging
from interlock.supervisor.environment import PYTHON, environment
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes import status as report
from interlock.supervisor.processes.log import as_text, narrator
from interlock.supervisor.processes.loop import supervise
from interlock.supervisor.processes.specs import KINDS
from interlock.supervisor.servers import data_dirs, endpoints
from interlock.workers.settings import Settings, settings
from interlock.workers.system import process_privacy
from interlock.workflows.errors import BadInput

PREPARE = (*PYTHON, "-m", "interlock.cli.main", "migrate")
ADOPT = "Use a non-empty directory as the home although it has no marker of Interlock, such as an older version's home."
COLOURS = {"ready": "green", "starting": "yellow", "restarting": "yellow", "stopped": "dim", "failed": "red"}


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once all parts are ready.")] = False,
    without: Annotated[str, typer.Option(help=f"Parts to leave out, separated by commas: {', '.join(KINDS)}.")] = "",
    adopt: Annotated[bool, typer.Option("--adopt", help=ADOPT)] = False,
    as_json: AsJson = False,
) -> None:
    """Start PostgreSQL, Valkey, the workers, beat, Flower, the metrics exporter and the HTTP API, and keep
    them running.

    A process that dies is restarted. Ctrl-C (or `interlock down` from elsewhere) stops them all in order. If
    DATABASE_URL or BROKER_URL is set, your server is used and none is started for it. Your own database is not
    migrated: if `interlock migrate` has anything to do, `up` reports that and exits with 1.

    \b
    Examples:
      interlock up                                stay in the foreground
      interlock up --detach                       return when all parts are ready
      interlock up --detach --without beat,flower leave some parts out
      interlock up --detach --json | jq -r .api_url
      INTERLOCK_TRIGGER_NODES=4 interlock up      more workers
    """
    chosen, left_out, console = settings(), _parts_named(without), Screen(quiet=as_json)
    if adopt:
        home_of(chosen).create(adopt=True)
    report = partial(_print_json, chosen) if as_json else partial(print_summary, chosen, console)
    if detach:
        launch(chosen, left_out, console)
        report()
    else:
        _bear_mark(chosen)
        watch = narrator(lambda part: say(as_text(part), to=console))
        supervise(chosen, without=left_out, prepare=_prepare(chosen), watch=watch, ready=report)
        say("stopped", to=console)


def _prepare(chosen: Settings) -> tuple[str, ...]:
    """The command to run before the workers start: migrates the embedded database, or only checks the user's own."""
    return (*PREPARE, "--yes" if chosen.database_url is None else "--check")


def _bear_mark(chosen: Settings) -> None:
    """Re-execute this process with the home in its command line; its forked parts then show the home, too."""
    if process_privacy.marked_home(sys.orig_argv, process_privacy.SUPERVISOR) is None:
        mark = process_privacy.marked(home_of(chosen).path, process_privacy.SUPERVISOR)
        os.execve(PYTHON[0], (*PYTHON, *mark, "-m", "interlock.cli.main", *sys.argv[1:]), environment(chosen))  # noqa: S606


def down(
    purge: Annotated[bool, typer.Option("--purge", help="Delete all data of this home as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop everything that `interlock up` started here. Succeeds if nothing is running.

    \b
    Examples:
      interlock down                 keep the data
        interlock down --purge --yes   delete this home's data as well, wherever it is stored
    """
    projects.use_none()
    chosen, console = settings(), Screen(quiet=as_json)
    home = home_of(chosen)
    if purge:
        purging.require_own(home)
    if purge and not yes:
        typer.confirm(f"Delete the database and everything else Interlock keeps for {home.path}?", abort=True, err=True)
    with console.status("stopping") as spinner:
        stopped = daemon.stop(chosen, lambda: spinner.update(_progress(home)))
    say("stopped" if stopped else f"nothing is running in {home.path}", to=console)
    deleted = purging.purge(home) if purge else []
    for path in deleted:
        say(f"deleted {path}", to=console)
    print_json({"home": home.path, "stopped": stopped, "deleted": deleted}, as_json)


def status(as_json: AsJson = False) -> None:
    """Show each part: state, start time, number of restarts.

    PostgreSQL, Valkey, Flower, the exporter and the API are queried; of the other parts, only the processes are
    checked.
    Exit code 0: all parts are ready; 1: otherwise.

    \b
    Examples:
      interlock status
      interlock status --json | jq -r .api_url
    """
    projects.use_none()
    found = report.status(settings())
    if as_json:
        print_json(found.as_json())
    elif not found.running:
        say(f"nothing is running in {found.home}. Start it with `interlock up --detach`.")
    else:
        picture(_table(found.parts), to=Screen())
    raise typer.Exit(0 if found.ready else 1)


def _parts_named(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(name for name in names if name.rstrip("0123456789") not in KINDS)
    if unknown:
        raise BadInput(f"--without: no part is named {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return names


def launch(chosen: Settings, left_out: frozenset[str], console: Screen) -> None:
    """Start everything except the parts left out in the background, and wait until it is ready."""
    home = home_of(chosen)
    with console.status("starting") as spinner:
        daemon.launch(
            chosen, without=left_out, prepare=_prepare(chosen), progress=lambda: spinner.update(_progress(home))
        )


def _progress(home: Home) -> str:
    return "  ".join(f"{part['name']} {part['state']}" for part in report.recorded(home)) or "starting"


def print_summary(chosen: Settings, console: Screen) -> None:
    """Print the running parts, their addresses and the next commands."""
    home, found = home_of(chosen), report.status(chosen)
    known = endpoints.load(home)
    picture(_table(found.parts), to=console)
    lines = {
        "Flower": f"{known.flower_url} (user {known.flower_user}, password in {home.servers})",
        "State": "interlock status",
        "Logs": str(home.path / "logs"),
        "Stop": "interlock down",
    }
    if not any(part["name"] == "flower" for part in found.parts):
        del lines["Flower"]
    if any(part["name"] == "metrics" for part in found.parts):
        lines["Metrics"] = known.metrics_url
    if any(part["name"] == "api" for part in found.parts):
        lines["Console"] = f"{known.api_url} (sign in: interlock open)"
        lines["API"] = f"{known.api_url}/api/openapi.json (tokens: interlock token create)"
    if known.postgres_data and Path(known.postgres_data).parent != home.path:
        lines["Data"] = (
            f"{data_dirs.outside(home)}, because user {chosen.run_as} may not enter {home.path}; "
            "`interlock down --purge` deletes it"
        )
    for label, text in lines.items():
        say(f"{label:8}{text}", to=console)


def _print_json(chosen: Settings) -> None:
    """Print the running parts, as `status --json` does."""
    # Flushed now, because in the foreground the process keeps running.
    print_json(report.status(chosen).as_json(), lines=True)


def _table(parts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "state", "pid", "restarts", "since", "detail"):
        table.add_column(heading, justify="right" if heading in ("pid", "restarts") else "left")
    for part in parts:
        state = line((part["state"], COLOURS.get(part["state"], "")))
        since = part["since"][:19].replace("T", " ")
        rest = (str(part["pid"] or ""), str(part["restarts"]), since, part["detail"])
        table.add_row(line(part["name"]), state, *map(line, rest))
    return table
