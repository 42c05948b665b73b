"""A `TextStatement` is prepared once on each connection, and fails as other statements do."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable
from interlock.db.fast_path import TextStatement, first_row
from interlock.workers.client.async_client import AsyncClient
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings

SAID = TextStatement("said", "SELECT $1 || $2", parameters=2)
PREPARED = "SELECT count(*) AS count FROM pg_prepared_statements WHERE name = 'interlock_accept_one'"


@pytest.fixture
def runtime(settings: Settings) -> Iterator[Runtime]:
    """One whose connections are all its own: kept ones may be several, which take turns."""
    own = Runtime(settings)
    yield own
    own.close()


def test_it_returns_texts_as_they_were_given_and_null_for_none(runtime: Runtime) -> None:
    assert SAID.result(runtime.statements, ("Ärger, '1' \\ %s", " 日本 🙂")) == "Ärger, '1' \\ %s 日本 🙂"
    assert SAID.result(runtime.statements, ("", "")) == ""
    assert SAID.result(runtime.statements, ("a", None)) is None


def test_many_triggers_of_one_connection_are_prepared_once(runtime: Runtime, client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project)
    for trigger in ("block", "unblock", "block"):
        client.fire(story["id"], trigger, by="ann")
    assert first_row(client.runtime.statements, PREPARED, {}) == {"count": 1}


def test_what_was_prepared_and_is_dropped_is_prepared_again(client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project)
    client.fire(story["id"], "block", by="ann")
    with client.runtime.statements.connect() as connection:
        connection.exec_driver_sql("DEALLOCATE ALL")
    assert client.fire(story["id"], "unblock", by="ann").status == "pending"


def test_a_nul_is_refused_and_cuts_nothing_off(runtime: Runtime) -> None:
    with pytest.raises(DBAPIError, match="invalid byte sequence"):
        SAID.result(runtime.statements, ("kept\0lost", ""))
    assert SAID.result(runtime.statements, ("the connection", " goes on")) == "the connection goes on"


def test_an_error_hides_what_was_given(runtime: Runtime) -> None:
    with pytest.raises(DBAPIError) as failed:
        TextStatement("cast", "SELECT $1::integer::text", parameters=1).result(runtime.statements, ("x1",))
    assert "cast" not in str(failed.value.params)
    assert not failed.value.connection_invalidated


def test_a_connection_that_was_ended_is_replaced(runtime: Runtime) -> None:
    ending = TextStatement("ending", "SELECT pg_terminate_backend(pg_backend_pid())::text", parameters=0)
    with pytest.raises(DBAPIError) as failed:
        ending.result(runtime.statements, ())
    assert retryable(failed.value)
    assert SAID.result(runtime.statements, ("a new", " one")) == "a new one"


def test_a_signal_interrupts_it_and_its_connection_is_not_used_again(runtime: Runtime) -> None:
    class Rang(Exception):
        pass

    def ring(*_: object) -> None:
        raise Rang

    sleeping = TextStatement("sleeping", "SELECT pg_sleep(60)::text", parameters=0)
    before = signal.signal(signal.SIGUSR1, ring)
    threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
    began = time.monotonic()
    try:
        with pytest.raises(Rang):
            sleeping.result(runtime.statements, ())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < 30
    assert SAID.result(runtime.statements, ("another", " one")) == "another one"


def test_tasks_of_an_event_loop_use_it_too(settings: Settings, client: Client, project: str) -> None:
    story = client.create("story", f"S-{uuid4()}", project=project)

    async def fire() -> list[str]:
        async with AsyncClient(Runtime(settings), project=project) as own:
            fired = [own.fire(story["id"], trigger, by="ann") for trigger in ("block", "unblock") * 20]
            return [each.status for each in await asyncio.gather(*fired)]

    assert asyncio.run(fire()) == ["pending"] * 40
