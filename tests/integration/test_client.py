"""The client's promises: accepted exactly once, in the caller's own commit if asked, broker or no broker."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Barrier
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from sqlalchemy import text
from sqlalchemy.orm import Session
from uuid_utils.compat import uuid7

from interlock.db import migrate, retry
from interlock.db.connection import collided, make_engine, transaction
from interlock.db.core import requests, rounds
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import NotSettled
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.errors import (
    AlreadyExists,
    AmbiguousInstance,
    Archived,
    BadInput,
    NotYours,
    RequestConflict,
    UnknownInstance,
    UnknownTrigger,
    UnknownWorkflow,
)
from tests import databases
from tests.archived import approval, archive, expire_timers
from tests.callers import FORKS
from tests.driving import UP_TO_REVIEW, applied, drain_all, make_due, outcome, state, swept, trail
from tests.legacy import rename

pytestmark = pytest.mark.integration
NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def session(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Iterator[Session]:
    """A caller's own session, with a table of the caller's."""
    dba.execute("CREATE TABLE public.callers_own (note text); GRANT ALL ON public.callers_own TO PUBLIC")
    with Session(runtime.database) as opened:
        yield opened


def note(session: Session) -> None:
    session.execute(text("INSERT INTO public.callers_own VALUES ('kept')"))


def queued(valkey: "Redis") -> int:
    """How many wakeups wait in the broker."""
    return int(valkey.llen("interlock:triggers"))


def test_the_same_request_is_accepted_once_and_answered_with_the_recorded_response(client: Client, story: UUID) -> None:
    first = client.fire(story, "design_complete", by="a", request_id="r-1", data={"n": 1})
    drain_all(client.runtime)
    again = client.fire(story, "design_complete", by="a", request_id="r-1", data={"n": 1})
    assert (first.replayed, again.replayed) == (False, True)
    assert again.status == "applied"
    assert again.result is not None
    assert (again.result["from"], again.result["to"], again.result["seq"]) == ("analysis", "design", 1)
    drain_all(client.runtime)
    assert trail(client, story) == ["design_complete"]


@pytest.mark.parametrize(
    "other", [{"trigger": "block"}, {"by": "b"}, {"data": {"n": 2}}, {"after": timedelta(1)}, {"if_version": 0}]
)
def test_the_same_request_id_with_another_body_is_refused(client: Client, story: UUID, other: dict[str, Any]) -> None:
    body: dict[str, Any] = {"trigger": "design_complete", "by": "a", "data": {"n": 1}}
    client.fire(story, **body, request_id="r-1")
    with pytest.raises(RequestConflict, match="'r-1' was used before for 'design_complete' by 'a'"):
        client.fire(story, **(body | other), request_id="r-1")


def test_the_same_request_id_on_another_instance_is_refused(client: Client, story: UUID, project: str) -> None:
    other = client.create("story", "S-2", project=project)["id"]
    client.fire(story, "block", by="a", request_id="r-1")
    with pytest.raises(RequestConflict):
        client.fire(other, "block", by="a", request_id="r-1")


def test_a_batch_that_contradicts_itself_is_refused_whole(client: Client, story: UUID) -> None:
    with pytest.raises(RequestConflict, match="used twice in this batch"):
        client.fire_many([Firing(story, "block", "a", "r-1"), Firing(story, "block", "b", "r-1")])
    assert drain_all(client.runtime) == 0


def test_a_batch_may_repeat_itself_and_what_was_fired_before(client: Client, story: UUID) -> None:
    client.fire(story, "design_complete", by="a", request_id="r-1")
    firings = [Firing(story, "design_complete", "a", "r-1")] + [Firing(story, "start_coding", "a", "r-2")] * 2
    receipts = client.fire_many(firings)
    assert [(receipt.request_id, receipt.replayed) for receipt in receipts] == [
        ("r-1", True),
        ("r-2", False),
        ("r-2", False),
    ]
    assert drain_all(client.runtime) == 2


def test_many_threads_firing_the_same_request_have_it_accepted_once(client: Client, story: UUID) -> None:
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: client.fire(story, "block", by="a", request_id="r-1"), range(24)))
    assert sum(not receipt.replayed for receipt in receipts) == 1
    assert drain_all(client.runtime) == 1


def _fire_elsewhere(database_url: str, story: UUID) -> bool:
    with Client(Runtime(Settings(database_url=database_url, broker_url=NOBODY))) as client:
        return client.fire(story, "block", by="a", request_id="r-1").replayed


def test_many_processes_firing_the_same_request_have_it_accepted_once(
    client: Client, story: UUID, database_url: str
) -> None:
    with FORKS.Pool(3) as pool:
        replayed = pool.starmap(_fire_elsewhere, [(database_url, story)] * 6)
    assert sorted(replayed) == [False] + [True] * 5
    assert drain_all(client.runtime) == 1


def test_a_batch_is_applied_in_the_callers_order_whatever_its_ids(client: Client, story: UUID) -> None:
    fired = ["design_complete", "start_coding", "block"]
    client.fire_many([Firing(story, trigger, "a", f"r-{9 - at}") for at, trigger in enumerate(fired)])
    assert drain_all(client.runtime) == 3
    assert [move["trigger"] for move in client.history(story)] == fired


def _all_at_once(callers: int, bursts: int, work: Callable[[int, int], int]) -> list[int]:
    """What all callers' `work(caller, burst)` come to, burst by burst; a burst begins for all at the same moment."""
    together = Barrier(callers)

    def each(caller: int) -> list[int]:
        done = []
        for burst in range(bursts):
            together.wait(60)
            try:
                done.append(work(caller, burst))
            except Exception:
                together.abort()
                raise
        return done

    with ThreadPoolExecutor(callers) as pool:
        return [sum(burst) for burst in zip(*pool.map(each, range(callers)), strict=True)]


