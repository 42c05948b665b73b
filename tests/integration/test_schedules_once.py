"""Each time of a schedule is fired once, however many beats and nodes there are, and whenever they are killed."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.schedules import firing
from interlock.workers.schedules.firing import fire_due
from interlock.workers.settings import Settings
from tests.driving import drain_all
from tests.nodes import node
from tests.scheduling import MINUTELY, born, fired, fires, row, stamps
from tests.waiting import eventually

pytestmark = pytest.mark.integration
MANY = 1_000
BORN = """
INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, context, created_by)
SELECT gen_random_uuid(), 'schedule', '1.0.0', 'active', 'of-' || entity_id, project,
       jsonb_build_object('times', jsonb_build_object('every_seconds', 3600, 'start', %s::text),
                          'does', jsonb_build_object('fire', jsonb_build_object('instance', id, 'trigger', 'design_complete'))),
       'ann'
  FROM workflow_instances WHERE workflow_type = 'story'
"""  # noqa: E501
MADE = """
SELECT request_id, status, accepted_at, finished_at FROM trigger_requests
 WHERE request_id LIKE 'interlock:schedule:%'
"""


def of_stories(client: Client, dba: "psycopg.Connection[Any]", due: datetime) -> None:
    """A thousand stories, each with a schedule that is due at the same instant."""
    client.create_many([client.birth("story", f"S-{number}") for number in range(MANY)])
    dba.execute(BORN, (due.isoformat(),))


def test_a_thousand_due_at_once_under_two_beats_are_fired_once_each(
    client: Client, settings: Settings, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    with ExitStack() as running:
        for number in range(2):
            running.enter_context(node(settings, tmp_path, "worker", "-Q", "sweeps,triggers", "-c", "1"))
            schedule = ("--schedule", str(tmp_path / f"schedule{number}"), "--pidfile=")
            running.enter_context(node(settings, tmp_path, "beat", *schedule))
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10)
        of_stories(client, dba, due)
        assert datetime.now(UTC) < due, "too slow to create them before they are due"
        count = "SELECT count(*) FROM trigger_requests WHERE status = 'applied'"
        eventually(lambda: dba.execute(count).fetchone() == (MANY,), timeout=120)
        began = dba.execute("SELECT now()").fetchone()
        later = "SELECT period_at > %s + interval '1 s' FROM sweeps WHERE name = 'schedules'"
        eventually(lambda: dba.execute(later, began).fetchone() == (True,))  # they have looked again
    made = dba.execute(MADE).fetchall()
    assert len(made) == MANY
    assert {each[0].rpartition(":")[2] for each in made} == {f"{due:%Y%m%dT%H%M%SZ}"}
    assert {each[1] for each in made} == {"applied"}
    moved = "SELECT count(*), count(DISTINCT workflow_id) FROM workflow_transitions WHERE trigger = 'design_complete'"
    assert dba.execute(moved).fetchone() == (MANY, MANY)
    assert dba.execute("SELECT DISTINCT fired, next_at, last_due FROM schedules").fetchall() == [
        (1, due + timedelta(hours=1), due)
    ]


def test_many_sweeps_at_once_fire_each_time_once(
    client: Client, make_runtime: Callable[..., Runtime], dba: "psycopg.Connection[Any]"
) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    of_stories(client, dba, due)
    eventually(lambda: datetime.now(UTC) > due)
    runtimes = [make_runtime() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        counted = sum(pool.map(fire_due, runtimes))
    assert counted == MANY
    assert set(Counter(each[0] for each in dba.execute(MADE).fetchall()).values()) == {1}
    assert dba.execute("SELECT DISTINCT fired FROM schedules").fetchall() == [(1,)], "no two took the same schedule"
    assert drain_all(client.runtime) == MANY


def test_a_sweep_that_ends_before_its_commit_has_done_nothing_and_the_next_one_all(
    client: Client, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    story = client.create("story", "S-1")["id"]
    made = born(
        dba, "each", timedelta(minutes=5), times=MINUTELY, does=fires(client, story), catch_up={"policy": "all"}
    )
    before = row(dba, made)
    with monkeypatch.context() as broken:
        broken.setattr(firing.schedules, "settle", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fire_due(client.runtime)
    assert row(dba, made) == before
    assert fired(client, made) == []
    assert fire_due(client.runtime) == 5


@pytest.mark.timeout(300)
def test_nodes_and_beats_that_are_killed_again_and_again_leave_no_time_out(
    client: Client, settings: Settings, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    stories = [client.create("story", f"S-{number}")["id"] for number in range(12)]
    secondly, every = {"every_seconds": 1}, {"policy": "all"}
    made = [
        born(dba, f"each-{number}", timedelta(0), times=secondly, does=fires(client, story), catch_up=every)
        for number, story in enumerate(stories)
    ]
    for number in range(3):
        with ExitStack() as running:
            nodes = [running.enter_context(node(settings, tmp_path, "worker", "-Q", "sweeps,triggers", "-c", "1"))]
            for each in "ab":  # each beat has a file of its own: a shelf that two processes write is destroyed
                schedule = ("--schedule", str(tmp_path / f"schedule{number}{each}"), "--pidfile=")
                nodes.append(running.enter_context(node(settings, tmp_path, "beat", *schedule)))
            count = (dba.execute("SELECT count(*) FROM trigger_requests").fetchone() or (0,))[0]
            eventually(
                lambda seen=count: (dba.execute("SELECT count(*) FROM trigger_requests").fetchone() or (0,))[0] > seen,
                timeout=60,
            )
            for each in nodes:
                each.kill()
    fire_due(client.runtime)
    for each in made:
        times = stamps(client, each)
        assert times == [times[0] + timedelta(seconds=number) for number in range(len(times))]
        assert (row(dba, each) or ())[2] == len(times)
