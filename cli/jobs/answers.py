"""How the commands on supervised workers and jobs ask and answer; a refusal says what is legal there, and 409."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from cli.output import REFUSED, AsJson, console, errors, print_json, print_table
from workers.client import Client
from workers.supervision.acting import SUPERVISOR, Answer, Order
from workers.supervision.recovery import RETRIES, Recovery
from workflows.errors import BadInput, IllegalTransition

Came = TypeVar("Came", Answer, Recovery)

Ref = Annotated[str, typer.Argument(help="Its entity id or UUID.")]
By = Annotated[str, typer.Option(help="Who wants it.")]
Reason = Annotated[str, typer.Option(help="Why; kept in its history.")]
RequestId = Annotated[str, typer.Option(help="Makes saying it again harmless.")]
Error = Annotated[str, typer.Option(help="What went wrong; kept in its history.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")]
Status = Annotated[str, typer.Option(help="Only those in this state.")]


def simple(app: typer.Typer, words: str, says: str, act: Callable[[Client, str, Order], Answer]) -> None:
    """Add a command that takes an order and nothing else; `words` are what it is called by, after `interlock`."""

    def command(
        ref: Ref, reason: Reason = "", by: By = SUPERVISOR, request_id: RequestId = "", as_json: AsJson = False
    ) -> None:
        answer(lambda client: act(client, ref, Order(by, reason or None, request_id)), as_json)

    example = f"\n\n\b\nExample:\n  interlock {words} REF --request-id ONCE"
    app.command(words.rpartition(" ")[2], help=says + example)(command)


def answer(act: Callable[[Client], Answer], as_json: bool) -> None:
    """Do it and say what it came to; a refusal says the state, what is legal there, and 409."""
    came = _done(act, as_json)
    if as_json:
        return
    said, again = came.response, " (said before)" if came.replayed else ""
    moved = f"{said['from']} → {said['to']}" if "from" in said else said["to"]
    console.print(f"{came.subject['entity_id']}: [bold]{moved}[/]{again}")
    if "message" in said:
        console.print(f"  {escape(said['message'])}", highlight=False, soft_wrap=True)


def recovered(act: Callable[[Client], Recovery], as_json: bool) -> None:
    """Recover and say what was done; a refusal as in `answer`."""
    came = _done(act, as_json)
    if as_json:
        return
    how = f" ({came.attempt} of {RETRIES})" if came.attempt else ""
    how += f", {came.replacement['entity_id']} in its worker's place" if came.replacement else ""
    console.print(f"{came.subject['entity_id']}: {came.action}{how}, now [bold]{came.subject['status']}[/]")


def _done(act: Callable[[Client], Came], as_json: bool) -> Came:
    """What it came to, printed where JSON is asked for; a refusal ends the command."""
    with Client() as client:
        try:
            came = act(client)
        except IllegalTransition as refusal:
            raise typer.Exit(_refused(refusal, as_json)) from refusal
    if as_json:
        print_json(came)
    return came


def _refused(refusal: IllegalTransition, as_json: bool) -> int:
    if as_json:
        facts = {"status_code": refusal.status_code, "state": refusal.state, "legal": refusal.legal}
        print_json({"error": type(refusal).__name__, "message": str(refusal), "exit_code": REFUSED, **facts})
    else:
        errors.print(f"[bold red]refused:[/] {escape(str(refusal))}", highlight=False, soft_wrap=True)
    return REFUSED


def detail(find: Callable[[Client], Mapping[str, Any]], as_json: bool) -> None:
    """Show one worker or job."""
    with Client() as client:
        found = dict(find(client))
    if as_json:
        print_json(found)
        return
    console.print(f"{found['entity_id']} is [bold]{found['status']}[/] ({found['id']})")
    if "task_description" in found:
        count, depth = found["worker_count"], found["depth"]
        console.print(f"{found['task_description']} (depth {depth}, {count} workers)", markup=False, soft_wrap=True)
        print_table("workers", found["workers"], ("entity_id", "status", "resources"))
    else:
        console.print(
            f"workspace {found['workspace_id']}; holds {', '.join(found['resources']) or 'nothing'}", markup=False
        )


def newest(type_: str, find: Callable[[Client], Iterable[Mapping[str, Any]]], status: str, as_json: bool) -> None:
    """List workers or jobs. Raises `BadInput` where the state is none of theirs."""
    with Client() as client:
        states = client.runtime.catalogue.get(type_).states
        if status and status not in states:
            raise BadInput(f"no state {status!r}. There are: {', '.join(states)}.")
        found = list(find(client))
    if as_json:
        print_json(found)
    else:
        columns = ("entity_id", "status", "depth", "worker_count", "task_description", "created_at")
        own = [name for name in columns if not found or name in found[0]]
        print_table(f"{len(found)} newest", found, own)
