"""Options and output shared by the commands on supervised workers and jobs.

A refusal prints the state, the triggers that are legal in it, and status code 409.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer

from interlock.cli.lib.moves import newest_moves
from interlock.cli.lib.options import person, sharing
from interlock.cli.lib.output import REFUSED, AsJson, Limit, errors, print_json, print_table, say
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.cli.lib.worker_secrets import SecretFile, given
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionOrder, Answer
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import Recovery
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, IllegalTransition
from interlock.workflows.machines.supervision.supervised_worker import RETRIES
from interlock.workflows.output.counts import number_of

Came = TypeVar("Came", Answer, Recovery)
Own = TypeVar("Own", Jobs, Supervisor)
Orders = Callable[..., Callable[[Client], Came]]

Ref = Annotated[str, typer.Argument(help="Its entity id or UUID.")]
By = Annotated[str, person("Who asks for it; stored in the history.")]
RequestId = Annotated[str, typer.Option(help="Idempotency key: repeating the command with it acts once.")]
Error = Annotated[str, typer.Option(help="What went wrong; stored in the history.")]
MOVES = ("created_at", "from_state", "trigger", "to_state", "triggered_by", "reason")
Status = Annotated[str, typer.Option(help="Only rows in this state.")]


def _telling(
    by: By,
    reason: Annotated[str | None, typer.Option(help="Why; stored in the history.")] = None,
    request_id: RequestId = "",
    secret_file: SecretFile = None,
    as_json: AsJson = False,
) -> tuple[ActionOrder, bool]:
    """The options of a command that reports what a worker or job does by itself."""
    return ActionOrder(by, reason, request_id, given(secret_file)), as_json


def _intervening(
    by: By,
    reason: Annotated[str, typer.Option(help="Why; stored in the history.")],
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> tuple[ActionOrder, bool]:
    """The options of a command that changes what others started."""
    return ActionOrder(by, reason, request_id), as_json


def ordering(
    show: Callable[[Callable[[Client], Came], ActionOrder, bool], None], *, intervening: bool = False
) -> Callable[[Orders[Came]], Callable[..., None]]:
    """Make a command of a function that takes an `ActionOrder` and its own arguments, and returns what to do.

    The command gets the options of the `ActionOrder` too: --by, --reason, --request-id, --json.

    Args:
        show: runs what the function returned and prints the outcome: `answer` or `recovered`.
        intervening: the command changes what others started: --reason is required.

    Returns:
        A decorator, from the function to the command.
    """
    options = _intervening if intervening else _telling
    return sharing(options, lambda act, chosen, arguments: show(act(chosen[0], **arguments), *chosen))


def simple(
    app: typer.Typer,
    words: str,
    summary: str,
    of: Callable[[Client], Own],
    act: Callable[[Own, str, ActionOrder], Answer],
    *,
    why: str = "",
) -> None:
    """Add a command that needs only an `ActionOrder`.

    Args:
        app: the group to add it to.
        words: the command line after `interlock`.
        summary: its help text.
        of: the class of its method `act`, which carries it out.
        act: see `of`.
        why: a reason for its example; empty: the command needs none.
    """

    def command(order: ActionOrder, ref: Ref) -> Callable[[Client], Answer]:
        return lambda client: act(of(client), ref, order)

    reason = f' --by ann --reason "{why}"' if why else ""
    example = f"\n\n\b\nExample:\n  interlock {words} REF{reason} --request-id ONCE"
    app.command(words.rpartition(" ")[2], help=summary + example)(ordering(answer, intervening=bool(why))(command))


def answer(act: Callable[[Client], Answer], order: ActionOrder, as_json: bool) -> None:
    """Carry out `act` and print the outcome; a refusal prints the state, the legal triggers and 409."""
    came = _done(act, order, as_json)
    if as_json:
        return
    response, again = came.response, " (done before)" if came.replayed else ""
    moved = f"{response['from']} → {response['to']}" if "from" in response else response["to"]
    say(f"{came.subject['entity_id']}: ", (moved, "bold"), again)
    if "message" in response:
        say(f"  {response['message']}")
    if came.secret:
        say(f"  its secret, which is not shown again: {came.secret}")


def recovered(act: Callable[[Client], Recovery], order: ActionOrder, as_json: bool) -> None:
    """Carry out a recovery and print what was done; a refusal is printed as by `answer`."""
    came = _done(act, order, as_json)
    if as_json:
        return
    how = f" ({came.attempt} of {RETRIES})" if came.attempt else ""
    how += f", {came.replacement['entity_id']} in its worker's place" if came.replacement else ""
    say(f"{came.subject['entity_id']}: {came.action}{how}, now ", (came.subject["status"], "bold"))
    if came.secret:
        say(f"  its secret, which is not shown again: {came.secret}")


def _done(act: Callable[[Client], Came], order: ActionOrder, as_json: bool) -> Came:
    """Carry out `act` and return its outcome, printed already if JSON is wanted; a refusal ends the command."""
    with Client() as client:
        try:
            came = act(client)
        except IllegalTransition as refusal:
            raise typer.Exit(_refused(refusal, as_json)) from refusal
    answer = {name: value for name, value in asdict(came).items() if (name, value) != ("secret", None)}
    print_json(answer | {"by": order.by, "reason": order.reason}, as_json)
    return came


def _refused(refusal: IllegalTransition, as_json: bool) -> int:
    if as_json:
        facts = {"status_code": refusal.status_code, "state": refusal.state, "legal": refusal.legal}
        print_json({"error": type(refusal).__name__, "message": str(refusal), "exit_code": REFUSED, **facts})
    else:
        say(("refused:", "bold red"), f" {refusal}", to=errors)
    return REFUSED


def shows(app: typer.Typer, words: str, summary: str, of: type[Jobs | Supervisor]) -> None:
    """Add the command that shows one worker or job; `words`: an example of it after `interlock`."""

    def command(ref: Ref, as_json: AsJson = False) -> None:
        with Client() as client:
            found = of(client).show(ref)
            moves = newest_moves(client, found["id"])
        if print_json(found | {"history": moves}, as_json):
            return
        say(f"{found['entity_id']} is ", (found["status"], "bold"), f" ({found['id']})")
        if "task_description" in found:
            count, depth = found["worker_count"], found["depth"]
            say(f"{found['task_description']} (depth {depth}, {number_of(count, 'worker')})")
            print_table("workers", found["workers"], ("entity_id", "status", "resources"))
        else:
            say(f"workspace {found['workspace_id']}; holds {', '.join(found['resources']) or 'nothing'}")
            if made := found["metadata"].get("retries", {}).get("made"):
                print_table("retries", made, ("at", "attempt", "by", "reason"))
        if moves:
            print_table("newest moves", [each | {"reason": each["metadata"].get("reason")} for each in moves], MOVES)

    app.command("show", help=f"{summary}\n\n\b\nExample:\n  interlock {words}")(command)


def lists(app: typer.Typer, words: str, summary: str, type_: str, of: type[Jobs | Supervisor]) -> None:
    """Add the command that lists workers or jobs, newest first.

    Args:
        app: the group to add it to.
        words: the command line after `interlock`.
        summary: its help text.
        type_: their machine, which has the states to filter by.
        of: the class that finds them.
    """

    def command(project: OnlyProject = None, status: Status = "", limit: Limit = 50, as_json: AsJson = False) -> None:
        with Client() as client:
            states = client.runtime.catalogue.get(type_).states
            if status and status not in states:
                raise BadInput(f"no state {status!r}. There are: {', '.join(states)}.")
            found = of(client).newest(project=project, status=status or None, limit=limit)
        if not print_json(found, as_json):
            columns = ("entity_id", "status", "depth", "worker_count", "task_description", "created_at")
            own = [name for name in columns if not found or name in found[0]]
            print_list(f"{len(found)} newest", found, own, project)

    app.command("list", help=f"{summary}\n\n\b\nExample:\n  interlock {words} --status RUNNING")(command)
