"""Sweeps: once a period whoever asks, in bounded batches, and harmless in any number."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import UUID

import psycopg
import pytest
from celery.beat import Service
from redis import Redis

from interlock.beat import sweeps
from interlock.beat.schedule import BY_NAME, SCHEDULE
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core import sweep_runs as runs
from interlock.workers import sweeps as sweeping
from interlock.workers.broker import nodes
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.runtime import Runtime
from tests.doctoring import examined
from tests.driving import UP_TO_REVIEW, applied, drain_all, swept, trail
from tests.nodes import node
from tests.waiting import eventually

pytestmark = pytest.mark.integration
MONTHS = 90


def backdate(dba: "psycopg.Connection[Any]", seconds: float) -> None:
    """As if the sweeps had last begun so long ago."""
    dba.execute("UPDATE sweeps SET started_at = started_at - make_interval(secs => %s)", (seconds,))


@pytest.mark.parametrize("name", [sweep.name for sweep in SCHEDULE])
def test_every_sweep_of_the_schedule_runs_and_is_recorded(runtime: Runtime, name: str) -> None:
    assert swept(runtime, name) == 0
    with transaction(runtime.database) as connection:
        (row,) = runs.last_runs(connection)
    assert (row["name"], row["found"]) == (name, 0)
    assert row["finished_at"] >= row["started_at"]
    assert row["age_seconds"] >= 0


def test_doctor_names_the_workers_where_nobody_takes_what_beat_sends(
    runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    def finding() -> Finding:
        return examined(runtime, "beat")[0]

    dba.execute("ALTER TABLE workflow_definitions DISABLE TRIGGER kept")
    dba.execute("UPDATE workflow_definitions SET recorded_at = now()")
    assert finding().level == "ok"
    swept(runtime, "dispatch")
    backdate(dba, 40)
    said = finding()
    assert (said.level, "dispatch has not run for 4" in said.message) == ("fail", True)
    assert "interlock playbook show beat-is-dead" in said.cure
    runtime.app.send_task("interlock.sweep", args=["dispatch"])
    said = finding()
    assert said.message.startswith(
        "no node consumes the queue `sweeps`, where beat's messages wait (1); sweeps are late"
    )
    assert said.cure == "interlock playbook show worker-takes-nothing"


def test_doctor_fails_where_no_node_takes_triggers(runtime: Runtime, tmp_path: Path) -> None:
    assert swept(runtime, "dispatch") == 0
    with node(runtime.settings, tmp_path, "worker", "-Q", "effects", "-c", "1"):
        said = examined(runtime, "workers")[0]
    assert said.level == "fail"
    assert said.message.startswith("no node that consumes `sweeps`, `triggers` answers; these nodes do: ")


def test_a_node_that_is_held_up_for_some_seconds_is_one_that_answers(runtime: Runtime, tmp_path: Path) -> None:
    with node(runtime.settings, tmp_path, "worker", "-Q", "effects", "-c", "1") as held_up:
        eventually(
            lambda: list(nodes.queues_by_node(runtime.app)) != []
        )  # it listens only once its event loop has turned
        os.kill(held_up.process.pid, signal.SIGSTOP)
        later = Timer(1.25 * nodes.ANSWER_SECONDS, os.kill, (held_up.process.pid, signal.SIGCONT))
        later.start()
        assert list(nodes.queues_by_node(runtime.app)) != []
        later.join()


def test_beat_looks_once_for_each_message_and_sleeps_in_between(runtime: Runtime, tmp_path: Path) -> None:
    runtime.app.conf.beat_schedule = {"each": {"task": "interlock.sweep", "args": ("dispatch",), "schedule": 0.2}}
    chosen = runtime.app.conf.beat_scheduler
    service = Service(runtime.app, schedule_filename=str(tmp_path / "schedule"), scheduler_cls=chosen)
    pauses, look = list[float](), service.scheduler.tick

    def counted() -> float:
        pauses.append(look())
        if pauses.count(0) == 5:  # after each message it looks again at once
            service.stop()
        return pauses[-1]

    service.scheduler.tick = counted
    service.start()
    assert len(pauses) <= 15


def test_a_sweep_runs_once_a_period_however_many_ask_at_once(
    make_runtime: Callable[..., Runtime], dba: "psycopg.Connection[Any]"
) -> None:
    beats = [make_runtime() for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: swept(beats[number % 4], "prune"), range(16)))
    assert sorted(found, key=str) == [0] + [None] * 15
    backdate(dba, 3_600)
    assert swept(beats[0], "prune") == 0


def test_a_sweep_that_failed_runs_again_in_the_next_period(
    runtime: Runtime, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SWEEPS", {"dispatch": lambda _: 1 / 0})
    with pytest.raises(ExceptionGroup, match="1 of 1"):
        swept(runtime, "dispatch")
    monkeypatch.undo()
    with transaction(runtime.database) as connection:
        (row,) = runs.last_runs(connection)
    assert row["finished_at"] is None
    backdate(dba, 1)
    assert swept(runtime, "dispatch") == 0


def test_a_period_that_became_longer_still_comes_round(runtime: Runtime, dba: "psycopg.Connection[Any]") -> None:
    def begun(every_seconds: float) -> bool:
        with transaction(runtime.database) as connection:
            return runs.begin(connection, {"dispatch": every_seconds}) == {"dispatch"}

    assert begun(1.0)
    backdate(dba, 3_600)
    assert begun(60.0)  # a release that made it slower must not stop it for ever
    assert not begun(60.0)


def test_dispatch_wakes_what_is_due_in_bounded_batches(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "WAKE_BATCH", 4)
    client.fire_many([Firing(story, "block", "a", after=timedelta(hours=1)) for _ in range(10)])
    dba.execute("UPDATE trigger_requests SET not_before = now() - make_interval(secs => seq) WHERE seq % 2 = 0")
    with transaction(client.runtime.database) as connection:
        assert [sweeps.dispatch(connection, silent_seconds=60).woken for _ in range(3)] == [4, 1, 0]


def test_two_dispatches_at_once_wake_different_rows_and_wait_for_nobody(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    client.fire_many([Firing(story, "block", "a", after=timedelta(hours=1)) for _ in range(10)])
    dba.execute("UPDATE trigger_requests SET not_before = now()")
    with transaction(client.runtime.database) as one, transaction(client.runtime.database) as other:
        assert requests.wake(one, limit=6) == 6
        assert requests.wake(other, limit=100) == 4


def test_dispatch_sends_again_the_wakeups_that_were_lost(client: Client, story: UUID, valkey: "Redis") -> None:
    client.fire_many([Firing(story, trigger, "a") for trigger in UP_TO_REVIEW])
    valkey.flushall()
    assert swept(client.runtime, "dispatch") == 1
    assert valkey.llen("interlock:triggers") == 1
    drain_all(client.runtime)
    assert trail(client, story) == list(UP_TO_REVIEW)


def test_dispatch_wakeups_each_partition_once_however_much_waits(client: Client, project: str, valkey: "Redis") -> None:
    births = [client.birth("story", f"S-{number}", project=project) for number in range(200)]
    client.create_many(births)
    client.fire_many([Firing(birth.id, trigger, "a") for birth in births for trigger in UP_TO_REVIEW])
    valkey.flushall()
    assert swept(client.runtime, "dispatch") == requests.PARTITIONS
    assert valkey.llen("interlock:triggers") == requests.PARTITIONS


def test_dispatch_wakeups_effects_nobody_runs(client: Client, story: UUID, valkey: "Redis") -> None:
    applied(client, story, "block")
    valkey.flushall()
    swept(client.runtime, "dispatch")
    assert valkey.llen("interlock:effects") == 1


def test_prune_deletes_what_is_long_finished_and_never_history_nor_what_is_dead_or_open(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    applied(client, story, "design_complete")
    client.fire(story, "tests_pass", by="a", request_id="refused")
    client.fire(story, "block", by="a", request_id="recent")
    drain_all(client.runtime)
    client.fire(story, "unblock", by="a", request_id="open")
    client.fire(story, "start_coding", by="a", request_id="dead")
    dba.execute(
        "UPDATE trigger_requests SET finished_at = now() - make_interval(days => %s) WHERE request_id <> 'recent'"
        " AND finished_at IS NOT NULL",
        (MONTHS,),
    )
    dba.execute(
        "UPDATE trigger_requests SET status = 'dead', finished_at = now() - make_interval(days => %s)"
        " WHERE request_id = 'dead'",
        (MONTHS,),
    )
    assert swept(client.runtime, "prune") == 2
    left = dba.execute("SELECT request_id FROM trigger_requests ORDER BY 1").fetchall()
    assert [row[0] for row in left] == ["dead", "open", "recent"]
    assert trail(client, story) == ["design_complete", "block"]


def test_prune_is_bounded(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    client.fire_many([Firing(story, "tests_pass", "a") for _ in range(9)])
    drain_all(client.runtime)
    dba.execute("UPDATE trigger_requests SET finished_at = now() - make_interval(days => %s)", (MONTHS,))
    monkeypatch.setattr(sweeps, "PRUNE_BATCH", 4)
    with transaction(client.runtime.database) as connection:
        for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):  # left: to run IN (…) again for each row
            connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        assert [sweeps.prune(connection, keep_days=30) for _ in range(4)] == [4, 4, 1, 0]


def test_effects_that_are_done_have_a_keeping_time_of_their_own(
    make_runtime: Callable[..., Runtime], project: str, dba: "psycopg.Connection[Any]"
) -> None:
    runtime = make_runtime(keep_finished_days=30.0, keep_effects_days=1.0)
    client = Client(runtime)
    applied(client, client.create("approval", "A-1", project=project)["id"], "reject")
    dba.execute("UPDATE effects SET status = 'done', finished_at = now() - interval '2 days'")
    dba.execute("UPDATE trigger_requests SET finished_at = now() - interval '2 days' WHERE finished_at IS NOT NULL")
    (effects,) = dba.execute("SELECT count(*) FROM effects").fetchone() or (0,)
    assert swept(runtime, "prune") == effects > 0
    assert dba.execute("SELECT count(*) FROM trigger_requests WHERE status = 'applied'").fetchone() == (1,)


def test_a_timer_not_yet_due_is_left_alone(client: Client, project: str) -> None:
    client.create("approval", "A-1", project=project)
    assert swept(client.runtime, "dispatch") == 0


def test_the_relay_sweep_carries_events_and_without_redis_none_to_the_stream(
    client: Client, story: UUID, make_runtime: Callable[..., Runtime], valkey: "Redis", dba: "psycopg.Connection[Any]"
) -> None:
    applied(client, story, "block")
    without = make_runtime(broker_url="amqp://guest@127.0.0.1:1//", journal=False)
    assert swept(without, "relay") == 1  # they are counted all the same
    assert valkey.xlen("interlock:events") == 0
    backdate(dba, BY_NAME["relay"].every_seconds)
    assert swept(client.runtime, "relay") == 1
    assert valkey.xlen("interlock:events") == 1
