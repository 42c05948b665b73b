"""`interlock migrate` and `up` on a database of somebody's own: what is said, asked and left alone."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from interlock.db import migrate
from interlock.db.audit import schema_state
from interlock.db.connection import make_engine
from interlock.supervisor.embedded import CELERY_PARTS
from interlock.supervisor.environment import environment
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from tests import databases
from tests.cli.terminal import COMMAND, forked

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def own_database(servers: Servers) -> Iterator[str]:
    """An application's database, with a table of its own and nothing of ours."""
    with databases.copy_of(servers, "template1") as url:
        with psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as dba:
            dba.execute("CREATE TABLE public.tasks (words text)")
        yield url


@pytest.fixture
def own(own_database: str, servers: Servers, tmp_path: Path) -> Settings:
    owner_url = databases.as_owner(servers, own_database)
    return Settings(
        home=tmp_path / "home", database_url=own_database, owner_url=owner_url, broker_url=servers.broker_url
    )


def interlock(own: Settings, *words: str, typed: str | None = None) -> tuple[int, str]:
    """The exit code and all that was said; `typed` at a terminal, else standard input is none."""
    variables = environment(own) | {"COLUMNS": "200"}
    if typed is None:
        done = forked(words, variables)
        return done.code, done.said
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", COMMAND, *words],
            env=variables,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            os.write(ours, typed.encode())
            output, _ = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, output


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'")
        return {name for (name,) in rows.fetchall()}


def test_a_database_that_holds_more_is_migrated_once_somebody_agreed(own: Settings, own_database: str) -> None:
    code, said = interlock(own, "migrate")
    assert (code, schemas(own_database)) == (2, {"public"})
    assert "is to be created at revision 0001" in said
    assert "also has other schemas, which are not touched: public (1 table or view). Give --yes" in said
    code, said = interlock(own, "migrate", typed="n\n")
    assert (code, schemas(own_database)) == (1, {"public"})
    assert "Continue?" in said
    code, said = interlock(own, "migrate", typed="y\n")
    assert (code, schemas(own_database)) == (0, {"public", "interlock"})
    assert "schema interlock at revision 0001" in said
    assert interlock(own, "migrate")[0] == 0  # nothing is due: nobody is asked


def test_up_never_migrates_a_database_of_somebody_s_own(own: Settings, own_database: str) -> None:
    code, said = interlock(own, "up", "--detach", "--without", ",".join(CELERY_PARTS))
    assert code == 1
    assert "is to be created at revision 0001. Nothing was done: run `interlock migrate`" in said
    assert schemas(own_database) == {"public"}


def test_a_schema_that_a_newer_one_made_is_left_alone(own: Settings, own_database: str) -> None:
    assert interlock(own, "migrate", "--yes")[0] == 0
    with psycopg.connect(own.owner_url or "") as connection:
        connection.execute("UPDATE interlock.alembic_version SET version_num = '9999'")
    code, said = interlock(own, "migrate", "--yes")
    assert code == 1
    assert "is at revision 9999, which this Interlock does not know (it knows 0001)" in said


def test_what_was_changed_in_the_schema_stays_a_finding_until_somebody_records_it(
    own: Settings, own_database: str
) -> None:
    """Also over restarts of `interlock up` and of Compose, which migrate each time."""
    name = "function interlock.lets_through(breaker uuid)"
    assert interlock(own, "migrate", "--yes")[0] == 0
    with psycopg.connect(own.owner_url or "") as owner:
        owner.execute(f"CREATE OR REPLACE {name} RETURNS boolean LANGUAGE sql AS 'SELECT true'")  # type: ignore[call-overload]
    code, said = interlock(own, "migrate", "--yes")
    assert (code, "recorded as it is now" in said) == (0, False)
    (changed,) = differing(own)
    code, said = interlock(own, "migrate", "--check", "--record")
    assert (code, f"is not as recorded: {changed}. Nothing was done" in said) == (1, True)
    code, said = interlock(own, "migrate", "--record")
    assert (code, "is to be recorded as it is now. Give --yes" in said) == (2, True)
    assert differing(own) == [changed]
    done = forked(("migrate", "--yes", "--record", "--json"), environment(own))
    assert (done.code, done.json["changed"]) == (0, [changed])
    assert differing(own) == []


def test_a_migration_and_its_record_are_one_commit(
    own: Settings, own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, one that is broken off between the two would be recorded by none of its repetitions."""

    def broken_off(_: object) -> None:
        raise KeyboardInterrupt

    with owner_engine(own) as engine, monkeypatch.context() as patched:
        patched.setattr(schema_state, "record", broken_off)
        with pytest.raises(KeyboardInterrupt):
            migrate.upgrade(engine)
    assert schemas(own_database) == {"public"}
    assert interlock(own, "migrate", "--yes")[0] == 0
    assert differing(own) == []


def test_a_migration_names_what_somebody_had_changed_before_it(
    own: Settings, own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interlock(own, "migrate", "--yes")[0] == 0
    with psycopg.connect(own.owner_url or "") as owner:
        owner.execute("CREATE INDEX mine ON interlock.schema_states (login)")
    (changed,) = differing(own)
    monkeypatch.setattr(migrate, "revisions", lambda: ["0002", "0001"])
    monkeypatch.setattr(migrate, "_apply", lambda _: None)  # a migration that changes nothing itself
    with owner_engine(own) as engine:
        assert migrate.upgrade(engine) == [changed]
    assert differing(own) == []


@contextmanager
def owner_engine(own: Settings) -> Iterator[Engine]:
    engine = make_engine(own.resolved_owner_url())
    try:
        yield engine
    finally:
        engine.dispose()


def differing(own: Settings) -> list[str]:
    """The objects that are not as recorded."""
    with owner_engine(own) as engine, engine.connect() as connection:
        return [each for each, _ in schema_state.changed(connection)]


def test_the_revisions_are_those_that_alembic_finds() -> None:
    assert migrate.revisions() == [each.revision for each in ScriptDirectory(str(migrate.MIGRATIONS)).walk_revisions()]


def test_where_nothing_is_due_alembic_is_not_imported(own: Settings) -> None:
    program = "import sys; from interlock.cli.main import main; sys.argv[1:] = ['migrate', '--yes']\ntry: main()\n"
    program += "finally: print('alembic' in sys.modules)"
    for imported in ("True", "False"):
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment(own), capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == imported
