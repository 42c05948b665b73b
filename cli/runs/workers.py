"""`interlock worker`: who is in the crew; and for external agents, to register, claim, report and leave."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cli.output import REFUSED, AsJson, console, print_json, print_table
from cli.reading import json_object
from db import crew, roster
from db.connect import transaction
from workers.client import Client
from workers.crew import member
from workers.crew.agent import Agent
from workers.crew.agent import heartbeat as say_alive
from workers.crew.settling import settle

app = typer.Typer(no_args_is_help=True, help="Workers: who takes tasks. External agents register and claim here.")

Name = Annotated[str, typer.Argument(help="The name it registered under, or its UUID.")]
By = Annotated[str, typer.Option(help="Who asks for it.")]

COLUMNS = ("name", "worker_type", "state", "load", "capabilities", "silent_seconds")

REGISTER_HELP = """Register NAME as a worker: idle, ready to claim tasks of kind `agent` that fit it.

It must be heard of at least every INTERLOCK_HEARTBEAT_SECONDS: each claim counts, and so does `heartbeat`.

\b
Examples:
  interlock worker register agent-7 --can python --can git
  interlock worker register agent-8 --can python --workstream build --max-tasks 2 --json
"""
CLAIM_HELP = """Claim the next task that fits NAME; it is running in its name when this returns.

\b
Exit code: 0 also when nothing fits (with --json: null).

\b
Example:
  interlock worker claim agent-7 --json
"""
FINISH_HELP = """Report how the task claimed under TOKEN ended: completed if its exit code is expected, else failed.

\b
Exit code: 2 when the claim no longer counts: the task was cancelled, timed out or given to another.

\b
Examples:
  interlock worker finish agent-7 41
  interlock worker finish agent-7 42 --exit-code 3
  interlock worker finish agent-7 43 --error "no such file" --output '{"tried": ["a", "b"]}'
"""
SHUTDOWN_HELP = """Shut NAME down: it takes no more, finishes what it holds, and is then shut down for good.

\b
Examples:
  interlock worker shutdown agent-7
  interlock worker shutdown agent-7 --now          what it holds is given back, to be tried again by others
"""


@app.command(help=REGISTER_HELP)
def register(
    name: Annotated[str, typer.Argument(help="Unique among the workers that are alive.")],
    can: Annotated[list[str] | None, typer.Option(help="A capability; as often as there are.")] = None,
    workstream: Annotated[
        list[str] | None, typer.Option(help="Take tasks of this workstream only (name or id); as often as needed.")
    ] = None,
    max_tasks: Annotated[int, typer.Option(min=1, help="How many it takes at once.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Register an agent."""
    with Client() as client:
        affinity = {"workstreams": workstream} if workstream else {}
        agent = Agent(
            name, capabilities=can or (), affinity=affinity, max_concurrent_tasks=max_tasks, runtime=client.runtime
        )
        worker_id = agent.register()
    _say({"worker_id": worker_id, "name": name, "state": "idle"}, f"worker {name} is idle ({worker_id})", as_json)


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest workers.

    \b
    Example:
      interlock worker list --state busy
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [_described(dict(row)) for row in roster.page(connection, state=state, limit=limit)]
    if as_json:
        print_json(found)
    else:
        print_table(f"{len(found)} workers", map(_shown, found), COLUMNS)


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a worker: what it offers, what it holds, where its process runs.

    \b
    Example:
      interlock worker show agent-7
    """
    with Client() as client:
        found = member.find(client.runtime, name)
        context = client.show(found["worker_id"])["context"]
        with transaction(client.runtime.database) as connection:
            held = [dict(task) for task in crew.held(connection, [found["worker_id"]])]
    says = _described(dict(found)) | {"host": context.get("host"), "pid": context.get("pid"), "holds": held}
    if as_json:
        print_json(says)
        return
    print_table(str(says["name"]), [_shown(says)], (*COLUMNS, "host", "pid", "worker_id"))
    print_table(f"holds {len(held)} tasks", held, ("entity_id", "current_state", "token", "task_id"))


@app.command()
def heartbeat(name: Name, as_json: AsJson = False) -> None:
    """Say that NAME is alive, also a `uet_worker`; the state it is in. Exit code 2: it is shut down for good.

    \b
    Example:
      interlock worker heartbeat agent-7
    """
    with Client() as client:
        state = say_alive(name, client.runtime)
    _say({"name": name, "state": state}, f"worker {name} is {state}", as_json)


@app.command(help=CLAIM_HELP)
def claim(name: Name, as_json: AsJson = False) -> None:
    """Claim a task."""
    with Client() as client:
        claimed = Agent.called(name, client.runtime).claim()
    if as_json:
        print_json(asdict(claimed) if claimed else None)
    elif claimed is None:
        console.print(f"nothing fits worker {name} now", highlight=False)
    else:
        console.print(f"task {claimed.task} under token {claimed.token}", highlight=False, markup=False)
        print_json(claimed.context)


@app.command(help=FINISH_HELP)
def finish(
    name: Name,
    token: Annotated[int, typer.Argument(min=1, help="The claim's token.")],
    exit_code: Annotated[
        int | None, typer.Option(help="What it ended with; default 0, unless there is an error.")
    ] = None,
    error: Annotated[str | None, typer.Option(help="What went wrong.")] = None,
    output: Annotated[str, typer.Option(help="What there is to show for it: a JSON object, or @FILE.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Report a task's end."""
    shown = json_object("--output", output)
    with Client() as client:
        agent = Agent.called(name, client.runtime)
        trigger = agent.finish(token, exit_code=exit_code, error=error, output=shown)
    _say({"token": token, "trigger": trigger}, f"claim {token}: {trigger}", as_json)


