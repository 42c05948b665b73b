"""`create`, `fire`, `show`, `history`, `list`, `watch`: the commands on instances."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from time import monotonic, sleep
from typing import Annotated, Any

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.listing import Listing, Row, lists
from interlock.cli.lib.moving import EXIT
from interlock.cli.lib.options import IfVersion, person
from interlock.cli.lib.output import FAILED, AsJson, errors, one_line, print_json, print_table, say
from interlock.cli.lib.parsing import json_object, when
from interlock.cli.lib.worker_secrets import VARIABLE, NewSecretFile, SecretFile, kept, required
from interlock.db.audit.verify import Problem
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt, VersionConflict
from interlock.workers.engine import worker_secrets
from interlock.workers.operations.stuck.facts import Facts
from interlock.workers.operations.stuck.words import fire_move
from interlock.workflows.audit.ids import event_name
from interlock.workflows.authority import IN_SHORT
from interlock.workflows.by_hand import move_by_hand
from interlock.workflows.catalogue import WORKFLOWS, Catalogue
from interlock.workflows.errors import BadInput
from interlock.workflows.fields import SECRET
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import offered

Ref = Annotated[
    str,
    typer.Argument(help="Entity id, TYPE/ENTITY_ID if that is ambiguous, or UUID.", autocompletion=completing.named()),
]

POLL_SECONDS = 0.25
NAMED = 10  # keys that are named

TYPES = ", ".join(dict.fromkeys(type_ for type_, _ in WORKFLOWS))


def create(
    type_: Annotated[
        str, typer.Argument(metavar="TYPE[@VERSION]", help=f"{TYPES}, or your own.", autocompletion=completing.types)
    ],
    entity_id: Annotated[str, typer.Argument(help="The instance's name, unique in the project for its type.")],
    by: Annotated[str, person("Who creates it: an agent or a person.")],
    context: Annotated[str, typer.Option(help="JSON object, or @FILE.")] = "{}",
    secret_file: NewSecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Create an instance of a workflow TYPE, under its newest version unless another is named.

    A worker, uet_worker or supervised_worker gets a secret, which is printed once, or written to a file. With it, it
    fires its own triggers.

    \b
    Examples:
      interlock create story S-1 --project billing
      interlock create story S-2 --context '{"sprint_id": "SP-1"}'
      interlock create pr_review PR-7 --context '{"author": "ann", "story_id": "S-1"}'
      interlock create workstream@0.1.0 W-1        under an older version: `interlock definitions list` has them all
    """
    said, secret = json_object("--context", context), ""
    with Client() as client, kept(secret_file) as keep:
        if SECRET in client.runtime.catalogue.called(type_).fields and SECRET.name not in said:
            secret = worker_secrets.make()
            said |= worker_secrets.digest_of(secret)
        elif secret_file:
            raise BadInput(f"--secret-file: a {type_} gets no secret, or the context says its SHA-256 already")
        made = dict(client.create(type_, entity_id, context=said, by=by))
        if secret_file and secret:
            keep(secret)
            secret = ""
        definition = client.runtime.catalogue.called(type_)
        unread = sorted(definition.undeclared(said)) if definition.declared_keys else []
    if not print_json(made | ({"secret": secret} if secret else {}), as_json):
        if unread:
            more = f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
            named = f"{', '.join(unread[:NAMED])}{more}"
            note = f" {named} of its context: {type_} declares no such field, and keeps it as data of yours"
            say(("note", "yellow"), note, to=errors)
        say(f"{made['workflow_type']}/{made['entity_id']} is in ", (made["current_state"], "bold"), f" ({made['id']})")
        if secret:
            say(f"  its secret, which is not shown again: {secret}")


