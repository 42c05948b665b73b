"""The journal: every event once and in commit order, whatever happens to the process, the file and the directory."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.core import history
from interlock.supervisor.environment import environment
from interlock.workers import sweeps
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.relay.journal import ACTIVE, Journal, JournalFault, files, set_aside
from interlock.workers.relay.redis_stream import Stream
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workflows.audit.events import born, chained
from interlock.workflows.audit.log_check import Check
from interlock.workflows.input.json_text import read
from tests.doctoring import examined
from tests.driving import UP_TO_REVIEW, applied, drain_all
from tests.running import Stage
from tests.tampering import cut_tail
from tests.walking import Walker

pytestmark = pytest.mark.integration
CANONICAL = (
    "SELECT event_id, event_type, named_event, severity, entity_type, entity_id, from_state, to_state, trigger, reason,"
    " metadata, operator, triggered_by, request_id, definition_version, context, prev_hash, hash FROM events"
    " ORDER BY (context->>'xid')::bigint, (context->>'position')::bigint"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def journal(directory: Path, *, max_bytes: int = 2**20, daily: bool = True) -> Journal:
    return Journal(directory, max_bytes=max_bytes, daily=daily)


def carried(client: Client, directory: Path, **how: Any) -> int:
    return relay(client.runtime.database, [journal(directory, **how)])


def events(directory: Path) -> list[dict[str, Any]]:
    return [read(text) for path in files(directory) for text in path.read_bytes().split(b"\n")[:-1]]


def told(client: Client) -> list[str]:
    """Every event's hash, in commit order."""
    with transaction(client.runtime.database) as connection:
        return [bytes(row["hash"]).hex() for row in history.batch(connection, (0, 0), limit=100_000)]


def assert_whole(client: Client, directory: Path) -> None:
    """Each event once, in commit order; every line proves itself."""
    seen = events(directory)
    assert [event["hash"] for event in seen] == told(client)
    assert [chained(event) for event in seen] == [event["hash"] for event in seen]


def test_an_event_is_written_as_history_tells_it(
    client: Client, stories: list[UUID], directory: Path, dba: "psycopg.Connection[Any]"
) -> None:
    client.fire(stories[0], "block", by="ann", request_id="r-1", data={"why": "ü\n", "n": 1, "reason": "lunch"})
    client.fire(stories[0], "unblock", by="ann")
    drain_all(client.runtime)
    assert carried(client, directory) == 2
    assert_whole(client, directory)
    first, second = events(directory)
    assert born(first) == first["prev_hash"]
    assert second["prev_hash"] == first["hash"]
    columns = dba.execute(CANONICAL)
    names = [column.name for column in columns.description or ()]
    for event, row in zip((first, second), columns.fetchall(), strict=True):
        assert dict(zip(names, row, strict=True)) == {name: event[name] for name in names}


@pytest.mark.promise("O13")
def test_a_named_event_has_its_name_in_the_journal_the_view_the_stream_and_history_alike(
    runtime: Runtime, dba: "psycopg.Connection[Any]", directory: Path, valkey: "Redis"
) -> None:
    """EVENT-17."""
    walker = Walker(runtime, dba)
    expected = {
        walker.at(walker.get(type_), state): name
        for type_, state, name in (
            ("patch_ledger", "quarantined", "patch_quarantined"),
            ("patch_ledger", "rolled_back", "patch_rolled_back"),
            ("circuit_breaker", "OPEN", "circuit_breaker_opened"),
            ("task", "blocked", "task_blocked"),
        )
    }
    workstream = walker.get("workstream")
    failed = walker.at(workstream, "executing")
    (set_aside,) = (move for move in workstream.transitions if move.trigger == "patch_set_aside")
    walker.go(workstream, failed, set_aside)
    expected[failed] = "workstream_failed_quarantine"
    relay(runtime.database, [journal(directory), Stream(valkey, maxlen=1_000)])
    lines = {(event["context"]["workflow_id"], event["context"]["seq"]): event for event in events(directory)}
    named = {place: event["named_event"] for place, event in lines.items()}
    view = dba.execute("SELECT context->>'workflow_id', (context->>'seq')::integer, named_event FROM events").fetchall()
    assert {(workflow_id, seq): name for workflow_id, seq, name in view} == named
    stream = [entry for _, entry in valkey.xrange("interlock:events")]  # type: ignore[union-attr]
    assert {(each["workflow_id"], int(each["seq"])): each["named_event"] or None for each in stream} == named
    for instance, name in expected.items():
        *before, last = Client(runtime).history(instance)
        assert [each["named_event"] for each in before] == [None] * len(before)
        assert last["named_event"] == name == named[str(instance), last["seq"]]
    check = Check.against(runtime.catalogue)
    texts = [text for path in files(directory) for text in path.read_bytes().split(b"\n")[:-1]]
    assert [found for number, text in enumerate(texts, 1) for found in check.feed(number, text)] == []


