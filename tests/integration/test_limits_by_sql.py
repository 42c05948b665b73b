"""Limits and claims hold against raw SQL of the engine's own login (LIMIT-1, LIMIT-4, TASK-16)."""

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import CheckViolation, InvalidTransactionState, RestrictViolation

from interlock.db.connection import make_engine
from interlock.workers.client.client import Client
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.overrides.limits import LimitedName, set_limit
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotYours
from tests.crewing import Site
from tests.driving import drain_all, state
from tests.rights import grant
from tests.waiting import eventually

pytestmark = pytest.mark.integration
TAKEN = "SELECT c.* FROM interlock.tasks t, interlock.take_claim(t.task_id, t.run_id, %s, %s) c WHERE t.task_id = %s"


@pytest.fixture
def engine(runtime: Runtime) -> Iterator["psycopg.Connection[Any]"]:
    with connected(runtime) as connection:
        yield connection


def connected(runtime: Runtime, **said: Any) -> "psycopg.Connection[Any]":
    """A connection of the engine's login."""
    url = runtime.database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(url, autocommit=True, **said)


def agent(runtime: Runtime, name: str, *capabilities: str) -> tuple[UUID, str]:
    """A registered agent's id and secret."""
    made = Agent(name, capabilities=capabilities, runtime=runtime)
    worker = made.register()
    assert made.secret
    return UUID(str(worker)), made.secret


@pytest.mark.parametrize(("isolation", "held"), [("READ COMMITTED", 1), ("REPEATABLE READ", 0), ("SERIALIZABLE", 0)])
def test_limit_4_no_isolation_lets_in_more_than_there_is_room_for(
    runtime: Runtime, client: Client, project: str, dba: Any, isolation: str, held: int
) -> None:
    """Each of three transactions has seen, before any of them takes a claim, that nobody holds one."""
    grant(client, "olga")
    tasks = Site(client, project).queue(3, kind="agent", limit_key="a")
    set_limit(runtime, LimitedName("key", "a"), OverrideOrder("olga", "one server"), at_once_most=1)
    agents = [agent(runtime, f"agent-{each}") for each in range(3)]
    with ExitStack() as stack:
        sessions = [stack.enter_context(connected(runtime)) for _ in tasks]
        for each in sessions:
            each.execute(f"BEGIN ISOLATION LEVEL {isolation}")
            each.execute("SELECT count(*) FROM interlock.task_claims")
        for session, task, known in zip(sessions, tasks, agents, strict=True):
            with nullcontext() if held else pytest.raises(InvalidTransactionState, match="READ COMMITTED only"):
                session.execute(TAKEN, (*known, task))
            session.execute("COMMIT")
    assert dba.execute("SELECT count(*) FROM task_claims").fetchone() == (held,)


def test_what_a_login_has_as_its_own_isolation_is_not_ours(runtime: Runtime, engine: Any) -> None:
    here = f"ALTER ROLE CURRENT_USER IN DATABASE {runtime.database.url.database}"  # the test's own
    engine.execute(f"{here} SET default_transaction_isolation = 'repeatable read'")
    with connected(runtime) as plain:
        assert plain.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
    made = make_engine(runtime.database.url)
    with made.connect() as ours:
        assert ours.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
    made.dispose()


def test_task_16_only_what_waits_for_such_a_worker_is_claimed(
    runtime: Runtime, client: Client, project: str, dba: Any, engine: Any
) -> None:
    """Each would hold a limit's place, and none would ever begin."""
    site = Site(client, project)
    ready, cancelled, of_others = (site.queue(1, kind="agent")[0] for _ in range(3))
    (needy,) = site.queue(1, kind="agent", required_capabilities=["gpu", "rust"])
    (command,) = site.queue(1)
    client.fire(cancelled, "user_cancelled", by="ann")
    drain_all(runtime)
    worker, secret = agent(runtime, "agent-7", "rust")
    (run,) = dba.execute("SELECT run_id FROM tasks WHERE task_id = %s", (ready,)).fetchone()
    claim = "SELECT * FROM interlock.take_claim(%s, %s, %s, %s)"
    for task, why in (
        (cancelled, "it is cancelled, and not queued"),
        (of_others, "it is of another run"),
        (needy, "worker agent-7 has no gpu"),
        (command, "worker agent-7 has no interlock:execute"),
    ):
        its_run = run if task == of_others else _run(dba, task)
        with pytest.raises(CheckViolation, match=f"cannot be claimed: {why}"):
            engine.execute(claim, (task, its_run, worker, secret))
    assert dba.execute("SELECT count(*) FROM task_claims").fetchone() == (0,)
    assert engine.execute(claim, (ready, run, worker, secret)).fetchall()
    dba.execute("UPDATE workers SET draining = true, max_concurrent_tasks = 2")
    with pytest.raises(CheckViolation, match="it is draining"):
        engine.execute(claim, (of_others, _run(dba, of_others), worker, secret))


