"""`AsyncClient` keeps `Client`'s promises inside an event loop, which never waits for PostgreSQL or the broker."""

import asyncio
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from threading import Event, current_thread
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

from interlock.supervisor.environment import environment
from interlock.workers.client.async_client import AsyncClient, AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.client.operations import Operations
from interlock.workers.client.receipts import NotSettled
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.settings import Settings
from interlock.workflows.errors import AlreadyExists, BadInput, RequestConflict, UnknownInstance, UnknownTrigger
from tests.driving import drain_all, state, trail
from tests.waiting import eventually

pytestmark = pytest.mark.integration
NOBODY = "redis://127.0.0.1:1/0"
FORKS = """
import asyncio, os
from interlock import AsyncClient

client, loop = AsyncClient(), asyncio.new_event_loop()

def fire(trigger, by, request_id):
    loop.run_until_complete(client.fire("S-1", trigger, by=by, request_id=request_id))

loop.run_until_complete(client.create("story", "S-1", project=PROJECT))
fire("design_complete", "parent", "1")
if not (pid := os.fork()):
    parents, loop = loop, asyncio.new_event_loop()  # kept: its end here would take what wakes it there out of its epoll
    fire("block", "child", "2")
    loop.run_until_complete(client.__aexit__())
    os._exit(0)
fire("unblock", "parent", "3")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
fire("block", "parent", "4")
loop.run_until_complete(client.__aexit__())
"""


def run(settings: Settings, steps: Callable[[AsyncClient], Awaitable[None]]) -> None:
    """An event loop, a client in it, and what is done with them."""

    async def within() -> None:
        async with AsyncClient(AsyncRuntime(settings)) as client:
            await steps(client)
            given_back(client)

    asyncio.run(within())


def given_back(client: AsyncClient) -> None:
    """Every connection that was taken has been given back."""
    for name in vars(client.runtime).keys() & {"database", "statements"}:
        assert getattr(client.runtime, name).pool.checkedout() == 0


@asynccontextmanager
async def engine_of(settings: Settings) -> AsyncIterator[AsyncEngine]:
    """An application's own engine."""
    engine = create_async_engine(settings.resolved_database_url())
    try:
        yield engine
    finally:
        await engine.dispose()


def queued(valkey: "Redis") -> int:
    return int(valkey.llen("interlock:triggers"))


async def committed(caller: AsyncSession | AsyncConnection, valkey: "Redis") -> None:
    """Commit; only that sends the wake-up."""
    assert queued(valkey) == 0
    await caller.commit()
    await asyncio.to_thread(eventually, lambda: queued(valkey) == 1)


@pytest.fixture
def own_table(dba: "psycopg.Connection[Any]") -> None:
    dba.execute("CREATE TABLE callers_own (note text); GRANT ALL ON callers_own TO PUBLIC")


def test_it_has_the_methods_and_parameters_of_client() -> None:
    public = {name for name in vars(Operations) if not name.startswith("_")}
    assert {name for name in dir(AsyncClient) if not name.startswith("_")} == public - {"birth"} | {"project", "events"}
    for name in public - {"birth", "events"}:
        assert inspect.iscoroutinefunction(getattr(AsyncClient, name))
        assert inspect.signature(getattr(AsyncClient, name)) == inspect.signature(getattr(Client, name))


def test_create_fire_wait_show_and_history(settings: Settings, client: Client, project: str) -> None:
    async def steps(interlock: AsyncClient) -> None:
        made = await interlock.create("story", "S-1", project=project)
        first = await interlock.fire("S-1", "design_complete", by="a", request_id="r-1")
        assert (first.status, first.replayed) == ("pending", False)
        waiting = asyncio.create_task(interlock.wait(["r-1"]))
        await asyncio.to_thread(drain_all, client.runtime)
        assert [each.status for each in await waiting] == ["applied"]
        again = await interlock.fire("S-1", "design_complete", by="a", request_id="r-1")
        assert (again.status, again.replayed) == ("applied", True)
        assert (await interlock.show(made["id"]))["current_state"] == "design"
        assert [event["trigger"] for event in await interlock.history("S-1")] == ["design_complete"]

    run(settings, steps)