def test_an_event_of_a_run_names_its_run_workstream_and_phase(
    runtime: Runtime, dba: "psycopg.Connection[Any]", directory: Path
) -> None:
    stage = Stage(runtime, dba)
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.start()
    stage.work("t")
    relay(runtime.database, [journal(directory)])
    by_type = {event["entity_type"]: event["context"] for event in events(directory)}
    run, workstream = str(stage.run), str(stage.ids["w"])
    assert {key: by_type["task"].get(key) for key in ("run_id", "workstream_id", "phase_id")} == {
        "run_id": run,
        "workstream_id": workstream,
        "phase_id": "default",
    }
    assert (by_type["workstream"]["run_id"], by_type["run"]["run_id"]) == (run, run)
    assert by_type["run"]["phase_id"] == "default"
    assert_whole(Client(runtime), directory)


def told_but_not_committed(client: Client, story: UUID, directory: Path, dba: "psycopg.Connection[Any]") -> None:
    """Put three events into the journal, and its cursor back before them."""
    applied(client, story, *UP_TO_REVIEW)
    carried(client, directory)
    dba.execute("UPDATE relay_cursors SET xid = '0', position = 0")


def test_a_line_written_and_not_committed_is_not_written_again(
    client: Client, stories: list[UUID], directory: Path, dba: "psycopg.Connection[Any]"
) -> None:
    told_but_not_committed(client, stories[0], directory, dba)
    assert carried(client, directory) == 0
    with transaction(client.runtime.database) as connection:  # the cursor has caught up with the file
        assert history.lag_seconds(connection, "journal") == 0
    applied(client, stories[1], "block")
    assert carried(client, directory) == 1
    assert_whole(client, directory)


@pytest.mark.parametrize("torn", [b'{"event_id": "evt_', b"\0" * 4096, b"{}\n", b"\n", b'\xff\n{"half'])
def test_a_torn_end_is_cut_off(client: Client, stories: list[UUID], directory: Path, torn: bytes) -> None:
    applied(client, stories[0], *UP_TO_REVIEW)
    carried(client, directory)
    with (directory / ACTIVE).open("ab") as file:
        file.write(torn)
    applied(client, stories[1], "block")
    assert carried(client, directory) == 1
    assert_whole(client, directory)


@pytest.mark.parametrize("keep", [0, 1, 3, 700, 1_500])
def test_whatever_is_left_of_a_batch_that_was_not_committed_the_rest_follows(
    client: Client, stories: list[UUID], directory: Path, dba: "psycopg.Connection[Any]", keep: int
) -> None:
    applied(client, stories[0], "block")
    carried(client, directory)
    before = (directory / ACTIVE).stat().st_size
    place = dba.execute("SELECT xid::text, position FROM relay_cursors WHERE name = 'journal'").fetchone()
    assert place
    applied(client, stories[1], *UP_TO_REVIEW)
    carried(client, directory)
    os.truncate(directory / ACTIVE, before + keep)
    dba.execute("UPDATE relay_cursors SET xid = %s::xid8, position = %s WHERE name = 'journal'", place)
    carried(client, directory)
    assert_whole(client, directory)


def test_parts_are_set_aside_by_size_and_continue_each_other(
    client: Client, stories: list[UUID], directory: Path
) -> None:
    for number in range(4):
        client.fire_many([Firing(story, ("block", "unblock")[number % 2], "a") for story in stories])
        drain_all(client.runtime)
        carried(client, directory, max_bytes=3_000)
    assert len(files(directory)) > 4
    assert all(path.stat().st_size <= 3_000 for path in files(directory))
    assert all(not path.stat().st_mode & 0o222 for path in files(directory)[:-1])
    assert_whole(client, directory)
    os.unlink(files(directory)[-1])  # killed between setting a part aside and beginning the next
    last = len(events(directory))
    assert carried(client, directory, max_bytes=3_000) == len(told(client)) - last
    assert_whole(client, directory)


class Yesterdays(Journal):
    """Is told that events happened earlier than they did."""

    def __init__(self, directory: Path, days: list[int]) -> None:
        super().__init__(directory, max_bytes=2**20, daily=True)
        self.days = days

    def carry(self, connection: Connection, events: Any) -> None:
        aged: list[Any] = [
            dict(event) | {"created_at": event["created_at"] - timedelta(days=day)}
            for event, day in zip(events, self.days, strict=True)
        ]
        super().carry(connection, aged)


