"""What each role may do to each table and function, tried as that role; docs/security.md has the outcome."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from interlock.db.schema import AUDITOR, CLIENT, ENGINE, OWNER, ROLES
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
TABLES = """
SELECT c.relname, c.relkind = 'r', min(a.attname) FROM pg_class c
  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                              AND a.attidentity = '' AND a.attname <> 'token'
 WHERE c.relnamespace = 'interlock'::regnamespace AND c.relkind IN ('r', 'v') GROUP BY 1, 2 ORDER BY 1"""
DEFINERS = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'interlock'::regnamespace AND prosecdef"
# A statement for each right. None changes a row: what is refused is refused before a row is looked for.
TRIES = {
    "read": "SELECT * FROM {table} LIMIT 0",
    "add": "INSERT INTO {table} ({column}) SELECT NULL WHERE false",
    "change": "UPDATE {table} SET {column} = {column} WHERE false",
    "delete": "DELETE FROM {table} WHERE false",
    "empty": "TRUNCATE {table} CASCADE",
    "alter": "ALTER TABLE {table} DISABLE TRIGGER USER",
    "drop": "DROP TABLE {table}",
    "add a trigger": "CREATE TRIGGER t AFTER INSERT ON {table} EXECUTE FUNCTION interlock.refuse()",
    "add a rule": "CREATE RULE r AS ON DELETE TO {table} DO INSTEAD NOTHING",
}
ONLY_OWNERS = ("empty", "alter", "drop", "add a trigger", "add a rule")
# What would go around triggers and grants as a whole.
WHOLES = (
    "SET session_replication_role = replica",
    "CREATE FUNCTION interlock.of_mine() RETURNS integer LANGUAGE sql RETURN 1",
    "CREATE OR REPLACE FUNCTION interlock.fixed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "ALTER FUNCTION interlock.accept() OWNER TO CURRENT_USER",
    "CREATE TABLE interlock.of_mine ()",
    "ALTER SCHEMA interlock RENAME TO of_mine",
    "DROP SCHEMA interlock CASCADE",
    "SET ROLE interlock_owner",
    "GRANT interlock_engine TO interlock_client",
)


@pytest.fixture
def rights(dba: Dba) -> Mapping[tuple[str, ...], list[str]]:
    """What (engine, client, auditor) may do to a table, in words -> the tables for which that is so."""
    found = defaultdict(list)
    for table, plain, column in dba.execute(TABLES).fetchall():
        found[tuple(_may(dba, role, table, plain, column) for role in (ENGINE, CLIENT, AUDITOR))].append(table)
    return found


def _may(dba: Dba, role: str, table: str, plain: bool, column: str | None) -> str:
    names = {"table": sql.Identifier("interlock", table), "column": sql.Identifier(column or "none")}
    tries = {right: sql.SQL(statement).format(**names) for right, statement in TRIES.items()}
    return ", ".join(
        right
        for right, statement in tries.items()
        if (column or "{column}" not in TRIES[right]) and _allowed(dba, role, statement, or_fails=plain)
    )


def _allowed(dba: Dba, role: str, statement: Any, *, or_fails: bool = True) -> bool:
    """Whether the role may run the statement, which is rolled back; `or_fails`: also if it fails for another reason."""
    try:
        with dba.transaction(force_rollback=True):
            dba.execute(sql.SQL("SET LOCAL SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
            dba.execute(statement)
    except errors.InsufficientPrivilege:
        return False
    except psycopg.Error:
        return or_fails
    return True


def test_each_role_may_do_what_the_page_says(rights: Mapping[tuple[str, ...], list[str]]) -> None:
    printed = "| tables | engine | client | auditor |\n|---|---|---|---|\n" + "".join(
        f"| {', '.join(f'`{each}`' for each in tables)} | {' | '.join(each or 'nothing' for each in may)} |\n"
        for may, tables in sorted(rights.items(), key=lambda row: (-len(row[1]), row[1]))
    )
    assert printed in SECURITY.read_text(), printed


def test_nobody_but_the_owner_empties_alters_or_drops_anything(rights: Mapping[tuple[str, ...], list[str]]) -> None:
    assert sum(map(len, rights.values())) > 50
    for may in rights:
        assert not [each for each in may if re.search("|".join(ONLY_OWNERS), each)]
        assert may[1] == may[2]
        assert may[1] in ("read", ""), "clients and auditors write no table"


@pytest.mark.parametrize("role", [ENGINE, CLIENT, AUDITOR])
@pytest.mark.parametrize("statement", WHOLES)
def test_nobody_goes_around_them_as_a_whole(dba: Dba, role: str, statement: str) -> None:
    assert not _allowed(dba, role, sql.SQL(statement))  # type: ignore[arg-type]


def test_nobody_but_its_role_calls_a_function_with_the_owners_rights(dba: Dba) -> None:
    named = [name for (name,) in dba.execute(DEFINERS).fetchall()]
    question = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) AND has_function_privilege(oid, %s, 'EXECUTE')"
    may = {
        name.partition("(")[0].rpartition(".")[2]: {
            who for (who,) in dba.execute(question, (list(ROLES), name)).fetchall()
        }
        - {OWNER}
        for name in named
    }
    doors = {
        name: {ENGINE, CLIENT} for name in ("accept_all", "accept_one", "create_all", "link_all", "record_refusal")
    }
    called_by_triggers = {"narrows": set(), "note_pruned": set(), "note_pruned_effects": set()}
    assert may == doors | {"archive": {ENGINE}, "take_claim": {ENGINE}} | called_by_triggers
    paths = "SELECT proconfig FROM pg_proc WHERE pronamespace = 'interlock'::regnamespace AND prosecdef"
    assert {path[0] for (path,) in dba.execute(paths).fetchall()} == {"search_path=pg_catalog, pg_temp"}


def test_everybody_may_do_nothing(dba: Dba, servers: Servers, database_url: str) -> None:
    dba.execute("DROP ROLE IF EXISTS nobody_of_ours; CREATE ROLE nobody_of_ours LOGIN PASSWORD 'x'")
    try:
        address = f"postgresql://nobody_of_ours:x@{database_url.partition('@')[2]}"
        with psycopg.connect(address, autocommit=True) as nobody:
            for statement in ("SELECT * FROM interlock.workflow_instances", "SELECT interlock.accept_all('[]')"):
                with pytest.raises(errors.InsufficientPrivilege, match="schema interlock"):
                    nobody.execute(statement)  # type: ignore[call-overload]
    finally:
        dba.execute("DROP ROLE nobody_of_ours")


def test_an_auditor_verifies(servers: Servers, database_url: str, client: Client, project: str) -> None:
    client.create("story", "S-1", project=project)
    address = databases.beside(servers.auditor_url, database_url.rpartition("/")[2])
    auditor = Runtime(
        Settings(home=client.runtime.settings.home, database_url=address, broker_url="redis://127.0.0.1:1")
    )
    try:
        verdict = verify(auditor)
        assert verdict.ok
        assert verdict.instances == 1
    finally:
        auditor.close()
