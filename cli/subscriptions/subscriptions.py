"""`interlock subscription`: add, list, show, pause, resume, replay, skip and remove subscriptions to events."""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.listing import Listing, Row, lists
from interlock.cli.lib.moves import newest_moves
from interlock.cli.lib.options import By, Reason
from interlock.cli.lib.orders import Order, ordered
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.cli.lib.parsing import past
from interlock.cli.lib.progress_bar import bar, on
from interlock.db.connection import transaction
from interlock.db.core import subscriptions
from interlock.db.core.subscriptions import SubscriptionRow
from interlock.workers.client.client import Client
from interlock.workers.overrides import subscriptions as changing
from interlock.workers.overrides.subscriptions import Change, Replay, WantedEvents
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.urls import shown_url
from interlock.workflows.subscription_terms import NAMED

HELP = """Subscriptions: events, as they are committed, are delivered to an endpoint outside, as CloudEvents, signed as
Standard Webhooks says. Each event at least once, those of an instance in their order; what an endpoint does not take is
kept and tried again. Operators add and change subscriptions, with a reason.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.

\b
Examples:
  interlock subscription add chat --url https://chat.example/hooks/7 --secret file:chat --reason "release notes"
  interlock subscription list
  interlock subscription replay chat --from 2h --reason "its disk was full" --wait
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("name", "state", "to", "events", "delivered", "behind", "failing", "by", "reason")
PAUSE_SECONDS = 0.2

Ref = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The subscription's name or UUID.", autocompletion=completing.named("subscription")
    ),
]


class NotReplayed(InterlockError):
    """The replay goes on, but was not done in time. `interlock subscription show NAME` says how far it is."""


@app.command()
def add(
    entity_id: Annotated[str, typer.Argument(metavar="NAME", help="Unique in the project, for ever.")],
    by: By,
    reason: Reason,
    url: Annotated[str, typer.Option(metavar="URL", help="Where it delivers to: https://…")],
    secret: Annotated[
        list[str],
        typer.Option(
            metavar="REFERENCE",
            help="Where workers find what signs it: env:NAME, file:PATH or command:NAME. Repeat it while one is "
            "replaced.",
        ),
    ],
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only events of this type; repeatable.", autocompletion=completing.types
        ),
    ] = None,
    state: Annotated[list[str] | None, typer.Option(help="Only events that enter this state; repeatable.")] = None,
    trigger: Annotated[list[str] | None, typer.Option(help="Only events by this trigger; repeatable.")] = None,
    every_project: Annotated[bool, typer.Option("--every-project", help="Events of all projects.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deliver events to an endpoint, from now on.

    \b
    Examples:
      interlock subscription add chat --url https://chat.example/hooks/7 --secret file:chat --reason "release notes"
      interlock subscription add merged --url https://ci.example/ --secret env:CI_SECRET --type pr_review \\
        --state merged --reason "deploys what is merged"
    """
    wanted = WantedEvents(type_ or (), state or (), trigger or (), every_project)
    with Client() as client:
        order = OverrideOrder(by, reason)
        made = changing.subscribe(client.runtime, entity_id, url, order, secrets=secret, wanted=wanted)
    if not print_json(dict(made), as_json):
        say(f"subscription {made['entity_id']} of project {made['project']} is ", (made["current_state"], "bold"))


@app.command("list")
@lists("subscription", COLUMNS, lines=lambda row: [{**row, **_in_words(row)}])
def list_(
    asked: Listing,
    removed: Annotated[bool, typer.Option("--removed", help="Also those that were removed.")] = False,
) -> Iterable[Row]:
    """List subscriptions: where and what each delivers, how far it is behind, and since when its endpoint fails.

    \b
    Example:
      interlock subscription list
    """
    return subscriptions.listed(asked.connection, project=asked.project, removed=removed)


