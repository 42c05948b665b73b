"""`create`, `fire`, `show`, `history`, `list`, `watch`: what agents and people do with instances."""

from time import monotonic, sleep
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from cli.output import FAILED, REFUSED, AsJson, console, errors, print_json, print_table
from cli.reading import json_object, when
from db import instances
from db.connect import transaction
from workers.client import Client, Receipt
from workflows.catalogue import WORKFLOWS
from workflows.errors import BadInput
from workflows.ids import event_name

Ref = Annotated[str, typer.Argument(help="Entity id, TYPE/ENTITY_ID where that is ambiguous, or UUID.")]

POLL_SECONDS = 0.25
EXIT = {"rejected": REFUSED, "superseded": REFUSED, "dead": FAILED}

TYPES = ", ".join(dict.fromkeys(type_ for type_, _ in WORKFLOWS))
CREATE_HELP = """Create an instance of a workflow TYPE for an entity.

\b
Examples:
  interlock create story S-1 --project 7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11
  interlock create pr_review PR-7 --project 7a0e… --context '{"author": "ann", "story_id": "S-1"}'
"""
FIRE_HELP = """Fire TRIGGER on the instance REF. It is accepted once this returns; workers apply it.

\b
Exit code: 0 accepted (with --wait: applied, or held for an approval), 2 refused, 1 failed.

\b
Examples:
  interlock fire S-1 design_complete --by agent-7 --wait
  interlock fire PR-7 merge --by bob --request-id merge-PR-7       again: harmless
  interlock fire S-1 unblock --by ann --after 2h
"""
WATCH_HELP = """Follow an instance's moves as they are committed, until it reaches a terminal state (or Ctrl-C).

\b
Example:
  interlock watch S-1 --json
"""


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("create", help=CREATE_HELP)(create)
    app.command("fire", help=FIRE_HELP)(fire)
    app.command("show")(show)
    app.command("history")(history)
    app.command("list")(list_)
    app.command("watch", help=WATCH_HELP)(watch)


def create(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help=f"{TYPES}, or your own.")],
    entity_id: Annotated[str, typer.Argument(help="Its name within the project.")],
    project: Annotated[UUID, typer.Option(help="The project's UUID.")],
    context: Annotated[str, typer.Option(help="JSON object, or @FILE.")] = "{}",
    by: Annotated[str, typer.Option(help="Who creates it.")] = "operator",
    as_json: AsJson = False,
) -> None:
    """Create an instance."""
    with Client() as client:
        made = dict(
            client.create(type_, entity_id, project_id=project, context=json_object("--context", context), by=by)
        )
    if as_json:
        print_json(made)
    else:
        console.print(
            f"{made['workflow_type']}/{made['entity_id']} is in [bold]{made['current_state']}[/] ({made['id']})"
        )