def fire(
    ref: Ref,
    trigger: Annotated[
        str,
        typer.Argument(
            help="One of its triggers; `interlock show REF` lists the legal ones.", autocompletion=completing.triggers
        ),
    ],
    by: Annotated[str, person("Who fires it: an agent or a person.")],
    request_id: Annotated[str, typer.Option(help="Idempotency key: repeating the command with it fires once.")] = "",
    after: Annotated[str, typer.Option(metavar="WHEN", help="Earliest time: 90s, 10m, 2h, 3d or an ISO instant.")] = "",
    data: Annotated[str, typer.Option(help="JSON object (or @FILE) stored in the event.")] = "{}",
    proof: Annotated[
        str,
        typer.Option(
            help="claim:TOKEN, by who holds the task; `secret`, by a worker itself; `interlock definitions show TYPE`."
        ),
    ] = "",
    if_version: IfVersion = None,
    secret_file: SecretFile = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the outcome.")] = False,
    timeout: Annotated[float, typer.Option(help="Maximum seconds to wait.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Fire TRIGGER on the instance REF. The trigger is accepted when this returns; workers then apply it.

    \b
    Exit code: 0 accepted (with --wait: applied, or held for an approval), 2 refused, 1 failed.

    \b
    Examples:
      interlock fire S-1 design_complete --by agent-7 --wait
      interlock fire PR-7 merge --by bob --request-id merge-PR-7       safe to repeat
      interlock fire S-1 unblock --by ann --after 2h
      interlock fire S-1 block --by ann --if-version 3       not if it has moved since
      interlock fire S-1 move_to_sprint --by ann --data '{"sprint_id": "SP-2", "reason": "not ready"}'
      interlock fire engine-1 initialization_complete --by engine-1 --proof secret --secret-file engine-1.secret
    """
    if proof.startswith("secret"):
        if proof != "secret":
            raise BadInput(
                "others on this machine can read the arguments of a command: give only `--proof secret`, and the "
                f"secret itself in {VARIABLE} or in a file (--secret-file)"
            )
        proof = f"secret:{required(secret_file)}"
    with Client() as client:
        receipt = client.fire(
            ref,
            trigger,
            by=by,
            request_id=request_id,
            data=json_object("--data", data),
            after=when(after) if after else None,
            proof=proof,
            if_version=if_version,
        )
        if wait and receipt.status in ("pending", "scheduled"):
            try:
                (settled,) = client.wait([receipt.request_id], timeout_seconds=timeout)
            except VersionConflict as conflict:  # printed as any other rejection
                (settled,) = conflict.receipts
            receipt = replace(settled, replayed=receipt.replayed)
    if not print_json(receipt, as_json):
        _print_result(ref, receipt)
    raise typer.Exit(EXIT.get(receipt.status, 0))


def _print_result(ref: str, receipt: Receipt) -> None:
    result = receipt.result or {}
    again = " (accepted before)" if receipt.replayed else ""
    name = f"{ref} {receipt.trigger}"
    match receipt.status:
        case "applied":
            say(("applied", "green"), f"{again} {name}: {result['from']} → ", (result["to"], "bold"))
            for warning in result.get("deprecated", ()):
                say(("warning", "yellow"), f" {warning}", to=errors)
        case "waiting" if "approval" in result:
            say(("held", "yellow"), f"{again} {name}: needs an approval")
            say(f"  decide it with: {offered('fire', result['approval_id'], 'approve', by='SOMEBODY_ELSE')}")
        case "waiting":
            say(("held", "yellow"), f"{again} {name}: {result.get('message', '')}")
        case "rejected" | "superseded" | "dead":
            message = receipt.error or result.get("message", "")
            say((receipt.status, "bold red"), f"{again} {name}: {message}", to=errors)
            if legal := result.get("legal"):
                say(f"  legal in {result['state']!r}: {', '.join(legal)}", to=errors)
        case _:
            say(f"accepted{again} {name} as {receipt.request_id} ({receipt.status})")


def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show an instance: state, legal triggers, who may fire them and what they lack, links, requests and effects.

    Its history is verified. Exit code 1: it was changed.

    \b
    Example:
      interlock show S-1; interlock show story/S-1 --json | jq .legal
    """
    with Client() as client:
        found = client.show(ref)
        problems = client.verify(found["id"])
        catalogue = client.runtime.catalogue
    if not print_json(found | {"problems": [asdict(each) for each in problems]}, as_json):
        _show(found, catalogue)
    _verified(problems, as_json)


def _show(found: dict[str, Any], catalogue: Catalogue) -> None:
    say(
        (f"{found['workflow_type']}/{found['entity_id']}", "bold"),
        " is in ",
        (found["current_state"], "bold"),
        f" at version {found['version']}, under {found['definition_version']} ({found['id']})",
    )
    if found["archived_at"]:
        say(f"archived at {found['archived_at']:%Y-%m-%d %H:%M:%S} UTC")
    say(f"created by {found['created_by']} in project {found['project']}")
    if found["handover"]:
        say(("frozen", "yellow"), f": it goes on in another system ({offered('show', found['handover'])})")
    else:
        _say_legal(found["may"])
    for brake in found["brakes"]:
        say((f"brake {brake['entity_id']} holds new triggers", "yellow"), f": {brake['reason']}")
        say(f"  release it with: {offered('brake', 'release', brake['entity_id'], reason='WHY')}")
    for trigger, why in found["missing"].items():
        say((f"{trigger} is refused now", "yellow"), f": {why}")
        for each in found["links"]:
            if f"{each['entity_id']} ({each['current_state']})" in why and (command := _next(each, catalogue)):
                say(f"  {command}")
    if found["error"]:
        say(("error", "red"), f" ({number_of(found['retry_count'], 'attempt')}): {found['error']}")
    if found["context"]:
        say(f"context {one_line(found['context'])}")
    if found["command"]:
        say(f"command {one_line({name: value for name, value in found['command'].items() if value})}")
    if found["links"]:
        print_table("linked", found["links"], ("role", "workflow_type", "entity_id", "current_state"))
    print_table("newest requests", found["requests"], ("accepted_at", "trigger", "triggered_by", "status", "result"))
    if found["effects"]:
        print_table("effects", found["effects"], ("created_at", "name", "status", "attempts", "error"))


def _say_legal(may: Mapping[str, Sequence[str]]) -> None:
    """The legal triggers: those that anyone may fire, then those of others, with who that is."""
    if not may:
        say("legal now: nothing: it has ended")
        return
    by: dict[str, list[str]] = {"": []}
    for trigger, authorities in may.items():
        who = "" if "anyone" in authorities else " or ".join(IN_SHORT[each] for each in authorities)
        by.setdefault(who, []).append(trigger)
    say(f"legal now: {', '.join(by.pop('')) or 'nothing that anyone may fire'}")
    for who, triggers in by.items():
        say(f"  only by {who}: {', '.join(triggers)}")


def _next(linked: Mapping[str, Any], catalogue: Catalogue) -> str:
    """The command by which a person leads a linked instance on; empty if there is none."""
    definition = catalogue.get(linked["workflow_type"], linked["definition_version"])
    move = move_by_hand(definition, linked["current_state"])
    return fire_move(Facts(linked, definition), move) if move else ""


def history(ref: Ref, as_json: AsJson = False) -> None:
    """Show every move of an instance, oldest first, and verify its hash chain. Exit code 1: it was changed.

    \b
    Example:
      interlock history S-1 --json | jq -r '.[].trigger'
    """
    with Client() as client:
        events = [_event(event) for event in client.history(ref)]
        problems = client.verify(ref)
    answer = [event | {"problems": [each.message for each in problems if each.seq == event["seq"]]} for event in events]
    if not print_json(answer, as_json):
        columns = ("seq", "created_at", "from_state", "trigger", "to_state", "triggered_by", "severity", "chain")
        print_table(f"history of {ref}", [event | {"chain": event["hash"][:12]} for event in events], columns)
        for event in events:
            if name := event["named_event"]:
                say((f"event {event['seq']}", "bold"), f" is {name}")
            if reason := event["metadata"].get("reason"):
                say((f"event {event['seq']}", "bold"), f" by {event['triggered_by']}, why: {reason}")
    _verified(problems, as_json)


def _verified(problems: Sequence[Problem], as_json: bool) -> None:
    """Say whether a history is as it was written; ends the command if it is not."""
    for each in problems:
        place = "" if each.seq is None else f" event {each.seq}"
        say(("changed", "bold red"), f"{place}: {each.message}", to=errors)
    if problems:
        say("  look further: interlock audit verify; what to do: interlock playbook show audit-finding", to=errors)
        raise typer.Exit(FAILED)
    if not as_json:
        say(("verified", "green"), ": the chain is whole, and every move legal")


def _event(row: Any) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in ("xid", "position")}
    return kept | {"event_id": event_name(row["id"]), "hash": row["hash"].hex(), "prev_hash": row["prev_hash"].hex()}


@lists(
    "newest instance",
    ("workflow_type", "entity_id", "current_state", "version", "updated_at", "error"),
    limit=50,
)
def list_(
    asked: Listing,
    type_: Annotated[str, typer.Option("--type", help="Only this workflow type.")] = "",
    state: Annotated[str, typer.Option(help="Only instances in this state, in upper or lower case.")] = "",
) -> Iterable[Row]:
    """List the newest instances.

    \b
    Example:
      interlock list --type story --state review --project billing
    """
    states = _states(asked.client, type_, state) if type_ or state else []
    return instances.page(asked.connection, asked.portion, type_=type_ or None, states=states)


def _states(client: Client, type_: str, state: str) -> list[str]:
    """The states with this name, in the upper or lower case that each machine uses."""
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
    """Follow an instance's moves as they are committed, until it reaches a terminal state (or Ctrl-C).

    \b
    Example:
      interlock watch S-1 --json
    """
    started, seq = monotonic(), 0
    with Client() as client:
        while not (timeout and monotonic() - started > timeout):
            ended = not client.show(ref)["legal"]  # before its moves are read, or the last could be missed
            for row in client.history(ref, after_seq=seq):
                event, seq = _event(row), row["seq"]
                if not print_json(event, as_json, lines=True):
                    at = f"{seq:>4}  {event['created_at']:%H:%M:%S}"
                    by = f" by {event['trigger']} ({event['triggered_by']})"
                    say(f"{at}  {event['from_state']} → ", (event["to_state"], "bold"), by)
            if ended:
                return
            sleep(POLL_SECONDS)