@app.command()
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show a subscription: its terms, how far it is, the endpoint's last answer, and its newest moves.

    \b
    Example:
      interlock subscription show chat
    """
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            row = changing.standing(connection, ref, client.project)
        events = newest_moves(client, row["id"])
    if not print_json({**row, "history": events}, as_json):
        _print(row)


def _changes(change: Change, message: str, example: str) -> None:
    """Add the command of a change, with its help text."""

    @app.command(change, help=f"{message}\n\n\b\nExample:\n  {example}")
    @ordered(_say_state)
    def command(order: OverrideOrder, ref: Ref) -> Order:
        return lambda runtime: changing.change_subscription(runtime, ref, change, order)


def _say_state(subscription: Mapping[str, Any]) -> None:
    say(f"subscription {subscription['entity_id']} is ", (subscription["current_state"], "bold"))


_changes(
    "pause",
    "Pause a subscription. What happens meanwhile is delivered once it is resumed.",
    'interlock subscription pause chat --reason "the chat is being moved"',
)
_changes(
    "resume",
    "Resume a paused subscription, where it stood.",
    'interlock subscription resume chat --reason "it has been moved"',
)
_changes(
    "remove",
    "Remove a subscription for good. Its history is kept, and its name is not free again.",
    'interlock subscription remove chat --reason "replaced by chat-2"',
)


@app.command()
def replay(
    ref: Ref,
    by: By,
    reason: Reason,
    start: Annotated[
        str, typer.Option("--from", metavar="EVENT|TIME", help="Event id (evt_…), instant, or duration until now (2h).")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Show progress, and wait until all is delivered.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait at most.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Deliver events again, beginning with one. Receivers know by the id that they had them.

    \b
    Examples:
      interlock subscription replay chat --from 2h --reason "its disk was full" --wait
      interlock subscription replay chat --from 2026-11-26T03:00:00Z --reason "restored from a backup"
      interlock subscription replay chat --from evt_01KB8Z6Q3V7Y1R0T5N9M2C4XAE --reason "it lost this one"
    """
    first: str | datetime = start if start.startswith("evt_") else past(start, "--from")
    with Client() as client:
        going = changing.replay_events(client.runtime, ref, first, OverrideOrder(by, reason))
        done = _watch(client, going, timeout, as_json) if wait else 0
    answer = {"subscription": going.subscription_id, "from": start, "events": going.events, "done": done}
    if not print_json(answer, as_json):
        told = "are delivered again, or passed over" if wait else "will be delivered again, or passed over"
        say(f"{going.events} events {told}")


@app.command()
def skip(ref: Ref, by: By, reason: Reason, as_json: AsJson = False) -> None:
    """Give up on the event that the endpoint refuses, and go on behind it.

    \b
    Example:
      interlock subscription skip chat --reason "the chat cannot read this one, says its team"
    """
    with Client() as client:
        event = changing.skip_event(client.runtime, ref, OverrideOrder(by, reason))
    if not print_json({"skipped": event}, as_json):
        say(f"{event} is not delivered to {ref}")


def _watch(client: Client, going: Replay, timeout: float, quiet: bool) -> int:
    until = time.monotonic() + timeout
    with bar("delivering again", quiet) as shown:
        told = on(shown)
        while (done := changing.replayed(client.runtime, going)) < going.events:
            told(done, going.events)
            if time.monotonic() > until:
                raise NotReplayed(
                    f"{done} of {going.events} events are delivered again after {timeout:g} s; it goes on"
                )
            client.runtime.pause(PAUSE_SECONDS)
    return done


def _print(row: SubscriptionRow) -> None:
    words = _in_words(row)
    say(f"subscription {row['name']} of project {row['project']} is ", (row["state"], "bold"), f": {words['events']}")
    say(f"  to {row['context'].get('url')}, signed by {', '.join(row['context'].get('secrets', ()))}")
    say(f"  {row['changed_by_trigger']} by {row['changed_by']}: {row['reason']}")
    if row["xid"] is None:
        return
    say(f"  {row['delivered']} delivered, {words['behind']} behind history")
    answer = row["answer"] or {}
    if row["failed_at"]:
        said = f"{answer.get('event') or ''} {answer.get('error')} {answer.get('body') or ''}"
        say(
            ("  failing", "red"), f" since {row['failed_at']:%Y-%m-%d %H:%M:%S} UTC, {row['attempts']} attempts: {said}"
        )
        say(f"  next attempt at {row['next_at']:%Y-%m-%d %H:%M:%S} UTC")
    elif answer:
        at = f"{row['answered_at']:%Y-%m-%d %H:%M:%S} UTC"
        say(f"  last answer {answer.get('status')} to {answer.get('event')} at {at}")


def _in_words(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The columns of a table that its row does not have."""
    return {
        "to": shown_url(row["context"].get("url")),
        "events": _events(row["context"]),
        "behind": f"{row['behind_seconds']:.0f} s" if row["state"] in ("active", "paused") else None,
        "failing": row["failed_at"] and f"since {row['failed_at']:%Y-%m-%d %H:%M:%S}",
    }


def _events(terms: Mapping[str, Any]) -> str:
    said = [f"{name} {', '.join(terms[name])}" for name in NAMED if terms.get(name)]
    whose = ["every project"] if terms.get("every_project") else []
    return "; ".join([*said, *whose]) or "all events"