def test_many_are_created_and_fired_in_few_statements(settings: Settings, client: Client, project: str) -> None:
    async def steps(interlock: AsyncClient) -> None:
        births = [interlock.birth("story", f"S-{number}", project=project) for number in range(20)]
        assert await interlock.create_many(births) == 20
        assert await interlock.create_many(births) == 0
        firings = [Firing(birth.id, "design_complete", "a") for birth in births]
        assert Counter(each.status for each in await interlock.fire_many(firings)) == {"pending": 20}

    run(settings, steps)
    drain_all(client.runtime)
    assert {state(client, f"S-{number}") for number in range(20)} == {"design"}


def test_what_cannot_be_is_refused_in_the_same_words(settings: Settings, client: Client, story: UUID) -> None:
    async def steps(interlock: AsyncClient) -> None:
        await interlock.fire(story, "design_complete", by="a", request_id="r-1")
        project = client.show(story)["project"]
        refused: list[tuple[type[Exception], Callable[[Any], Any]]] = [
            (UnknownTrigger, lambda each: each.fire(story, "no_such", by="a")),
            (UnknownInstance, lambda each: each.fire("S-2", "block", by="a")),
            (RequestConflict, lambda each: each.fire(story, "block", by="a", request_id="r-1")),
            (AlreadyExists, lambda each: each.create("story", "S-1", project=project)),
            (BadInput, lambda each: each.fire(story, "block", by="a\0")),
            (BadInput, lambda each: each.fire(story, "block", by="a", session="mine")),
            (NotSettled, lambda each: each.wait(["nobody's"], timeout_seconds=0)),
        ]
        for kind, call in refused:
            with pytest.raises(kind) as of_async:
                await call(interlock)
            with pytest.raises(kind) as of_client:
                call(client)
            if "session" not in str(of_client.value):
                assert str(of_async.value) == str(of_client.value)

    run(settings, steps)


def test_it_commits_and_rolls_back_with_an_async_session(
    settings: Settings, story: UUID, valkey: "Redis", own_table: None, dba: "psycopg.Connection[Any]"
) -> None:
    async def steps(interlock: AsyncClient) -> None:
        async with engine_of(settings) as engine, AsyncSession(engine) as session:
            await session.execute(text("INSERT INTO callers_own VALUES ('lost')"))
            await interlock.fire(story, "design_complete", by="a", request_id="lost", session=session)
            await interlock.create("story", "S-2", project=UUID(int=1), session=session)
            await session.rollback()
            await session.execute(text("INSERT INTO callers_own VALUES ('kept')"))
            async with session.begin_nested():
                await interlock.fire(story, "design_complete", by="a", request_id="kept", session=session)
            await committed(session, valkey)

    run(settings, steps)
    assert dba.execute("SELECT request_id FROM trigger_requests").fetchall() == [("kept",)]
    assert dba.execute("SELECT note FROM callers_own").fetchall() == [("kept",)]
    assert dba.execute("SELECT count(*) FROM workflow_instances").fetchall() == [(1,)]
    assert queued(valkey) == 1


def test_it_commits_and_rolls_back_with_an_async_connection(
    settings: Settings, story: UUID, valkey: "Redis", dba: "psycopg.Connection[Any]"
) -> None:
    async def steps(interlock: AsyncClient) -> None:
        async with engine_of(settings) as engine, engine.connect() as connection:
            await interlock.fire(story, "design_complete", by="a", request_id="lost", session=connection)
            await connection.rollback()
            await interlock.fire(story, "design_complete", by="a", request_id="kept", session=connection)
            await committed(connection, valkey)

    run(settings, steps)
    assert dba.execute("SELECT request_id FROM trigger_requests").fetchall() == [("kept",)]
    assert queued(valkey) == 1


