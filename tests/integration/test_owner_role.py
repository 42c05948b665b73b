"""The role that everything logs in as owns the schema, and may do nothing outside of its database."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import errors
from psycopg.conninfo import make_conninfo

from interlock.supervisor.home import Home
from interlock.supervisor.processes import specs
from interlock.supervisor.servers import endpoints, postgres
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.operations.doctor import examine
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases

pytestmark = pytest.mark.integration
COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture
def owner(database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Raw SQL under the login that workers have."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "COPY alembic_version FROM PROGRAM 'echo'",
        "COPY alembic_version FROM '/etc/passwd'",
        "COPY alembic_version TO '/tmp/interlock-owner-wrote'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT rolpassword FROM pg_authid",
        "SELECT pg_reload_conf()",
        "ALTER SYSTEM SET archive_command = 'true'",
        "SET session_replication_role = replica",
        "SET ROLE postgres",
        "CREATE ROLE another SUPERUSER",
        "ALTER ROLE interlock_engine SUPERUSER",
        "CREATE DATABASE another",
        "CREATE FUNCTION another() RETURNS integer LANGUAGE c AS 'libc', 'getpid'",
        "LOAD '/tmp/another.so'",
    ],
)
def test_sql_under_the_workers_login_reaches_nothing_outside_of_its_database(owner: Any, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        owner.execute(statement)


def test_the_workers_login_cannot_copy_the_whole_server(database_url: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="replication"):
        psycopg.connect(make_conninfo(database_url, replication="true"))


def test_the_superusers_password_is_in_no_part_s_environment(servers: Servers, settings: Settings, dba: Any) -> None:
    assert dba.execute("SELECT current_user").fetchone() == ("postgres",)
    secret = servers.postgres_passwords[endpoints.SUPERUSER]
    told = specs.part_environment(Home(settings.home.resolve()), settings, servers)
    assert len(secret) == 32
    assert not any(secret in value for value in told.values())


def test_the_superuser_logs_in_from_this_machine_only(dba: Any) -> None:
    rules = dba.execute("SELECT type, user_name, address, auth_method, error FROM pg_hba_file_rules").fetchall()
    assert rules == [
        ("host", ["postgres"], "samehost", "scram-sha-256", None),
        ("host", ["postgres"], "samehost", "scram-sha-256", None),
        ("host", ["postgres"], "all", "reject", None),
        ("host", ["all"], "all", "scram-sha-256", None),
    ]


def test_doctor_tells_a_login_with_all_rights_from_one_without(
    runtime: Runtime, servers: Servers, database_url: str, dba: Any
) -> None:
    def found(url: str) -> Any:
        judged = Runtime(Settings(database_url=url, broker_url=servers.broker_url))
        try:
            return next(each for each in examine(judged) if each.check == "role")
        finally:
            judged.close()

    assert found(database_url).message == "interlock_engine can do what interlock_engine may, and nothing beyond that"
    assert found(databases.as_owner(servers, database_url)).level == "warn"
    name = f"another-{token_hex(4)}"
    dba.execute(f"CREATE ROLE \"{name}\" LOGIN SUPERUSER PASSWORD 'x'")
    address = f"postgresql://{name}:x@{database_url.partition('@')[2]}"
    try:
        assert "a superuser" in found(address).message
        dba.execute(f'ALTER ROLE "{name}" NOSUPERUSER')
        dba.execute(f'GRANT CONNECT ON DATABASE {database_url.rpartition("/")[2]} TO "{name}"')
        dba.execute(f'GRANT interlock_engine TO "{name}"')
        assert found(address).level == "ok"
        dba.execute(f'GRANT DELETE ON interlock.anchors TO "{name}"')
        dba.execute(f'ALTER ROLE "{name}" CREATEROLE')
        dba.execute(f'GRANT interlock_owner TO "{name}"')
        beyond = found(address)
        assert beyond.level == "warn"
        for part in ("switch its protections off", "a member of other roles", "write anchors by grants of its own"):
            assert part in beyond.message
    finally:
        dba.execute(f'DROP OWNED BY "{name}"')
        dba.execute(f'DROP ROLE "{name}"')


def test_the_role_that_compose_makes_is_no_superuser_either(servers: Servers, dba: Any) -> None:
    script = yaml.safe_load(COMPOSE.read_text())["configs"]["postgres-role"]["content"]
    name = f"compose_{token_hex(4)}"
    script = re.sub(r"\b(ROLE|DATABASE|OWNER) interlock", rf"\1 {name}", script)
    assert script.count(name) == 6
    program, url = postgres.programs() / "psql", servers.superuser_url
    passwords = {"INTERLOCK_PASSWORD": "x", "INTERLOCK_OWNER_PASSWORD": "it's"}
    try:
        command = [str(program), "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "--dbname", url]
        subprocess.run(command, input=script, text=True, env=passwords, check=True)
        owner = f"{name}_owner"
        with psycopg.connect(make_conninfo(url, user=owner, password="it's", dbname=name)) as connection:
            question = (
                "SELECT DISTINCT rolsuper, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles"
                " WHERE starts_with(rolname, %s)"
            )
            assert connection.execute(question, (name,)).fetchall() == [(False, False, False, False)]
            connection.execute("CREATE TABLE public.its_own ()")
    finally:
        dba.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for kind in ("owner", "engine", "client", "auditor"):
            dba.execute(f"DROP ROLE IF EXISTS {name}_{kind}")
