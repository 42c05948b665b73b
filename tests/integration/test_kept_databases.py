"""A test's database that was emptied is what a new copy of its template is; one that cannot be is not used again."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.overrides.operators import revoke
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.driving import applied
from tests.kept_databases import KeptDatabase, KeptDatabases
from tests.rights import operate
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Act = Callable[["psycopg.Connection[Any]", Client], object]


class Visitor:
    """Uses kept databases as tests do."""

    def __init__(self, servers: Servers, template: str, home: Path) -> None:
        self._servers, self._template, self._home = servers, template, home
        self.kept = KeptDatabases(servers, home)

    def visit(self, act: Act) -> KeptDatabase:
        """Do something in a database, and give it back."""
        with self.kept.lent(self._template) as database, self.client_of(database) as client, self.dba(database) as dba:
            act(dba, client)
        return database

    @contextmanager
    def client_of(self, database: KeptDatabase) -> Iterator[Client]:
        addresses = {"database_url": database.url, "owner_url": databases.as_owner(self._servers, database.url)}
        settings = Settings(home=self._home, broker_url=self._servers.broker_url, **addresses)
        with closing(Runtime(settings)) as runtime, database.lent(runtime):
            yield Client(runtime)

    @contextmanager
    def dba(self, database: KeptDatabase) -> Iterator["psycopg.Connection[Any]"]:
        with psycopg.connect(databases.as_superuser(self._servers, database.url), autocommit=True) as connection:
            yield connection

    def found(self) -> tuple[Any, ...]:
        """Every row, and where each sequence is, as the next test finds them."""
        seen: list[Any] = []

        def look(dba: "psycopg.Connection[Any]", _: Client) -> None:
            sequences = dba.execute("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1").fetchall()
            seen.extend((databases.whole(dba), sequences))

        self.visit(look)
        return tuple(seen)


@pytest.fixture
def visitor(servers: Servers, template_with_ann: str, tmp_path: Path) -> Iterator[Visitor]:
    visitor = Visitor(servers, template_with_ann, tmp_path / "home")
    with closing(visitor.kept):
        yield visitor


def nothing(*_: object) -> None:
    """Do nothing."""


def work(_: object, client: Client) -> None:
    """Create instances of two types, and move one."""
    story = client.create("story", "S-1")["id"]
    applied(client, story, "design_complete")
    client.create("run", "R-1", context={"plan": "p"})


def test_the_next_test_finds_what_a_new_copy_holds(visitor: Visitor) -> None:
    before, database = visitor.found(), visitor.visit(nothing)
    during: list[Any] = []

    def work_and_look(dba: "psycopg.Connection[Any]", client: Client) -> None:
        work(dba, client)
        during.append(databases.whole(dba))

    assert visitor.visit(work_and_look) is database
    assert during != [before[0]]
    assert visitor.found() == before
    assert visitor.visit(work) is database, "the same ids and names are free again"


def test_connections_stay_open_for_the_next_test_and_those_of_others_are_ended(
    visitor: Visitor, servers: Servers
) -> None:
    pids: list[int] = []
    others: list[psycopg.Connection[Any]] = []

    def note(dba: "psycopg.Connection[Any]", client: Client) -> None:
        with client.runtime.database.connect() as connection:
            pids.append(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        others.append(psycopg.connect(databases.as_superuser(servers, f"x/{dba.info.dbname}")))
        others[-1].execute("SELECT 1")

    assert visitor.visit(note) is visitor.visit(note)
    assert pids[0] == pids[1]
    for each in others:
        with pytest.raises(psycopg.OperationalError), each:
            each.execute("SELECT 1")


def revoke_ann(_: object, client: Client) -> None:
    """Change a row of the template."""
    operate(client.runtime, "eve")
    revoke(client.runtime, "ann", by="eve", reason="a test")


def cut(dba: "psycopg.Connection[Any]", client: Client) -> None:
    """Change, delete and add rows with all protections off, and put these back."""
    work(dba, client)
    with unprotected(dba):
        dba.execute("DELETE FROM interlock.workflow_transitions WHERE seq = 1")
        dba.execute("DELETE FROM interlock.definition_states WHERE type = 'story'")
        dba.execute("UPDATE interlock.workflow_definitions SET body = '{}' WHERE type = 'run'")


@pytest.mark.parametrize("act", [revoke_ann, cut])
def test_what_was_changed_in_the_template_is_put_back(visitor: Visitor, act: Act) -> None:
    before, database = visitor.found(), visitor.visit(nothing)
    for _ in range(2):
        assert visitor.visit(act) is database
        assert visitor.found() == before
        assert visitor.visit(work) is database, "with every protection, and its definitions"
    assert visitor.found() == before


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda dba, _: dba.execute("CREATE TABLE interlock.more (x integer)"), id="a table"),
        pytest.param(lambda dba, _: dba.execute("ALTER TABLE interlock.runs DISABLE TRIGGER kept"), id="a trigger"),
        pytest.param(lambda dba, _: dba.execute("GRANT SELECT ON interlock.runs TO PUBLIC"), id="a right"),
        pytest.param(
            lambda dba, _: dba.execute(f'ALTER DATABASE "{dba.info.dbname}" SET work_mem = 65536'), id="a setting"
        ),
    ],
)
def test_what_was_changed_is_not_used_again(visitor: Visitor, act: Act) -> None:
    before, database = visitor.found(), visitor.visit(nothing)
    assert visitor.visit(act) is database
    assert visitor.visit(nothing) is not database
    assert visitor.found() == before


def test_what_somebody_still_uses_is_not_used_again(visitor: Visitor) -> None:
    before, held = visitor.found(), list[Connection]()

    def begin(_: object, client: Client) -> None:
        held.append(client.runtime.database.connect())
        held[0].exec_driver_sql("SELECT 1")

    assert visitor.visit(begin) is not visitor.visit(nothing)
    assert visitor.found() == before
    for each in held:
        each.invalidate()
        each.close()


def test_a_session_is_as_new_for_the_next_test_and_is_closed_where_it_cannot_be(
    visitor: Visitor, servers: Servers, template_with_ann: str
) -> None:
    sessions: list[psycopg.Connection[Any]] = []
    left = """SET lock_timeout = '1s'; CREATE TEMP TABLE x (); SELECT pg_advisory_lock(1); SET ROLE interlock_owner"""
    look = """
        SELECT current_setting('lock_timeout'), to_regclass('pg_temp.x'), current_user = session_user,
               (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"""
    for leaves in (left, "BEGIN", "SELECT 1"):
        with visitor.kept.lent(template_with_ann) as database:
            sessions.append(database.session(databases.as_superuser(servers, database.url)))
            assert sessions[-1].execute(look).fetchone() == ("0", None, True, 0)
            sessions[-1].execute(leaves.encode())
    assert sessions[0] is sessions[1] is not sessions[2]
