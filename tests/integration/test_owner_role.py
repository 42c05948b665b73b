"""The role that everything logs in as owns the schema, and may do nothing outside of its database."""

import re
import subprocess
from collections.abc import Callable, Iterator
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
from interlock.workers.operations.checks.database import check_database
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases

pytestmark = pytest.mark.integration
COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture(scope="module")
def database_url(servers: Servers, template: str) -> Iterator[str]:
    """One for all: what is granted is taken back, everything else is refused."""
    with databases.copy_of(servers, template) as url:
        yield url


@pytest.fixture(scope="module")
def owner(database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Raw SQL under the login that workers have."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def dba(servers: Servers, database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Raw SQL of a superuser there."""
    with psycopg.connect(databases.as_superuser(servers, database_url), autocommit=True) as connection:
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


@pytest.fixture
def judged(servers: Servers) -> Callable[[str], Finding]:
    """What `doctor` says of a login, by the URL of a database."""

    def found(url: str) -> Finding:
        runtime = Runtime(Settings(database_url=url, broker_url=servers.broker_url))
        try:
            return next(each for each in check_database(runtime) if each.check == "role")
        finally:
            runtime.close()

    return found


@pytest.fixture
def another(database_url: str, dba: Any) -> Iterator[tuple[str, str]]:
    """A login that is a member of nothing, and its URL."""
    name = f"another_{token_hex(4)}"
    dba.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    dba.execute(f"GRANT CONNECT ON DATABASE {database_url.rpartition('/')[2]} TO {name}")
    yield name, f"postgresql://{name}:x@{database_url.partition('@')[2]}"
    dba.execute(f"REASSIGN OWNED BY {name} TO interlock_owner")
    dba.execute(f"DROP OWNED BY {name}")
    dba.execute(f"DROP ROLE {name}")


def test_doctor_tells_a_login_with_all_rights_from_one_without(
    servers: Servers, database_url: str, dba: Any, judged: Callable[[str], Finding], another: tuple[str, str]
) -> None:
    name, address = another
    assert judged(database_url).message == "interlock_engine can do what interlock_engine may, and nothing beyond that"
    assert judged(databases.as_client(servers, database_url)).level == "ok"
    assert "switch its protections off" in judged(databases.as_owner(servers, database_url)).message
    dba.execute(f"ALTER ROLE {name} SUPERUSER")
    assert "a superuser" in judged(address).message
    dba.execute(f"ALTER ROLE {name} NOSUPERUSER")
    for role in ("interlock_auditor", "interlock_client", "interlock_engine"):
        dba.execute(f"GRANT {role} TO {name}")
        assert judged(address).message == f"{name} can do what {role} may, and nothing beyond that"


@pytest.mark.parametrize("part", ["interlock_engine", "interlock_client", "interlock_auditor"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("GRANT TRUNCATE ON interlock.anchors TO {name}", "use tables (anchors: TRUNCATE)"),
        ("GRANT TRUNCATE ON interlock.anchors TO PUBLIC", "use tables (anchors: TRUNCATE)"),
        ("GRANT UPDATE (number) ON interlock.anchors TO {name}", "use tables (anchors: UPDATE (number))"),
        ("GRANT TRUNCATE ON interlock.plans TO {group}; GRANT {group} TO {name}", "use tables (plans: TRUNCATE)"),
        (
            "GRANT TRUNCATE ON interlock.plans TO {group}; GRANT {group} TO {name}; ALTER ROLE {name} NOINHERIT",
            "use tables (plans: TRUNCATE)",
        ),
        ("GRANT pg_write_all_data TO {name}", "what members of pg_write_all_data may; "),
        ("GRANT pg_write_all_data TO {name}", "more)"),
        ("GRANT pg_execute_server_program TO {group}; GRANT {group} TO {name}", "members of pg_execute_server_program"),
        ("GRANT EXECUTE ON FUNCTION interlock.note_pruned() TO {name}", "call note_pruned"),
        ("GRANT EXECUTE ON FUNCTION interlock.note_pruned() TO PUBLIC", "call note_pruned"),
        ("GRANT UPDATE ON SEQUENCE interlock.trigger_requests_seq_seq TO {name}", "sequences (trigger_requests_seq"),
        ("GRANT CREATE ON SCHEMA interlock TO {group}; GRANT {group} TO {name}", "create objects in the schema"),
        ("ALTER TABLE interlock.sweeps OWNER TO {name}", "change and drop what it owns: sweeps"),
        ("ALTER FUNCTION interlock.fixed() OWNER TO {name}", "change and drop what it owns: fixed()"),
        ("GRANT SET ON PARAMETER session_replication_role TO {name}", "set session_replication_role"),
        ("GRANT interlock_client TO {name} WITH ADMIN OPTION", "make others members of interlock_client"),
        ("GRANT interlock_owner TO {name}", "change the schema and switch its protections off"),
        ("ALTER ROLE {name} REPLICATION", "copy the whole server"),
        ("ALTER ROLE {name} BYPASSRLS", "pass by row security"),
        ("ALTER ROLE {name} CREATEROLE", "make itself a member of other roles"),
        ("ALTER ROLE {group} CREATEDB; GRANT {group} TO {name}", "create databases"),
        ("ALTER ROLE {group} SUPERUSER; GRANT {group} TO {name}", "a superuser or a member of one"),
    ],
)
def test_doctor_sees_each_right_beyond_a_logins_part(
    dba: Any, judged: Callable[[str], Finding], another: tuple[str, str], part: str, given: str, said: str
) -> None:
    name, address = another
    group = f"{name}_group"
    dba.execute(f"GRANT {part} TO {name}; CREATE ROLE {group}")
    try:
        assert judged(address).level == "ok"
        dba.execute(given.format(name=name, group=group))
        found = judged(address)
        assert (found.check, found.level) == ("role", "warn")
        assert said in found.message
    finally:
        if given.endswith("TO PUBLIC"):
            dba.execute(given.replace("GRANT", "REVOKE").replace("TO PUBLIC", "FROM PUBLIC"))
        dba.execute(f"DROP OWNED BY {group}; DROP ROLE {group}")


def test_doctor_sees_that_a_client_may_read_claims_tokens(
    dba: Any, judged: Callable[[str], Finding], another: tuple[str, str]
) -> None:
    name, address = another
    dba.execute(f"GRANT interlock_client TO {name}; GRANT SELECT ON interlock.task_claims TO {name}")
    assert judged(address).message.endswith("and also use tables (task_claims: SELECT (token))")


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
