"""Budgets and brakes hold against raw SQL, many processes at once, and any isolation (BRAKE-1, BRAKE-2, BRAKE-6)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import CheckViolation, DatabaseError, InsufficientPrivilege, InvalidTransactionState

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.overrides import operators
from interlock.workers.overrides.brakes import release_brake
from interlock.workers.overrides.budgets import Budgeted, set_budget
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests import databases
from tests.driving import drain_all

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
WHY = OverrideOrder("ann", "it loops")
FIRE = "SELECT interlock.accept_one(gen_random_uuid()::text, '', %s, 'block', %s, %s, NULL)"
PROCESSES, EACH, MOST = 6, 10, 25


@pytest.fixture
def story(client: Client) -> UUID:
    made: UUID = client.create("story", "S-1", by="ann")["id"]
    return made


def connected(runtime: Runtime) -> "psycopg.Connection[Any]":
    """A connection of the engine's login."""
    url = runtime.database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(url, autocommit=True)


@pytest.fixture
def engine(runtime: Runtime) -> Iterator["psycopg.Connection[Any]"]:
    with connected(runtime) as connection:
        yield connection


@pytest.fixture
def outsider(servers: Servers, database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Raw SQL under a client's login."""
    with psycopg.connect(databases.as_client(servers, database_url), autocommit=True) as connection:
        yield connection


def budget(client: Client, kind: Any, name: str, resource: str = "triggers", most: float = 1) -> None:
    set_budget(client.runtime, Budgeted(kind, name), resource, WHY, most=most, per_seconds=1000.0)


def test_brake_2_many_processes_never_get_more_than_the_budget(
    client: Client, runtime: Runtime, story: UUID, dba: Any
) -> None:
    budget(client, "actor", "*", most=MOST)
    budget(client, "project", "", most=MOST + 10)

    def fires(number: int) -> list[str]:
        with connected(runtime) as connection:
            said = [(story, actor, "{}") for _ in range(EACH) for actor in ("ab" if number % 2 else "ba")]
            return [connection.execute(FIRE, each).fetchone()[0] for each in said]  # type: ignore[index]

    with ThreadPoolExecutor(PROCESSES) as pool:
        answers = [each for done in pool.map(fires, range(PROCESSES)) for each in done]
    assert answers.count("pending") == MOST + 10
    assert answers.count("waiting") == PROCESSES * EACH * 2 - MOST - 10
    by_actor = (
        "SELECT count(*) FROM trigger_requests WHERE status = 'pending' AND trigger = 'block' GROUP BY triggered_by"
    )
    assert all(many <= MOST for (many,) in dba.execute(by_actor).fetchall())
    assert ("project",) in dba.execute("SELECT kind FROM brakes").fetchall()


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_no_isolation_sees_neither_a_brake_nor_what_was_used_nor_who_lost_a_right(
    client: Client, runtime: Runtime, story: UUID, isolation: str, dba: Any
) -> None:
    """A transaction that began before a brake, or before an operator's grant ended, would go on as if neither were."""
    budget(client, "actor", "a")
    operators.grant(runtime, ["olga"], by="ann", reason="for a day")
    with connected(runtime) as early, connected(runtime) as other:
        early.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        early.execute("SELECT count(*) FROM interlock.budget_uses")
        assert other.execute(FIRE, (story, "a", "{}")).fetchone() == ("pending",)
        assert other.execute(FIRE, (story, "a", "{}")).fetchone() == ("waiting",)
        operators.revoke(runtime, "olga", by="ann", reason="the day is over")
        (brake,) = dba.execute("SELECT brake_id FROM brakes").fetchone()
        late = ((FIRE, (story, "a", "{}")), (FIRE.replace("'block'", "'release'"), (brake, "olga", '{"reason": "x"}')))
        for statement, said in late:
            with pytest.raises(InvalidTransactionState, match="READ COMMITTED only"), early.transaction():
                early.execute(statement, said)
    assert dba.execute("SELECT count(*) FROM brakes").fetchone() == (1,)


def test_a_brake_released_while_others_fire_holds_nothing_for_ever(
    client: Client, runtime: Runtime, story: UUID, dba: Any
) -> None:
    budget(client, "actor", "a")
    client.fire(story, "block", by="a")
    client.fire(story, "block", by="a")
    (name,) = dba.execute("SELECT entity_id FROM brakes").fetchone()
    with ThreadPoolExecutor(2) as pool, connected(runtime) as firing:
        firing.execute("BEGIN")
        assert firing.execute(FIRE, (story, "a", "{}")).fetchone() == ("waiting",)
        released = pool.submit(release_brake, runtime, name, WHY)
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        while not dba.execute(waits).fetchone()[0] and not released.done():
            pass
        firing.execute("COMMIT")
        released.result(timeout=30)
    drain_all(runtime)
    assert dba.execute("SELECT count(*) FROM trigger_requests WHERE status = 'waiting'").fetchone() == (0,)


def test_a_clients_login_is_braked_and_can_release_nothing(
    client: Client, story: UUID, dba: Any, outsider: "psycopg.Connection[Any]"
) -> None:
    budget(client, "actor", "a", "usd")
    assert outsider.execute(FIRE, (story, "a", '{"spent": {"usd": 1.5}}')).fetchone() == ("pending",)
    assert outsider.execute(FIRE, (story, "a", "{}")).fetchone() == ("waiting",)
    assert outsider.execute("SELECT kind, name, reason FROM interlock.brakes").fetchall() == [
        ("actor", "a", "actor a has used 1.5 usd of 1 in 1000 s")
    ]
    release = FIRE.replace("'block'", "'release'")
    (brake,) = dba.execute("SELECT brake_id FROM brakes").fetchone()
    for by in ("a", "ann"):
        with pytest.raises(InsufficientPrivilege):
            outsider.execute(release, (brake, by, '{"reason": "mine"}'))
    for statement in ("DELETE FROM interlock.brakes", "UPDATE interlock.trigger_requests SET status = 'pending'"):
        with pytest.raises(InsufficientPrivilege):
            outsider.execute(statement)
    assert dba.execute("SELECT count(*) FROM trigger_requests WHERE status = 'waiting'").fetchone() == (1,)
    with pytest.raises(CheckViolation, match="metadata of request"):
        outsider.execute(FIRE, (story, "b", '{"spent": {"usd": -1.5}}'))


FORGED = """
INSERT INTO interlock.workflow_instances
       (id, workflow_type, definition_version, current_state, entity_id, project, context, created_by)
SELECT gen_random_uuid(), 'brake', '1.0.0', 'reached', 'forged', project, %s::jsonb, 'mallory' FROM interlock.budgets
"""


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE interlock.budgets SET most = 1000",
        "DELETE FROM interlock.budgets",
        "INSERT INTO interlock.budgets (budget_id, project, kind, name, resource, most)"
        " SELECT gen_random_uuid(), project, 'actor', 'b', 'triggers', 1 FROM interlock.budgets",
        "DELETE FROM interlock.brakes",
        "UPDATE interlock.brakes SET name = 'b'",
        "UPDATE interlock.trigger_requests SET status = 'pending' WHERE status = 'waiting'",
        "UPDATE interlock.trigger_requests SET held_by = NULL WHERE status = 'waiting'",
        FORGED % """'{"kind": "actor", "name": "b", "reason": "mine"}'""",
        FORGED
        % """'{"kind": "instance", "name": "00000000-0000-0000-0000-000000000000", "reason": "x", "from": "a",
                      "to": "b", "times": 5, "most": 4, "per_seconds": 60}'""",
        FORGED
        % """(jsonb_build_object('kind', 'actor', 'name', 'b', 'reason', 'mine', 'budget', budget_id,
                     'used', 9, 'most', 1, 'as_of', interlock.micros(now())))""",
    ],
)
def test_brake_1_nothing_changes_without_an_event(
    client: Client, story: UUID, dba: Any, engine: "psycopg.Connection[Any]", statement: str
) -> None:
    budget(client, "actor", "a")
    for _ in range(2):
        client.fire(story, "block", by="a")
    tables = ("budgets", "brakes", "trigger_requests")
    before = [dba.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    with pytest.raises(DatabaseError, match=r"not what its history says|gives cause for|of request .* cannot be"):
        engine.execute(statement)
    assert [dba.execute(f"SELECT * FROM {table}").fetchall() for table in tables] == before