@app.command(help=SHUTDOWN_HELP)
def shutdown(
    name: Name,
    now: Annotated[bool, typer.Option("--now", help="Give back what it holds instead of waiting for it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Shut a worker down."""
    with Client() as client:
        left = Agent.called(name, client.runtime).leave(wait_for_tasks=not now)
    says = f"finishes {left} tasks first" if left else "is shutting down"
    _say({"name": name, "tasks_left": left}, f"worker {name} {says}", as_json)


@app.command()
def suspend(name: Name, by: By, as_json: AsJson = False) -> None:
    """Let an idle worker take nothing until it is resumed. Exit code 2: it is not idle.

    \b
    Example:
      interlock worker suspend agent-7 --by ann
    """
    _fire(name, "suspend", by, as_json)


@app.command()
def resume(name: Name, by: By, as_json: AsJson = False) -> None:
    """Let a suspended worker take tasks again.

    \b
    Example:
      interlock worker resume agent-7 --by ann
    """
    _fire(name, "resume", by, as_json)


def _fire(name: str, trigger: str, by: str, as_json: bool) -> None:
    with Client() as client:
        worker_id = member.find(client.runtime, name)["worker_id"]
        receipt = client.fire(worker_id, trigger, by=by)
        outcome = settle(client.runtime, receipt.request_id, worker_id)
    refused = outcome["status"] != "applied"
    result = outcome["result"] or {}
    says = result.get("message", outcome["status"]) if refused else f"worker {name} is {result['to']}"
    _say({"name": name, "status": outcome["status"], "result": result}, str(says), as_json)
    raise typer.Exit(REFUSED if refused else 0)


def _described(row: dict[str, Any]) -> dict[str, Any]:
    silent = (datetime.now(UTC) - row["last_heartbeat"]).total_seconds()
    return row | {"silent_seconds": round(max(silent, 0.0), 1)}


def _shown(worker: Mapping[str, Any]) -> dict[str, Any]:
    load = f"{worker['current_load']}/{worker['max_concurrent_tasks']}{' draining' * worker['draining']}"
    return dict(worker) | {"load": load, "capabilities": _joined(worker["capabilities"])}


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


def _say(value: Mapping[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