def test_200_tasks_at_once_are_accepted_exactly_once_each(settings: Settings, client: Client, project: str) -> None:
    async def steps(interlock: AsyncClient) -> None:
        async def one(number: int) -> str:
            made = await interlock.create("story", f"S-{number}", project=project)
            ids = (made["id"], f"S-{number}")
            receipts = [await interlock.fire(ref, "design_complete", by="a", request_id=f"r-{number}") for ref in ids]
            assert [each.replayed for each in receipts] == [False, True]
            return receipts[0].request_id

        assert len(set(await asyncio.gather(*(one(number) for number in range(200))))) == 200

    run(settings, steps)
    drain_all(client.runtime)
    assert {state(client, f"S-{number}") for number in range(200)} == {"design"}


def test_a_cancelled_call_leaves_nothing_half_done_and_no_connection_taken(
    settings: Settings, client: Client, story: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    """Somebody holds the table: both calls wait in PostgreSQL when they are cancelled."""

    async def steps(interlock: AsyncClient) -> None:
        calls = [
            interlock.fire(story, "design_complete", by="a", request_id="alone"),
            interlock.fire_many([Firing(story, "design_complete", "a", f"many-{number}") for number in range(3)]),
        ]
        await interlock.show(story)
        with psycopg.connect(dba.info.dsn, password=dba.info.password) as holder:
            holder.execute("LOCK TABLE trigger_requests")
            tasks = [asyncio.create_task(call) for call in calls]
            await asyncio.to_thread(eventually, lambda: waiting(dba) == len(tasks))
            for task in tasks:
                task.cancel()
            assert {type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)} == {
                asyncio.CancelledError
            }
            await asyncio.to_thread(eventually, lambda: waiting(dba) == 0)
        given_back(interlock)
        assert (await interlock.fire(story, "design_complete", by="a", request_id="alone")).replayed is False

    run(settings, steps)
    assert dba.execute("SELECT request_id FROM trigger_requests").fetchall() == [("alone",)]
    drain_all(client.runtime)
    assert trail(client, story) == ["design_complete"]


def waiting(dba: "psycopg.Connection[Any]") -> int:
    """How many statements wait for a lock in this test's database."""
    row = dba.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])


class StandingBroker:
    """Stands where the broker would be: takes nothing until it is released, and says who waited for it."""

    def __init__(self) -> None:
        self.released = Event()
        self.threads: list[str] = []

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: self._take()

    def _take(self) -> None:
        self.threads.append(current_thread().name)
        self.released.wait(30)


def test_the_event_loop_does_not_wait_for_a_broker_that_stands(settings: Settings, story: UUID) -> None:
    standing = StandingBroker()

    async def steps(interlock: AsyncClient) -> None:
        vars(interlock.runtime)["wakeups"] = standing
        for number in range(4):
            await interlock.fire(story, "design_complete", by="a", request_id=f"r-{number}")
        async with engine_of(settings) as engine, AsyncSession(engine) as session, session.begin():
            await interlock.fire(story, "design_complete", by="a", session=session)
        interlock.runtime.wakeup_sender.effects([])
        assert len(standing.threads) <= 1  # the thread waits in its first call
        standing.released.set()

    run(settings, steps)
    assert set(standing.threads) == {"interlock-wakeup-sender"}


def test_triggers_are_accepted_while_the_broker_is_down(settings: Settings, story: UUID) -> None:
    async def steps(interlock: AsyncClient) -> None:
        assert (await interlock.fire(story, "design_complete", by="a")).status == "pending"

    run(settings.model_copy(update={"broker_url": NOBODY}), steps)


def test_used_before_a_fork_it_works_in_parent_and_child(
    settings: Settings, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"PROJECT = {str(project)!r}\n{FORKS}"],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = dba.execute("SELECT request_id, triggered_by FROM trigger_requests ORDER BY 1").fetchall()
    assert rows == [("1", "parent"), ("2", "child"), ("3", "parent"), ("4", "parent")]
