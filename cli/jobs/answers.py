"""Options and output shared by the commands on supervised workers and jobs.

A refusal prints the state, the triggers that are legal in it, and status code 409.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from interlock.cli.lib.options import sharing
from interlock.cli.lib.output import REFUSED, AsJson, Limit, errors, print_json, print_table, say
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import SUPERVISOR, ActionOrder, Answer
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import RETRIES, Recovery
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, IllegalTransition

Came = TypeVar("Came", Answer, Recovery)
Own = TypeVar("Own", Jobs, Supervisor)
Orders = Callable[..., Callable[[Client], Came]]

Ref = Annotated[str, typer.Argument(help="Its entity id or UUID.")]
By = Annotated[str, typer.Option(help="Who asks for it.")]
RequestId = Annotated[str, typer.Option(help="Idempotency key: repeating the command with it acts once.")]
Error = Annotated[str, typer.Option(help="What went wrong; stored in the history.")]
Status = Annotated[str, typer.Option(help="Only rows in this state.")]


def _options(
    reason: Annotated[str, typer.Option(help="Why; stored in the history.")] = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> tuple[ActionOrder, bool]:
    """The options of every command that gives an order."""
    return ActionOrder(by, reason or None, request_id), as_json


def ordering(show: Callable[[Callable[[Client], Came], bool], None]) -> Callable[[Orders[Came]], Callable[..., None]]:
    """Turn a function into a command: it receives the order built from the common options, and returns the action.

    Args:
        show: carries the action out and prints the outcome: `answer` or `recovered`.
    """
    return sharing(_options, lambda act, chosen, arguments: show(act(chosen[0], **arguments), chosen[1]))


def simple(
    app: typer.Typer,
    words: str,
    summary: str,
    of: Callable[[Client], Own],
    act: Callable[[Own, str, ActionOrder], Answer],
) -> None:
    """Add a command that needs only an `ActionOrder`.

    Args:
        app: the group to add it to.
        words: the command line after `interlock`.
        summary: its help text.
        of: the class of its method `act`, which carries it out.
        act: see `of`.
    """

    def command(order: ActionOrder, ref: Ref) -> Callable[[Client], Answer]:
        return lambda client: act(of(client), ref, order)

    example = f"\n\n\b\nExample:\n  interlock {words} REF --request-id ONCE"
    app.command(words.rpartition(" ")[2], help=summary + example)(ordering(answer)(command))


def answer(act: Callable[[Client], Answer], as_json: bool) -> None:
    """Carry out `act` and print the outcome; a refusal prints the state, the legal triggers and 409."""
    came = _done(act, as_json)
    if as_json:
        return
    response, again = came.response, " (said before)" if came.replayed else ""
    moved = f"{response['from']} → {response['to']}" if "from" in response else response["to"]
    say(f"{came.subject['entity_id']}: ", (moved, "bold"), again)
    if "message" in response:
        say(f"  {response['message']}")


def recovered(act: Callable[[Client], Recovery], as_json: bool) -> None:
    """Carry out a recovery and print what was done; a refusal is printed as by `answer`."""
    came = _done(act, as_json)
    if as_json:
        return
    how = f" ({came.attempt} of {RETRIES})" if came.attempt else ""
    how += f", {came.replacement['entity_id']} in its worker's place" if came.replacement else ""
    say(f"{came.subject['entity_id']}: {came.action}{how}, now ", (came.subject["status"], "bold"))


def _done(act: Callable[[Client], Came], as_json: bool) -> Came:
    """Carry out `act` and return its outcome, printed already if JSON is wanted; a refusal ends the command."""
    with Client() as client:
        try:
            came = act(client)
        except IllegalTransition as refusal:
            raise typer.Exit(_refused(refusal, as_json)) from refusal
    print_json(came, as_json)
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
        if print_json(found, as_json):
            return
        say(f"{found['entity_id']} is ", (found["status"], "bold"), f" ({found['id']})")
        if "task_description" in found:
            count, depth = found["worker_count"], found["depth"]
            say(f"{found['task_description']} (depth {depth}, {count} workers)")
            print_table("workers", found["workers"], ("entity_id", "status", "resources"))
        else:
            say(f"workspace {found['workspace_id']}; holds {', '.join(found['resources']) or 'nothing'}")

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
