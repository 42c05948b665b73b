"""`interlock worker`: list workers; external agents use it to register, claim, report and leave."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.options import IfVersion, person
from interlock.cli.lib.output import REFUSED, AsJson, Limit, print_json, print_table, say
from interlock.cli.lib.parsing import json_object, json_value
from interlock.cli.lib.worker_secrets import NewSecretFile, SecretFile, given, kept, required
from interlock.db.connection import transaction
from interlock.db.orchestration import claims, workers
from interlock.workers.client.client import Client
from interlock.workers.overrides import workers as operated
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool import registration
from interlock.workers.pool.agent import Agent
from interlock.workers.pool.agent import heartbeat as say_alive
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import offered

app = typer.Typer(
    no_args_is_help=True, help="Workers, which carry out tasks. External agents register, claim and report here."
)

Name = Annotated[
    str, typer.Argument(help="The worker's name or UUID.", autocompletion=completing.named("worker", "uet_worker"))
]
By = Annotated[str, person("Who asks for it.")]
State = Annotated[str | None, typer.Option(help="Only workers in this state.")]
Reason = Annotated[str, typer.Option(help="Why; kept in its history.")]

COLUMNS = ("name", "worker_type", "state", "load", "capabilities", "silent_seconds")


@app.command()
def register(
    name: Annotated[str, typer.Argument(help="A name, unique among live workers.")],
    can: Annotated[list[str] | None, typer.Option(help="A capability (repeatable).")] = None,
    workstream: Annotated[
        list[str] | None, typer.Option(help="Take only tasks of this workstream, name or id (repeatable).")
    ] = None,
    phase: Annotated[list[str] | None, typer.Option(help="Take only tasks of this phase (repeatable).")] = None,
    max_tasks: Annotated[int, typer.Option(min=1, help="Maximum number of tasks at once.")] = 1,
    secret_file: NewSecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Register NAME as an idle worker, which can claim plans' tasks with `agent:`.

    It must send a heartbeat at least every INTERLOCK_HEARTBEAT_SECONDS; each claim counts as one.

    Its secret is printed once, or written to a file. Whoever has it is the worker: the other commands here read it
    from INTERLOCK_WORKER_SECRET or --secret-file. If it is lost, an operator can shut the worker down, as its silence
    does; then register it again.

    \b
    Examples:
      interlock worker register agent-7 --can python --can git --secret-file agent-7.secret
      interlock worker register agent-8 --can python --workstream build --max-tasks 2 --json
      interlock worker register agent-9 --can prose --phase design --secret-file agent-9.secret
    """
    with Client() as client, kept(secret_file) as keep:
        named = {"workstreams": workstream, "phases": phase}
        affinity = {kind: wanted for kind, wanted in named.items() if wanted}
        agent = Agent(
            name, capabilities=can or (), affinity=affinity, max_concurrent_tasks=max_tasks, runtime=client.runtime
        )
        worker_id = agent.register()
        keep(agent.secret)
    answer, secret = {"worker_id": worker_id, "name": name, "state": "idle"}, {"secret": agent.secret}
    if secret_file:
        secret = {"secret_file": str(secret_file)}
    _print_result(answer | secret, f"worker {name} is idle ({worker_id})", as_json)
    if not as_json and not secret_file:
        say(f"  its secret, which is not shown again: {agent.secret}")