def test_task_18_a_claim_ends_with_the_wait_of_its_task(
    runtime: Runtime, client: Client, project: str, dba: Any, engine: Any
) -> None:
    (task,) = Site(client, project).queue(1, kind="agent")
    engine.execute(TAKEN, (*agent(runtime, "agent-7"), task))  # and nothing is started
    client.fire(task, "user_cancelled", by="ann")
    drain_all(runtime)
    assert state(client, task) == "cancelled"
    eventually(lambda: dba.execute("SELECT count(*) FROM task_claims WHERE revoked_at IS NOT NULL").fetchone() == (1,))
    schedule(runtime, _run(dba, task))
    assert dba.execute("SELECT count(*) FROM task_claims WHERE ended_at IS NULL").fetchone() == (0,)
    assert dba.execute("SELECT current_load FROM workers").fetchone() == (0,)


@pytest.mark.parametrize(
    ("who", "said"),
    [("agent-1", {}), ("agent-2", {"worker": "agent-1"}), ("agent-2", {"worker_id": "agent-1"})],
)
def test_authority_8_whoever_holds_a_claim_speaks_for_no_other_worker(
    runtime: Runtime, client: Client, project: str, dba: Any, engine: Any, who: str, said: dict[str, str]
) -> None:
    (task,) = Site(client, project).queue(1, kind="agent")
    other, _ = agent(runtime, "agent-1")
    holder, secret = agent(runtime, "agent-2")
    ((_, token),) = engine.execute(TAKEN, (holder, secret, task)).fetchall()
    data = {"worker_id": str(holder), "capabilities": [], **said}
    data = {name: str(other) if name == "worker_id" and value == "agent-1" else value for name, value in data.items()}
    with pytest.raises(NotYours, match="worker agent-2 has the claim, not"):
        client.fire(task, "worker_started", by=who, data=data, proof=f"claim:{token}")
    client.fire(task, "worker_started", by="agent-2", data={**data, "worker_id": str(holder), "worker": "agent-2"},
                proof=f"claim:{token}")  # fmt: skip
    drain_all(runtime)
    assert dba.execute("SELECT state, worker_id FROM tasks").fetchone() == ("running", holder)


def _run(dba: Any, task: UUID) -> UUID:
    (found,) = dba.execute("SELECT run_id FROM tasks WHERE task_id = %s", (task,)).fetchone()
    made: UUID = found
    return made


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE interlock.limits SET at_once = 1000",
        "UPDATE interlock.limits SET name = 'b'",
        "DELETE FROM interlock.limits",
        "INSERT INTO interlock.limits (limit_id, project, kind, name, at_once)"
        " SELECT gen_random_uuid(), project, 'key', 'b', 1 FROM interlock.limits",
        "UPDATE interlock.tasks SET limit_key = NULL",
        "UPDATE interlock.effects SET limit_key = 'b'",
    ],
)
def test_limit_1_no_limit_changes_without_an_event_nor_what_it_counts(
    runtime: Runtime, client: Client, project: str, dba: Any, engine: Any, statement: str
) -> None:
    grant(client, "olga")
    Site(client, project).queue(1, kind="agent", limit_key="a")
    dba.execute(
        "INSERT INTO effects (id, workflow_id, version, name, status, limit_key)"
        " SELECT gen_random_uuid(), task_id, 1, 'notice', 'pending', 'a' FROM tasks"
    )
    set_limit(runtime, LimitedName("key", "a"), OverrideOrder("olga", "one server"), at_once_most=1)
    before = [dba.execute(f"SELECT * FROM {table}").fetchall() for table in ("limits", "tasks", "effects")]
    with pytest.raises((CheckViolation, RestrictViolation), match=r"not what its history says|cannot change"):
        engine.execute(statement)
    assert [dba.execute(f"SELECT * FROM {table}").fetchall() for table in ("limits", "tasks", "effects")] == before
