"""`interlock schedule`: create, list, show, pause, resume and end schedules."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.moving import settled, tell
from interlock.cli.lib.options import Reason, person
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.cli.lib.parsing import json_object, when
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.cli.runs.plan_file import directory_of, read
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.schedules import creating
from interlock.workers.schedules.creating import Standing
from interlock.workers.schedules.wording import in_words, move_of, what_it_does
from interlock.workflows.errors import BadInput
from interlock.workflows.input import names
from interlock.workflows.output.counts import number_of
from interlock.workflows.schedules.actions import read_stamp

HELP = """Schedules: at the times of a cron expression in a time zone, or at intervals, fire a trigger, create an
instance or run a plan. Each time once, in the name of whoever created the schedule, who alone may pause, resume and end
it; an operator can end it, too. A schedule is an instance of `schedule`, with a history.

\b
Exit code: 0 done, 2 refused: nothing was changed, 1 failed.

\b
Examples:
  interlock schedule create nightly --cron "30 2 * * *" --time-zone Europe/Berlin --plan nightly.yaml
  interlock schedule list
  interlock schedule show nightly          its next five times, and what it did
  interlock schedule pause nightly --reason "the repository is being moved"
"""
app = typer.Typer(no_args_is_help=True, help=HELP)
COLUMNS = ("name", "state", "times", "does", "next", "last", "fired", "by", "failure")

Ref = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The schedule's name or UUID.", autocompletion=completing.named("schedule")),
]
By = Annotated[str, person("Who created it.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait until it is applied.")]


@app.command()
def create(
    entity_id: Annotated[str, typer.Argument(metavar="NAME", help="Unique in the project.")],
    by: Annotated[str, person("Who creates it: in that name it acts.")],
    cron: Annotated[
        str, typer.Option(metavar="EXPRESSION", help="Minute, hour, day of month, month, day of week.")
    ] = "",
    time_zone: Annotated[str, typer.Option(metavar="ZONE", help="Of --cron; default: UTC.")] = "",
    every: Annotated[str, typer.Option(metavar="DURATION", help="90s, 10m, 2h or 3d.")] = "",
    start: Annotated[str, typer.Option(metavar="INSTANT", help="The first time of --every; default: after one.")] = "",
    fire: Annotated[
        tuple[str, str] | None, typer.Option(metavar="REF TRIGGER", help="Fire TRIGGER on the instance REF.")
    ] = None,
    data: Annotated[str, typer.Option(help="Of --fire: JSON object, or @FILE, stored in the event.")] = "{}",
    make: Annotated[
        tuple[str, str] | None,
        typer.Option("--create", metavar="TYPE NAME", help="Create an instance; %due in NAME becomes the time."),
    ] = None,
    context: Annotated[str, typer.Option(help="Of --create: JSON object, or @FILE.")] = "{}",
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Run a plan, as it is in FILE now.")] = None,
    priority: Annotated[int, typer.Option(help="Of --plan: its runs' priority, -1000 to 1000.")] = 0,
    catch_up: Annotated[
        str, typer.Option(metavar="POLICY", help="What becomes of missed times: skip, one (the newest) or all.")
    ] = "one",
    within: Annotated[str, typer.Option(metavar="DURATION", help="How far back `all` reaches, at most 7d.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a schedule. It can do what whoever creates it may do, at its times.

    A time is missed if it is a minute old before it can be fired, because nothing ran. Where clocks are put forward, a
    skipped time comes right after; where they are put back, a fixed time comes once.

    \b
    Examples:
      interlock schedule create freeze --cron "0 18 * * 5" --time-zone Europe/Berlin --fire release freeze --data '{"reason": "weekend"}'
      interlock schedule create standup --cron "0 9 * * 1-5" --create story 'standup-%due'
      interlock schedule create nightly --cron "30 2 * * *" --plan nightly.yaml --catch-up skip
      interlock schedule create poll --every 15m --start 2026-12-01T00:00:00Z --fire S-1 request_changes
    """  # noqa: E501 - commands are copied whole
    if [bool(fire), bool(make), bool(plan)].count(True) != 1:
        raise BadInput("give one of --fire, --create and --plan")
    with Client() as client:
        if fire:
            does = creating.firing(client, *fire, data=json_object("--data", data))
        elif make:
            does = {"create": {"type": make[0], "name": make[1], "context": json_object("--context", context)}}
        else:
            assert plan is not None
            does = creating.submitting(client, read(plan), directory_of(plan), by=by, priority=priority)
        caught: dict[str, Any] = {"policy": catch_up} | (
            {"within_seconds": _seconds("--within", within)} if within else {}
        )
        made = creating.create_schedule(
            client, entity_id, _times(cron, time_zone, every, start), does, by=by, catch_up=caught
        )
        found = creating.standing(client, made["id"])
    if not print_json(_plain(found), as_json):
        _print(found)


