"""`interlock up`, `down` and `status`: the servers, the workers and the supervisor that keeps them running."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cli.output import AsJson, print_json
from supervisor import daemon, places, report, servers
from supervisor.home import Home, home_of
from supervisor.narrate import narrator, spoken
from supervisor.supervise import supervise
from supervisor.table import KINDS
from workers.settings import Settings, settings
from workflows.errors import BadInput

PREPARE = (sys.executable, "-m", "cli.main", "migrate")
COLOURS = {"ready": "green", "starting": "yellow", "restarting": "yellow", "stopped": "dim", "failed": "red"}
UP_HELP = """Start PostgreSQL, Valkey, the workers, beat, Flower and the exporter of metrics, and keep them running.

A part that dies is started again. Ctrl-C (or `interlock down`, from elsewhere) stops them all in order.
With DATABASE_URL or BROKER_URL set, that server is yours and is not started here.

\b
Examples:
  interlock up                                stay in the foreground
  interlock up --detach                       return when all parts are ready
  interlock up --detach --without beat,flower leave some parts out
  interlock up --detach --json | jq -r .database_url
  INTERLOCK_TRIGGER_NODES=4 interlock up      more workers
"""
DOWN_HELP = """Stop everything that `interlock up` started here. Nothing running is fine too.

\b
Examples:
  interlock down                 data stays
  interlock down --purge --yes   and delete the data, wherever it was kept
"""
STATUS_HELP = """Show every part: whether it runs, since when, how often it was restarted.

PostgreSQL, Valkey, Flower and the exporter are asked, the others' processes looked for.
Exit code 0: all parts are ready, else 1.

\b
Examples:
  interlock status
  interlock status --json | jq -r .database_url
"""


def register(app: typer.Typer) -> None:
    """Add the three commands to `app`."""
    app.command("up", help=UP_HELP)(up)
    app.command("down", help=DOWN_HELP)(down)
    app.command("status", help=STATUS_HELP)(status)


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once all parts are ready.")] = False,
    without: Annotated[str, typer.Option(help=f"Parts to leave out, separated by commas: {', '.join(KINDS)}.")] = "",
    as_json: AsJson = False,
) -> None:
    """Start everything."""
    chosen, left_out, console = settings(), _parts_named(without), Console(quiet=as_json)
    tell = partial(_told, chosen) if as_json else partial(_summary, chosen, console)
    if detach:
        _launch(chosen, left_out, console)
        tell()
    else:
        watch = narrator(lambda part: console.print(spoken(part), soft_wrap=True, highlight=False, markup=False))
        supervise(chosen, without=left_out, prepare=PREPARE, watch=watch, ready=tell)
        console.print("stopped")


def down(
    purge: Annotated[bool, typer.Option("--purge", help="Also delete all data of this home.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop everything."""
    chosen, console = settings(), Console(quiet=as_json)
    home = home_of(chosen)
    if purge and not yes:
        typer.confirm(f"Delete the database and everything else Interlock keeps for {home.path}?", abort=True, err=True)
    with console.status("stopping") as spinner:
        stopped = daemon.stop(chosen, lambda: spinner.update(_standing(home)))
    console.print("stopped" if stopped else f"nothing is running in {home.path}", soft_wrap=True)
    deleted = places.purge(home) if purge else []
    for path in deleted:
        console.print(f"deleted {path}", soft_wrap=True)
    if as_json:
        print_json({"home": home.path, "stopped": stopped, "deleted": deleted})


def status(as_json: AsJson = False) -> None:
    """Show every part."""
    found = report.status(settings())
    if as_json:
        print_json(found.as_json())
    elif not found.running:
        typer.echo(f"nothing is running in {found.home}. Start it with `interlock up --detach`.")
    else:
        Console().print(_table(found.parts))
    raise typer.Exit(0 if found.ready else 1)


def _parts_named(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(name for name in names if name.rstrip("0123456789") not in KINDS)
    if unknown:
        raise BadInput(f"--without: no part is named {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return names


def start(chosen: Settings, console: Console) -> None:
    """Start everything in the background, wait until it is ready, and say where to look."""
    _launch(chosen, frozenset(), console)
    _summary(chosen, console)


def stop(chosen: Settings, *, purge: bool = False) -> bool:
    """Stop everything, and delete the data too if asked; whether anything ran."""
    stopped = daemon.stop(chosen, lambda: None)
    if purge:
        places.purge(home_of(chosen))
    return stopped


def _launch(chosen: Settings, left_out: frozenset[str], console: Console) -> None:
    home = home_of(chosen)
    with console.status("starting") as spinner:
        daemon.launch(chosen, without=left_out, prepare=PREPARE, progress=lambda: spinner.update(_standing(home)))


def _standing(home: Home) -> str:
    return "  ".join(f"{part['name']} {part['state']}" for part in report.recorded(home)) or "starting"


def _summary(chosen: Settings, console: Console) -> None:
    """What runs and where to look next."""
    home, found = home_of(chosen), report.status(chosen)
    known = servers.load(home)
    console.print(_table(found.parts))
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
    if known.postgres_data and Path(known.postgres_data).parent != home.path:
        lines["Data"] = (
            f"{places.outside(home)}, because user {chosen.run_as} may not enter {home.path}; "
            "`interlock down --purge` deletes it"
        )
    for label, text in lines.items():
        console.print(f"{label:8}{text}", soft_wrap=True, highlight=False)


def _told(chosen: Settings) -> None:
    """What runs, as `status --json` says it."""
    print_json(report.status(chosen).as_json(), lines=True)  # at once: in the foreground it stays


def _table(parts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "state", "pid", "restarts", "since", "detail"):
        table.add_column(heading, justify="right" if heading in ("pid", "restarts") else "left")
    for part in parts:
        colour = COLOURS.get(part["state"], "")
        state = f"[{colour}]{part['state']}[/]" if colour else part["state"]
        since = part["since"][:19].replace("T", " ")
        table.add_row(part["name"], state, str(part["pid"] or ""), str(part["restarts"]), since, part["detail"])
    return table