def _shuffled(caller: int, burst: int, size: int) -> list[str]:
    return Random(caller).sample([f"{burst}-{each}" for each in range(size)], size)


def test_many_who_fire_the_same_requests_each_in_an_order_of_its_own_are_all_answered(
    make_runtime: Callable[..., Runtime], story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for another who waits for him: not one of them is stopped by PostgreSQL and has to try again."""
    stopped: list[BaseException] = []
    monkeypatch.setattr(retry, "collided", lambda error: stopped.append(error) or collided(error))
    clients = [Client(make_runtime()) for _ in range(8)]

    def fire(caller: int, burst: int) -> int:
        wanted = [Firing(story, "block", "a", name) for name in _shuffled(caller, burst, 40)]
        return sum(not receipt.replayed for receipt in clients[caller].fire_many(wanted))

    assert _all_at_once(8, 6, fire) == [40] * 6
    assert stopped == []


def test_many_who_create_the_same_instances_each_in_an_order_of_its_own_are_all_answered(
    make_runtime: Callable[..., Runtime], project: str
) -> None:
    """They do wait for each other in circles, and PostgreSQL stops one after the other."""
    clients = [Client(make_runtime()) for _ in range(6)]

    def create(caller: int, burst: int) -> int:
        client = clients[caller]
        return client.create_many(
            [client.birth("story", name, project=project) for name in _shuffled(caller, burst, 40)]
        )

    assert _all_at_once(6, 2, create) == [40] * 2


def test_what_is_enqueued_in_the_callers_session_commits_with_its_data(
    client: Client, story: UUID, session: Session, dba: "psycopg.Connection[Any]", valkey: "Redis"
) -> None:
    note(session)
    made = client.create("sprint", "P-1", project=uuid7(), session=session)
    client.fire(made["id"], "start", by="a", session=session)
    client.fire(story, "design_complete", by="a", session=session)
    assert dba.execute("SELECT count(*) FROM trigger_requests").fetchone() == (0,)
    assert queued(valkey) == 0  # a wakeup sent now would find nothing, and be spent
    session.commit()
    assert dba.execute("SELECT count(*) FROM trigger_requests").fetchone() == (2,)
    assert queued(valkey) in (1, 2)  # one for each partition
    assert drain_all(client.runtime) == 2
    assert state(client, story) == "design"


def test_what_is_enqueued_in_the_callers_session_rolls_back_with_its_data(
    client: Client, story: UUID, session: Session, dba: "psycopg.Connection[Any]", valkey: "Redis"
) -> None:
    note(session)
    client.create("sprint", "P-1", project=uuid7(), session=session)
    client.fire(story, "design_complete", by="a", session=session)
    session.rollback()
    assert dba.execute("SELECT count(*) FROM trigger_requests").fetchone() == (0,)
    assert dba.execute("SELECT count(*) FROM public.callers_own").fetchone() == (0,)
    note(session)
    session.commit()
    assert queued(valkey) == 0  # nor later, with what the session does next
    assert drain_all(client.runtime) == 0


def test_a_savepoint_is_no_commit(client: Client, story: UUID, session: Session, valkey: "Redis") -> None:
    with session.begin_nested():
        client.fire(story, "design_complete", by="a", session=session)
    assert queued(valkey) == 0
    session.commit()
    assert queued(valkey) == 1


def test_rolling_back_to_a_savepoint_forgets_nothing_of_before(
    client: Client, story: UUID, session: Session, valkey: "Redis"
) -> None:
    client.fire(story, "design_complete", by="a", session=session)
    with pytest.raises(UnknownTrigger), session.begin_nested():
        client.fire(story, "fly", by="a", session=session)
    session.commit()
    assert queued(valkey) == 1
    assert drain_all(client.runtime) == 1


def test_a_trigger_that_is_not_the_callers_leaves_its_transaction_whole(
    client: Client, story: UUID, session: Session, dba: "psycopg.Connection[Any]", project: str
) -> None:
    gate = client.create("test_gate", "G-1", project=project, context={"gate_type": "UNIT"})["id"]
    note(session)
    with pytest.raises(
        NotYours, match=r"^dependency_failed of test_gate G-1 is not ann's to fire. Who may: Interlock itself"
    ):
        client.fire(gate, "dependency_failed", by="ann", session=session)
    client.fire(story, "design_complete", by="ann", session=session)
    session.commit()
    assert dba.execute("SELECT count(*) FROM public.callers_own").fetchone() == (1,)
    drain_all(client.runtime)
    assert state(client, story) == "design"


def test_a_session_can_be_used_again(client: Client, story: UUID, session: Session, valkey: "Redis") -> None:
    for trigger in UP_TO_REVIEW:
        client.fire(story, trigger, by="a", session=session)
        session.commit()
        client.runtime.wakeup_sender.flush()  # on a fast machine a thread gathers them
        assert queued(valkey) == 1
        drain_all(client.runtime)
        valkey.flushall()
    assert state(client, story) == "review"


def test_a_trigger_for_later_waits_for_its_time(client: Client, story: UUID, dba: "psycopg.Connection[Any]") -> None:
    receipt = client.fire(story, "design_complete", by="a", after=timedelta(hours=1))
    assert receipt.status == "scheduled"
    swept(client.runtime, "dispatch")
    assert drain_all(client.runtime) == 0
    make_due(dba)
    dba.execute("DELETE FROM sweeps")
    assert swept(client.runtime, "dispatch")
    assert drain_all(client.runtime) == 1
    assert state(client, story) == "design"


def test_an_instant_is_kept_to_the_moment_and_one_in_the_past_is_now(client: Client, story: UUID, project: str) -> None:
    instant = datetime.now(UTC).replace(microsecond=0) + timedelta(days=400)
    later = client.fire(story, "block", by="a", after=instant)
    assert outcome(client, later.request_id)["not_before"] == instant
    assert client.fire(story, "design_complete", by="a", after=instant - timedelta(days=900)).status == "pending"


def test_accepting_never_waits_for_a_broker_that_is_down(
    make_runtime: Callable[..., Runtime], project: str, dba: "psycopg.Connection[Any]"
) -> None:
    down = Client(make_runtime(broker_url=NOBODY))
    began = time.monotonic()
    story = down.create("story", "S-1", project=project)["id"]
    receipts = [down.fire(story, trigger, by="a") for trigger in UP_TO_REVIEW]
    assert time.monotonic() - began < 10
    assert [receipt.status for receipt in receipts] == ["pending"] * 3
    up = Client(make_runtime())
    swept(up.runtime, "dispatch")
    with Redis.from_url(up.runtime.settings.resolved_broker_url()) as broker:
        assert queued(broker) == 1
    drain_all(up.runtime)
    assert state(up, story) == "review"


def test_waiting_returns_the_outcomes_in_the_order_asked(client: Client, story: UUID) -> None:
    ids = [client.fire(story, trigger, by="a").request_id for trigger in (*UP_TO_REVIEW, "tests_pass")]
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(client.wait, reversed(ids), timeout_seconds=10)
        drain_all(client.runtime)
        assert [each.status for each in waited.result()] == ["rejected", "applied", "applied", "applied"]


def test_waiting_in_vain_is_told_as_such(client: Client, story: UUID) -> None:
    receipt = client.fire(story, "design_complete", by="a")
    with pytest.raises(NotSettled, match="1 of 1 trigger not applied within 0 s"):
        client.wait([receipt.request_id], timeout_seconds=0)


def test_a_thousand_and_more_are_accepted_in_order(client: Client, story: UUID) -> None:
    applied(client, story, *UP_TO_REVIEW)
    rounds = [Firing(story, trigger, "a") for _ in range(600) for trigger in ("request_changes", "submit_pr")]
    receipts = client.fire_many(rounds)
    assert [receipt.trigger for receipt in receipts] == [firing.trigger for firing in rounds]
    assert drain_all(client.runtime) == 1_200
    assert client.show(story)["version"] == 3 + 1_200


def test_a_reference_is_an_entity_id_a_type_and_entity_id_or_a_uuid(client: Client, project: str) -> None:
    story = client.create("story", "X-1", project=project)["id"]
    assert [client.show(ref)["id"] for ref in ("X-1", "story/X-1", str(story), story)] == [story] * 4
    client.create("sprint", "X-1", project=project)
    with pytest.raises(AmbiguousInstance, match=r"sprint/X-1.*TYPE/ENTITY_ID or the UUID"):
        client.show("X-1")
    assert client.show("story/X-1")["id"] == story
    with pytest.raises(UnknownInstance, match="there is no instance 'X-2'"):
        client.fire("X-2", "block", by="a")
    with pytest.raises(UnknownInstance):
        client.fire(uuid7(), "block", by="a")


def test_a_uuid_means_the_instance_that_has_it_whatever_others_are_called(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    """As in a database from before names that are UUIDs were refused."""
    client.create("sprint", "S-1")
    stranger = client.create("story", "S-2")["id"]
    rename(dba, stranger, str(story))
    with pytest.raises(AmbiguousInstance, match=r"Use TYPE/ENTITY_ID or the UUID\.$"):
        client.fire("S-1", "design_complete", by="ann")
    assert client.fire(str(story), "design_complete", by="ann").workflow_id == story
    drain_all(client.runtime)
    assert [event["workflow_id"] for event in client.history(str(story))] == [story]
    assert client.show(str(story))["id"] == story


def test_the_uuid_of_an_archived_instance_is_nobody_elses(
    client: Client, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    ended = approval(client, project, "A-1")
    expire_timers(dba)
    archive(client.runtime)
    rename(dba, approval(client, project, "A-2", ended=False), str(ended))
    with pytest.raises(Archived):
        client.fire(str(ended), "approve", by="bob")
    assert client.show(str(ended))["id"] == ended


@pytest.mark.parametrize("spelled", [str, lambda id_: str(id_).upper()], ids=["lower", "upper"])
def test_nobody_is_called_as_a_uuid(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]", spelled: Callable[[UUID], str]
) -> None:
    name = spelled(story)
    with pytest.raises(BadInput, match=f"entity id {name} is a UUID, which always means the instance with that UUID"):
        client.create("story", name, project=uuid7())
    birth = replace(client.birth("story", "S-2", project=uuid7()), entity_id=name)
    with pytest.raises(BadInput, match=f"workflow_instances.entity_id cannot be a UUID: {name}"):
        client.create_many([birth])
    client.create("story", name.replace("-", ""), project=uuid7())


def test_what_cannot_be_is_refused_and_nothing_is_written(
    client: Client, story: UUID, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (UnknownWorkflow, lambda: client.create("epic", "E-1", project=project)),
        (AlreadyExists, lambda: client.create("story", "S-1", project=project)),
        (
            UnknownInstance,
            lambda: client.create("pr_review", "PR-1", project=project, context={"story_id": "S-404"}),
        ),
        (BadInput, lambda: client.create("story", "x" * 101, project=project)),
        (BadInput, lambda: client.create("story", "S-2", project=project, context={"x": "y" * 300_000})),
        (BadInput, lambda: client.create("story", "S-2", project=project, by="")),
        (UnknownTrigger, lambda: client.fire(story, "fly", by="a")),
        (BadInput, lambda: client.fire(story, "block", by="a\x00")),
        (BadInput, lambda: client.fire(story, "block", by="a", data={"x": float("nan")})),
        (BadInput, lambda: client.fire(story, "block", by="a", request_id="r" * 201)),
    ]
    for error, attempt in refused:
        with pytest.raises(error):
            attempt()
    assert dba.execute("SELECT count(*) FROM workflow_instances").fetchone() == (1,)
    assert dba.execute("SELECT count(*) FROM trigger_requests").fetchone() == (0,)


def test_creating_many_leaves_those_that_exist_as_they_are(client: Client, project: str) -> None:
    first = client.create("story", "S-0", project=project, context={"kept": True})
    births = [client.birth("story", f"S-{number}", project=project) for number in range(1_200)]
    assert client.create_many(births) == 1_199
    assert client.create_many(births) == 0
    assert client.show(first["id"])["context"] == {"kept": True}


def test_the_same_entity_in_another_project_is_another_instance(client: Client, project: str) -> None:
    one = client.create("story", "S-1", project=project)
    assert client.create("story", "S-1", project=uuid7())["id"] != one["id"]


def test_accepting_does_not_wait_for_a_round_that_holds_the_same_instance(
    client: Client, story: UUID, runtime: Runtime
) -> None:
    client.fire(story, "design_complete", by="a")
    with transaction(runtime.database) as connection:
        assert len(rounds.gather(connection, requests.partition_of(story), limit=10)) == 1
        with ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(client.fire, story, "start_coding", by="a")
            assert accepted.result(timeout=60).status == "pending"
    assert drain_all(runtime) == 2


def test_a_restarted_database_costs_a_caller_nothing(
    client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    for pool in (client.runtime.database, client.runtime.statements):
        for pooled in [pool.raw_connection() for _ in range(3)]:  # as threads have used them
            pooled.close()
    client.show(story)
    ended = dba.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert ended.fetchone() != (0,)
    assert client.fire(story, "design_complete", by="a").status == "pending"
    assert client.show(story)["current_state"] == "analysis"
    drain_all(client.runtime)
    assert client.show(story)["current_state"] == "design"


def test_migrating_from_several_machines_at_once_is_harmless(settings: Settings, servers: Any) -> None:
    with databases.copy_of(servers, "template0") as url:
        engines = [
            make_engine(Settings(database_url=databases.as_owner(servers, url)).resolved_database_url())
            for _ in range(3)
        ]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(migrate.upgrade, engines))
        with engines[0].connect() as connection:
            current, newest = migrate.revision(connection)
        for engine in engines:
            engine.dispose()
    assert current == newest is not None