@app.command("list")
def list_(
    ended: Annotated[bool, typer.Option("--ended", help="Also those that have ended.")] = False,
    project: OnlyProject = None,
    as_json: AsJson = False,
) -> None:
    """List schedules: when each fires next, what it does, and its last failure.

    \b
    Example:
      interlock schedule list
    """
    with Client() as client:
        found = creating.standings(client, project, ended=ended)
    rows = [dict(each.row) | _in_words(each) for each in found]
    if not print_json([_plain(each) for each in found], as_json):
        print_list(number_of(len(rows), "schedule"), rows, COLUMNS, project)


@app.command()
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show a schedule: its next five times, and what became of its newest ten: the triggers it fired, as long as their
    requests are kept, the instances and runs it created, and what could not be fired.

    \b
    Example:
      interlock schedule show nightly
    """
    with Client() as client:
        found = creating.standing(client, ref)
    if not print_json(_plain(found), as_json):
        _print(found)


@app.command()
def pause(ref: Ref, by: By, reason: Reason, timeout: Timeout = 30.0, as_json: AsJson = False) -> None:
    """Pause a schedule. The times of a pause are not made up for.

    \b
    Example:
      interlock schedule pause nightly --reason "the repository is being moved"
    """
    _move(ref, "pause", by, reason, timeout, as_json)


@app.command()
def resume(ref: Ref, by: By, reason: Reason, timeout: Timeout = 30.0, as_json: AsJson = False) -> None:
    """Resume a paused schedule, from now on.

    \b
    Example:
      interlock schedule resume nightly --reason "it has been moved"
    """
    _move(ref, "resume", by, reason, timeout, as_json)


@app.command()
def delete(ref: Ref, by: By, reason: Reason, timeout: Timeout = 30.0, as_json: AsJson = False) -> None:
    """End a schedule for good: your own, or as an operator anybody's. Its history is kept, its name is not free again.

    \b
    Example:
      interlock schedule delete nightly --reason "replaced by nightly-2"
    """
    _move(ref, "end", by, reason, timeout, as_json)


def _move(ref: str, trigger: str, by: str, reason: str, timeout: float, as_json: bool) -> None:
    why = names.reason("reason", reason)
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            schedule = instances.find(connection, ref, client.project, "schedule")
        receipt = settled(client, schedule["id"], move_of(schedule, trigger, by), by=by, reason=why, timeout=timeout)
    applied = (f"schedule {schedule['entity_id']} is ", ((receipt.result or {}).get("to", ""), "bold"))
    tell(receipt, applied, receipt, as_json)


def _times(cron: str, time_zone: str, every: str, start: str) -> dict[str, Any]:
    if bool(cron) == bool(every) or (time_zone and every) or (start and cron):
        raise BadInput("give --cron, with --time-zone if it is not UTC, or --every, with --start if it is not now")
    if cron:
        return {"cron": cron} | ({"time_zone": time_zone} if time_zone else {})
    return {"every_seconds": _seconds("--every", every)} | ({"start": start} if start else {})


def _seconds(option: str, text: str) -> int:
    found = when(text, option)
    if not isinstance(found, timedelta) or found % timedelta(seconds=1):
        raise BadInput(f"{option} must be a duration of whole seconds, like 90s, 10m, 2h or 3d; got {text!r}")
    return round(found.total_seconds())


def _plain(found: Standing) -> dict[str, Any]:
    return dict(found.row) | {"following": found.following} | ({"firings": found.firings} if found.firings else {})


def _print(found: Standing) -> None:
    row, words = found.row, _in_words(found)
    say(f"schedule {row['name']} is ", (row["state"], "bold"), f": {words['times']}, {words['does']}, by {row['by']}")
    for each in found.following:
        say(f"  {'next' if row['state'] == 'active' else 'if resumed'}: {_local(each, row['context'])}")
    for firing in found.firings:
        if firing["due"] is None:
            say(("  failed", "red"), f": {_local(firing['at'], row['context'])}: {firing['message']}")
            continue
        due = _local(read_stamp(firing["due"]), row["context"])
        outcome = f": {firing['message']}" if firing["message"] else ""
        say(f"  fired: {due}: {firing['what']} ", (firing["status"], "bold"), outcome)


def _in_words(found: Standing) -> dict[str, Any]:
    """The columns of a table that its row does not have."""
    row = found.row
    return {
        "times": in_words(row["context"]),
        "does": what_it_does(row),
        "next": _local(found.following[0], row["context"]) if found.following and row["state"] == "active" else None,
        "last": row["last_due"] and _local(row["last_due"], row["context"]),
    }


def _local(instant: datetime, context: Mapping[str, Any]) -> str:
    """An instant in the schedule's time zone."""
    zone = ZoneInfo(context.get("times", {}).get("time_zone", "UTC"))
    return f"{instant.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}"
