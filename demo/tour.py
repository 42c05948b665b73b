"""The whole of it once, on real servers and real pull requests, and everything stopped again."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from demo import plan
from demo.progress_bars import with_bars
from demo.pull_requests import Journey, read
from demo.replay import REVIEWER, Replayed
from interlock.cli.lib.output import FAILED, console, print_table, say
from interlock.cli.server.up_down import launch, print_summary
from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.schema import in_schema
from interlock.db.tables.core import instances
from interlock.supervisor.daemon import stop
from interlock.supervisor.home import home_of
from interlock.supervisor.purge import purge
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.client.client import Client
from interlock.workers.operations.doctor import examine
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings, settings
from interlock.workflows.errors import RequestConflict
from interlock.workflows.output.suggestions import offered, with_setting

SERVERS = ("database_url", "owner_url", "broker_url", "redis_url")


def show(file: Path) -> None:
    """Start all, drive the pull requests of `file` and some plans through, show it, stop; exit code 1 if amiss."""
    own: dict[str, object] = {"home": settings().home / "demo"} | dict.fromkeys(SERVERS)
    own |= {"heartbeat_seconds": 1.0, "recovery_seconds": 6.0}  # to see a killed worker's task move on within seconds
    chosen = settings().model_copy(update=own)
    with _servers(chosen), Client(Runtime(chosen)) as client:
        replayed = _replay(client, file)
        _tables(client, replayed)
        _longest(client, file)
        _refusals(client, read(file)[0].project)
        ended_well = _plans(client, chosen)
        well = _proof(client) and ended_well
        _where_next(chosen)
    if not well:
        raise typer.Exit(FAILED)


@contextmanager
def _servers(chosen: Settings) -> Iterator[None]:
    _heading("1. PostgreSQL, Valkey, workers, beat and Flower")
    if not settings().home.exists():
        home_of(settings()).claim()  # the demo's own is a directory in it
    stop(chosen)
    purge(home_of(chosen))  # what an earlier demo left
    launch(chosen, frozenset(), console)
    print_summary(chosen, console)
    try:
        yield
    finally:
        stop(chosen)
        say("everything is stopped")


def _replay(client: Client, file: Path) -> Replayed:
    _heading("2. Real pull requests, through Celery; the broker is wiped while they run")
    wiped = False

    def wipe(_stage: str, done: int, _total: int) -> None:
        nonlocal wiped
        if done and not wiped and client.runtime.redis is not None:
            wiped = bool(client.runtime.redis.flushall())

    replayed = with_bars(client, file, reviewer=REVIEWER, patience_seconds=60.0, also=wipe)
    print_table("replayed", [asdict(replayed)], asdict(replayed))
    return replayed


def _tables(client: Client, replayed: Replayed) -> None:
    with transaction(client.runtime.database) as connection:
        place = (instances.c.workflow_type.label("type"), instances.c.current_state.label("state"))
        counted = select(*place, func.count().label("instances")).group_by(*place).order_by(*place)
        rows = [dict(row) for row in connection.execute(counted).mappings()]
        told = effects.count_by_status(connection)
    print_table("where they stand now", rows, ("type", "state", "instances"))
    say(f"{replayed.rejected} self-approvals were refused: authors may not approve their own work.")
    say(f"Notices about approvals: {told}.")


def _longest(client: Client, file: Path) -> None:
    journey = max((Journey(each, REVIEWER) for each in read(file)), key=lambda each: len(each.pull_request.commits))
    _heading(f"3. The longest review: {journey.pull_request.title}")
    of_repository = Client(client.runtime, project=journey.pull_request.project)
    events = of_repository.history(f"pr_review/{journey.review}")
    rows: list[dict[str, Any]] = [{**event, "chain": event["hash"].hex()[:12]} for event in events]
    shown = [*rows[:4], {"trigger": f"… {len(rows) - 8} more …"}, *rows[-4:]] if len(rows) > 9 else rows
    print_table(
        f"history of {journey.review}", shown, ("seq", "from_state", "trigger", "to_state", "triggered_by", "chain")
    )


def _refusals(client: Client, project: str) -> None:
    _heading("4. What is refused")
    story = client.create("story", "DEMO-1", project=project)
    skipped = client.fire(story["id"], "tests_pass", by="agent-1")
    refused = client.wait([skipped.request_id])[0]
    say(f"  an illegal trigger: {(refused.result or {})['message']}")
    first = client.fire(story["id"], "design_complete", by="agent-1", request_id="demo-1")
    again = client.fire(story["id"], "design_complete", by="agent-1", request_id="demo-1")
    say(f"  the same request again: accepted once ({again.request_id}, replayed={again.replayed})")
    client.wait([first.request_id])
    try:
        client.fire(story["id"], "block", by="agent-2", request_id="demo-1")
    except RequestConflict as conflict:
        say(f"  its request_id with another body: {conflict}")
    for statement in (
        in_schema(f"UPDATE interlock.workflow_instances SET current_state = 'done' WHERE id = '{story['id']}'"),
        in_schema("UPDATE interlock.workflow_transitions SET triggered_by = 'nobody'"),
        in_schema("TRUNCATE interlock.workflow_transitions CASCADE"),
    ):
        try:
            with transaction(client.runtime.owned) as connection:  # not even the schema's owner may
                connection.execute(text(statement))
        except DBAPIError as error:
            say(f"  {statement.split(' WHERE')[0]}")
            say(f"    → {str(error.orig).splitlines()[0]}")


def _plans(client: Client, chosen: Settings) -> bool:
    _heading("5. Plans on a real repository: patches, gates, a worker killed, a rollback")
    if shutil.which("git") is None:
        say(("left out", "yellow"), ": patches need git, and none is installed here (Debian: apt install git)")
        return True
    return plan.plans(client, chosen.home / "project")


def _proof(client: Client) -> bool:
    _heading("6. Proof")
    verdict = verify.verify(client.runtime.database)
    read = f"{verdict.instances} instances, {verdict.transitions} events, every chain recomputed"
    say(f"  audit verify: {'ok' if verdict.ok else verdict.problems}; {read}")
    if client.runtime.redis is not None:
        say(f"  Redis stream {STREAM}: {client.runtime.redis.xlen(STREAM)} events relayed in commit order")
    findings = examine(client.runtime)
    print_table("doctor", [asdict(finding) for finding in findings], ("check", "level", "message", "cure"))
    return verdict.ok and all(finding.level != "fail" for finding in findings)


def _where_next(chosen: Settings) -> None:
    _heading("Where to look next")
    for command, message in (
        ("interlock up", "start for good; Flower's address and password are printed"),
        (
            with_setting("INTERLOCK_HOME", chosen.home, offered("up", detach=True)),
            "the demo's data again, then for example:",
        ),
        (
            with_setting("INTERLOCK_HOME", chosen.home, offered("history", "PR-1")),
            "every move of a pull request review",
        ),
        (with_setting("INTERLOCK_HOME", chosen.home, offered("audit", "verify")), "recompute every hash chain"),
        ("interlock definitions graph story", "the machine, as a Mermaid diagram"),
    ):
        say(f"  {command:56} {message}")


def _heading(words: str) -> None:
    say()
    say((words, "bold"))