def test_a_day_has_a_part_of_its_own_and_a_clock_set_back_begins_none(
    client: Client, stories: list[UUID], directory: Path
) -> None:
    applied(client, stories[0], *UP_TO_REVIEW, "block", "unblock")
    relay(client.runtime.database, [Yesterdays(directory, [2, 2, 1, 2, 0])])
    assert [len(path.read_bytes().splitlines()) for path in files(directory)] == [2, 2, 1]
    assert [event["hash"] for event in events(directory)] == told(client)


def test_two_processes_never_write_at_once(client: Client, stories: list[UUID], directory: Path) -> None:
    applied(client, stories[0], "block")
    first = journal(directory)
    with transaction(client.runtime.database) as connection:
        first.position(connection, (0, 0))
        with pytest.raises(JournalFault, match="another process writes"):
            journal(directory).position(connection, (0, 0))
    first.close()
    assert carried(client, directory) == 1


def test_the_doctor_says_that_the_journals_last_event_was_cut(
    runtime: Runtime, client: Client, stories: list[UUID], dba: "psycopg.Connection[Any]"
) -> None:
    def finding() -> tuple[str, str]:
        return next((each.level, each.cure) for each in examined(runtime, "journal"))

    applied(client, stories[0], *UP_TO_REVIEW)
    sweeps.SWEEPS["relay"](runtime)
    assert finding()[0] == "ok"
    cut_tail(dba, stories[0], keep=2)
    level, cure = finding()
    assert level == "fail"
    assert "audit verify" in cure


def test_a_file_of_another_history_is_not_continued(
    client: Client, stories: list[UUID], directory: Path, dba: "psycopg.Connection[Any]"
) -> None:
    told_but_not_committed(client, stories[0], directory, dba)
    text = (directory / ACTIVE).read_bytes()
    last = json.loads(text.splitlines()[-1])
    (directory / ACTIVE).write_bytes(text.replace(last["hash"].encode(), b"0" * 64))
    with pytest.raises(JournalFault, match=last["event_id"]):
        carried(client, directory)
    command = set_aside(directory).split("`")[1]
    subprocess.run(["sh", "-c", command], check=True)
    assert carried(client, directory) == 3
    assert_whole(client, directory)


def test_a_directory_that_is_gone_is_not_made_again_and_nothing_is_lost(
    make_runtime: Callable[..., Runtime], directory: Path, project: str
) -> None:
    runtime = make_runtime(state=directory)
    client = Client(runtime)
    story = client.create("story", "S-1", project=project)["id"]
    assert [finding.level for finding in examined(runtime, "journal")] == ["ok"]
    applied(client, story, "block")
    assert sweeps.SWEEPS["relay"](runtime) == 1
    directory.rename(directory.with_name("elsewhere"))
    applied(client, story, "unblock")
    with pytest.raises(JournalFault, match="is gone"):
        sweeps.SWEEPS["relay"](runtime)
    (found,) = examined(runtime, "journal")
    assert (found.level, "gone" in found.message) == ("fail", True)
    directory.with_name("elsewhere").rename(directory)
    assert sweeps.SWEEPS["relay"](runtime) == 1
    assert_whole(client, directory)


def test_a_full_disk_stops_the_journal_only_and_nothing_is_lost(
    make_runtime: Callable[..., Runtime], directory: Path, project: str, valkey: Any
) -> None:
    runtime = make_runtime(state=directory)
    client = Client(runtime)
    story = client.create("story", "S-1", project=project)["id"]
    applied(client, story, "block")
    sweeps.SWEEPS["relay"](runtime)
    rounds = [Firing(story, ("unblock", "block")[number % 2], "a") for number in range(20)]
    client.fire_many(rounds)
    drain_all(runtime)
    code = (
        "import resource, sys; from pathlib import Path; from interlock.workers.settings import Settings;"
        "from interlock.workers.runtime import Runtime; from interlock.workers import sweeps;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));"
        "sweeps.SWEEPS['relay'](Runtime(Settings()))"
    )
    full = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(runtime.settings),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "File too large" in full.stderr, full.stderr
    assert valkey.xlen("interlock:events") == 21  # no other destination waits for it
    assert (directory / ACTIVE).stat().st_size == 3_000  # half a line at its end
    assert sweeps.SWEEPS["relay"](runtime) > 0
    assert_whole(client, directory)


def test_the_journal_can_be_switched_off(make_runtime: Callable[..., Runtime], directory: Path) -> None:
    runtime = make_runtime(state=directory, journal=False)
    sweeps.SWEEPS["relay"](runtime)
    assert not directory.exists()
    assert [finding.level for finding in examined(runtime, "journal")] == ["ok"]