@app.command("list")
def list_(state: State = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the newest workers, those of an execution engine (`uet_worker`) among them.

    \b
    Example:
      interlock worker list --state busy
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        found = [_described(dict(row)) for row in workers.page(connection, state=state, limit=limit)]
    if not print_json(found, as_json):
        print_table(number_of(len(found), "worker"), map(_shown, found), COLUMNS)


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a worker: its capabilities, its tasks, and the host and pid of its process.

    \b
    Example:
      interlock worker show agent-7
    """
    with Client() as client:
        found = registration.find(client.runtime, name)
        context = client.show(found["worker_id"])["context"]
        with transaction(client.runtime.database) as connection:
            held = [dict(claim) for claim in claims.held(connection, [found["worker_id"]])]
    message = _described(dict(found)) | {"host": context.get("host"), "pid": context.get("pid"), "holds": held}
    if print_json(message, as_json):
        return
    print_table(str(message["name"]), [_shown(message)], (*COLUMNS, "host", "pid", "worker_id"))
    print_table(f"holds {number_of(len(held), 'task')}", held, ("entity_id", "current_state", "claim_id", "task_id"))


@app.command()
def heartbeat(
    ref: Annotated[str, typer.Argument(metavar="NAME", help="The worker's name or UUID.")],
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Send a heartbeat for NAME and print its state. Exit code 2: it has been shut down.

    Workers serve all projects; if none has that name, it is a `uet_worker` of the project.

    \b
    Examples:
      interlock worker heartbeat agent-7
      interlock worker heartbeat engine-1 --project billing --secret-file engine-1.secret
    """
    secret = required(secret_file)
    with Client() as client:
        state = say_alive(ref, secret=secret, runtime=client.runtime)
    _print_result({"name": ref, "state": state}, f"worker {ref} is {state}", as_json)


@app.command()
def claim(
    name: Name,
    again: Annotated[
        bool, typer.Option("--again", help="Claim nothing: show the claims that NAME holds, with their tokens.")
    ] = False,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Claim the next task that matches NAME; the task is running when this returns.

    Workers serve all projects; if none has that name, it is a `uet_worker` of the project, which takes tasks of that.

    \b
    Exit code: 0 also if no task matches (with --json: null).

    \b
    Examples:
      interlock worker claim agent-7 --json
      interlock worker claim agent-7 --again    a token was lost, or the agent was restarted
    """
    secret = required(secret_file)
    with Client() as client:
        agent = Agent.called(name, secret=secret, runtime=client.runtime)
        held = agent.claims() if again else list(filter(None, [agent.claim()]))
        holding = "" if again or held or as_json else _holding(agent)
    if as_json:
        shown = [asdict(each) for each in held]
        print_json(shown if again else next(iter(shown), None))
        return
    for each in held:
        say(f"task {each.task} under token {each.token}")
        given = {"inputs": each.inputs} if each.inputs else {}
        print_json({**each.context, **({"command": asdict(each.command)} if each.command else {}), **given})
    if not held:
        say(f"worker {name} holds no claim" if again else f"nothing fits worker {name} now{holding}")


def _holding(agent: Agent) -> str:
    """What an agent should know that gets no task, because it may have forgotten that it has one."""
    if not (holds := len(agent.claims())):
        return ""
    return f"; it holds {holds} already, which `{offered('worker', 'claim', agent.name, again=True)}` shows"


@app.command()
def finish(
    name: Name,
    token: Annotated[int, typer.Argument(min=1, help="The token that `interlock worker claim` printed.")],
    exit_code: Annotated[
        int | None, typer.Option(help="The task's exit code; default: 0, or with --error none.")
    ] = None,
    error: Annotated[str | None, typer.Option(help="What went wrong.")] = None,
    output: Annotated[str, typer.Option(help="What it did, such as `stdout`: a JSON object, or @FILE.")] = "{}",
    result: Annotated[
        str | None, typer.Option(help="The result, which later tasks get as an input: JSON, or @FILE.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="How many tokens were spent on it.")] = None,
    usd: Annotated[float | None, typer.Option(min=0, help="How many dollars were spent on it.")] = None,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Report the end of the task claimed with TOKEN: completed if its exit code is expected, else failed.

    \b
    Exit code: 2 if the claim is no longer valid: the task was cancelled, timed out or given to another worker.

    \b
    Examples:
      interlock worker finish agent-7 41
      interlock worker finish agent-7 42 --exit-code 3
      interlock worker finish agent-7 42 --result '{"version": "1.4.0"}'
      interlock worker finish agent-7 42 --tokens 18200 --usd 0.31
      interlock worker finish agent-7 43 --error "no such file" --output '{"tried": ["a", "b"]}'
    """
    shown, secret = json_object("--output", output), required(secret_file)
    value = json_value("--result", result) if result is not None else None
    spent = {name: each for name, each in (("tokens", tokens), ("usd", usd)) if each is not None}
    with Client() as client:
        agent = Agent.called(name, secret=secret, runtime=client.runtime)
        trigger = agent.finish(token, exit_code=exit_code, error=error, output=shown, result=value, spent=spent or None)
    _print_result({"token": token, "trigger": trigger}, f"claim {token}: {trigger}", as_json)


@app.command()
def shutdown(
    name: Name,
    by: By,
    reason: Annotated[str | None, typer.Option(help="Why; needed unless the worker itself leaves.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Give its tasks back instead of waiting for them.")] = False,
    if_silent: Annotated[
        bool, typer.Option("--if-silent", help="As --now, but only if its heartbeats are missing at that moment.")
    ] = False,
    if_version: IfVersion = None,
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Shut NAME down: it takes no more tasks, finishes those it holds, and is then shut down permanently.

    Workers serve all projects; if none has that name, it is a `uet_worker` of the project.
    Only operators and the worker itself, by its secret, may. Its events say who did it and why.

    \b
    Exit code: 2 if it cannot be shut down; the message says why.

    \b
    Examples:
      interlock worker shutdown agent-7 --by agent-7
      interlock worker shutdown agent-7 --by ann --reason "the machine is needed" --now    give its tasks back
      interlock worker shutdown agent-7 --by ann --reason "it hangs" --if-silent           unless it answers again
    """
    secret = given(secret_file)
    with Client() as client:
        left = operated.shut_down(
            client.runtime,
            name,
            by=by,
            reason=reason,
            now=now,
            if_silent=if_silent,
            if_version=if_version,
            secret=secret,
        )
    message = f"finishes {number_of(left, 'task')} first" if left else "is shut down"
    _print_result({"name": name, "tasks_left": left, "by": by, "reason": reason}, f"worker {name} {message}", as_json)


@app.command()
def suspend(name: Name, by: By, reason: Reason, if_version: IfVersion = None, as_json: AsJson = False) -> None:
    """Suspend an idle worker: it takes no tasks until it is resumed. Only operators may. Exit code 2: it is not idle.

    \b
    Example:
      interlock worker suspend agent-7 --by ann --reason "it writes nonsense"
    """
    _move(name, "suspend", OverrideOrder(by, reason, if_version=if_version), as_json)


@app.command()
def resume(name: Name, by: By, reason: Reason, if_version: IfVersion = None, as_json: AsJson = False) -> None:
    """Let a suspended worker take tasks again. Only operators may.

    \b
    Example:
      interlock worker resume agent-7 --by ann --reason "its model was changed"
    """
    _move(name, "resume", OverrideOrder(by, reason, if_version=if_version), as_json)


def _move(name: str, trigger: Literal["suspend", "resume"], order: OverrideOrder, as_json: bool) -> None:
    with Client() as client:
        outcome = operated.move(client.runtime, name, trigger, order)
    refused = outcome["status"] != "applied"
    result = outcome["result"] or {}
    message = result.get("message", outcome["status"]) if refused else f"worker {name} is {result['to']}"
    answer = {"name": name, "status": outcome["status"], "result": result, "by": order.by, "reason": order.reason}
    _print_result(answer, str(message), as_json)
    raise typer.Exit(REFUSED if refused else 0)


def _described(row: dict[str, Any]) -> dict[str, Any]:
    silent = (datetime.now(UTC) - row["last_heartbeat"]).total_seconds()
    return row | {"silent_seconds": round(max(silent, 0.0), 1)}


def _shown(worker: Mapping[str, Any]) -> dict[str, Any]:
    load = f"{worker['current_load']}/{worker['max_concurrent_tasks']}{' draining' * worker['draining']}"
    return dict(worker) | {"load": load, "capabilities": ", ".join(worker["capabilities"])}


def _print_result(value: Mapping[str, Any], sentence: str, as_json: bool) -> None:
    if not print_json(value, as_json):
        say(sentence)