def fire(
    ref: Ref,
    trigger: Annotated[str, typer.Argument(help="One of its triggers; `interlock show REF` lists the legal ones.")],
    by: Annotated[str, typer.Option(help="Who fires it: an agent or a user.")],
    request_id: Annotated[str, typer.Option(help="Makes firing it again harmless.")] = "",
    after: Annotated[str, typer.Option(metavar="WHEN", help="Not before: 90s, 10m, 2h, 3d or an ISO instant.")] = "",
    data: Annotated[str, typer.Option(help="JSON object (or @FILE) kept with the event.")] = "{}",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for what becomes of it.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Fire a trigger."""
    with Client() as client:
        receipt = client.fire(
            ref,
            trigger,
            by=by,
            request_id=request_id,
            data=json_object("--data", data),
            after=when(after) if after else None,
        )
        if wait and receipt.status in ("pending", "scheduled"):
            receipt = client.wait([receipt.request_id], timeout_seconds=timeout)[0]
    if as_json:
        print_json(receipt)
    else:
        _say(ref, receipt)
    raise typer.Exit(EXIT.get(receipt.status, 0))


def _say(ref: str, receipt: Receipt) -> None:
    result = receipt.result or {}
    again = " (accepted before)" if receipt.replayed else ""
    name = f"{ref} {receipt.trigger}"
    match receipt.status:
        case "applied":
            console.print(f"[green]applied[/]{again} {name}: {result['from']} → [bold]{result['to']}[/]")
        case "waiting" if "approval" in result:
            console.print(f"[yellow]held[/]{again} {name}: needs an approval")
            console.print(f"  decide it with: interlock fire '{result['approval']}' approve --by SOMEBODY_ELSE")
        case "waiting":
            console.print(f"[yellow]held[/]{again} {name}: {result.get('message', '')}")
        case "rejected" | "superseded" | "dead":
            says = receipt.error or result.get("message", "")
            errors.print(
                f"[bold red]{receipt.status}[/]{again} {name}: {escape(says)}", highlight=False, soft_wrap=True
            )
            if legal := result.get("legal"):
                errors.print(f"  legal in {result['state']!r}: {', '.join(legal)}", highlight=False, soft_wrap=True)
        case _:
            console.print(f"accepted{again} {name} as {receipt.request_id} ({receipt.status})")


def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show an instance: state, legal triggers, links, requests and effects.

    \b
    Example:
      interlock show S-1; interlock show story/S-1 --json | jq .legal
    """
    with Client() as client:
        found = client.show(ref)
    if as_json:
        print_json(found)
        return
    console.print(
        f"[bold]{found['workflow_type']}/{found['entity_id']}[/] is in [bold]{found['current_state']}[/] after "
        f"{found['version']} moves, under {found['definition_version']} ({found['id']})"
    )
    if found["archived_at"]:
        console.print(f"archived at {found['archived_at']:%Y-%m-%d %H:%M:%S} UTC")
    console.print(f"project {found['project_id']}; legal now: {', '.join(found['legal']) or 'nothing, it is finished'}")
    if found["error"]:
        console.print(f"[red]error[/] ({found['retry_count']} attempts): {escape(found['error'])}")
    if found["context"]:
        console.print("context", found["context"])
    if found["links"]:
        print_table("linked", found["links"], ("role", "workflow_type", "entity_id", "current_state"))
    print_table("newest requests", found["requests"], ("accepted_at", "trigger", "triggered_by", "status", "result"))
    if found["effects"]:
        print_table("effects", found["effects"], ("created_at", "name", "status", "attempts", "error"))


def history(ref: Ref, as_json: AsJson = False) -> None:
    """Show every move an instance made, oldest first, with its hash chain.

    \b
    Example:
      interlock history S-1 --json | jq -r '.[].trigger'
    """
    with Client() as client:
        events = [_event(event) for event in client.history(ref)]
    if as_json:
        print_json(events)
        return
    columns = ("seq", "created_at", "from_state", "trigger", "to_state", "triggered_by", "severity", "chain")
    print_table(f"history of {ref}", [event | {"chain": event["hash"][:12]} for event in events], columns)


def _event(row: Any) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in ("xid", "position")}
    return kept | {"event_id": event_name(row["id"]), "hash": row["hash"].hex(), "prev_hash": row["prev_hash"].hex()}


def list_(
    type_: Annotated[str, typer.Option("--type", help="Only this workflow type.")] = "",
    state: Annotated[str, typer.Option(help="Only those in this state; `failed` finds FAILED too.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest instances.

    \b
    Example:
      interlock list --type story --state review
    """
    with Client() as client, transaction(client.runtime.database) as connection:
        states = _states(client, type_, state) if type_ or state else []
        found = [dict(row) for row in instances.page(connection, type_=type_ or None, states=states, limit=limit)]
    if as_json:
        print_json(found)
    else:
        columns = ("workflow_type", "entity_id", "current_state", "version", "updated_at", "error")
        print_table(f"{len(found)} newest instances", found, columns)


def _states(client: Client, type_: str, state: str) -> list[str]:
    """The states that are called so, in whatever case each machine writes them."""
    definitions = [client.runtime.catalogue.get(type_)] if type_ else list(client.runtime.catalogue)
    states = {each for definition in definitions for each in definition.states}
    found = [each for each in states if each.lower() == state.lower()]
    if state and not found:
        raise BadInput(f"no state {state!r}. There are: {', '.join(sorted(states))}.")
    return found


def watch(
    ref: Ref,
    timeout: Annotated[float, typer.Option(help="Seconds after which to stop; 0: never.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Follow an instance."""
    started, seq = monotonic(), 0
    with Client() as client:
        while not (timeout and monotonic() - started > timeout):
            for row in client.history(ref, after_seq=seq):
                event, seq = _event(row), row["seq"]
                if as_json:
                    print_json(event, lines=True)
                else:
                    line = f"{event['from_state']} → [bold]{event['to_state']}[/] by {event['trigger']}"
                    console.print(f"{seq:>4}  {event['created_at']:%H:%M:%S}  {line} ({event['triggered_by']})")
            if not client.show(ref)["legal"]:
                return
            sleep(POLL_SECONDS)
