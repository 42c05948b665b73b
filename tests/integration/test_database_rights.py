"""What each role may do to each table and function, tried as that role; docs/security.md has the outcome."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import compress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from interlock.db.schema import CLIENT, ENGINE, OWNER, ROLES
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
FUNCTIONS = """
SELECT p.oid::regprocedure::text, p.proname, p.prosecdef,
       ARRAY(SELECT format_type(a, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS x (a, n) ORDER BY n)
  FROM pg_proc p WHERE p.pronamespace = 'interlock'::regnamespace ORDER BY 2, 1"""
# A statement for each right. None changes a row: what is refused is refused before a row is looked for.
TRIES = {
    "read": "SELECT * FROM {table} LIMIT 0",
    "add": "INSERT INTO {table} ({column}) SELECT NULL WHERE false",
    "change": "UPDATE {table} SET {column} = {column} WHERE false",
    "delete": "DELETE FROM {table} WHERE false",
    "empty": "TRUNCATE {table} CASCADE",
    "alter": "ALTER {kind} {table} RENAME TO of_mine",
    "switch its triggers off": "ALTER TABLE {table} DISABLE TRIGGER USER",
    "drop": "DROP {kind} {table} CASCADE",
    "add a trigger": "CREATE TRIGGER t AFTER INSERT ON {table} EXECUTE FUNCTION interlock.refuse()",
    "add a rule": "CREATE RULE r AS ON DELETE TO {table} DO INSTEAD NOTHING",
}
ONLY_OWNERS = ("empty", "alter", "switch its triggers off", "drop", "add a trigger", "add a rule")
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
    """What (owner, engine, client, auditor) may do to a table, in words -> the tables for which that is so."""
    found = defaultdict(list)
    for table, plain, column in dba.execute(TABLES).fetchall():
        found[tuple(_may(dba, role, table, plain, column) for role in ROLES)].append(table)
    return found


@pytest.fixture
def calls(dba: Dba) -> Mapping[tuple[bool, ...], list[str]]:
    """Whether it has its owner's rights, and whether (owner, engine, client, auditor) may call it -> the functions."""
    found = defaultdict(list)
    for _, name, definer, types in dba.execute(FUNCTIONS).fetchall():
        found[definer, *(_calls(dba, role, name, types) for role in ROLES)].append(name)
    return found


def _may(dba: Dba, role: str, table: str, plain: bool, column: str | None) -> str:
    names = {"table": sql.Identifier("interlock", table), "column": sql.Identifier(column or "none")}
    names["kind"] = sql.SQL("TABLE" if plain else "VIEW")
    may = [
        right
        for right, statement in TRIES.items()
        if (column or "{column}" not in statement)
        and _allowed(dba, role, sql.SQL(statement).format(**names), or_fails=plain)
    ]
    return "everything" if len(may) == len(TRIES) else ", ".join(may)


def _calls(dba: Dba, role: str, name: str, types: list[str]) -> bool:
    """Whether the role may call the function, tried with NULLs; a constant NULL would spare PostgreSQL the call."""
    given = [sql.SQL(f"NULL::{each} AS a{number}") for number, each in enumerate(types)]
    call = sql.SQL("SELECT {}({}) FROM (SELECT {} OFFSET 0) AS given").format(
        sql.Identifier("interlock", name),
        sql.SQL(", ").join(sql.Identifier("given", f"a{number}") for number in range(len(types))),
        sql.SQL(", ").join(given),
    )
    try:
        with dba.transaction(force_rollback=True):
            dba.execute(sql.SQL("SET LOCAL SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
            dba.execute(call)
    except errors.InsufficientPrivilege as refused:
        return f"permission denied for function {name}" not in str(refused)
    except psycopg.Error:
        return True  # it was called, and failed
    return True


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


def _printed(kind: str, rows: Iterable[tuple[Iterable[str], Iterable[str]]]) -> str:
    return f"| {kind} | owner | engine | client | auditor |\n|---|---|---|---|---|\n" + "".join(
        f"| {', '.join(f'`{each}`' for each in names)} | {' | '.join(each or 'nothing' for each in may)} |\n"
        for names, may in rows
    )


def _largest_first(of: Mapping[Any, list[str]]) -> list[tuple[Any, list[str]]]:
    return sorted(of.items(), key=lambda row: (-len(row[1]), row[1]))


def test_each_role_may_do_what_the_page_says(rights: Mapping[tuple[str, ...], list[str]]) -> None:
    printed = _printed("tables", [(tables, may) for may, tables in _largest_first(rights)])
    assert printed in SECURITY.read_text(), printed


def test_each_role_calls_what_the_page_says(dba: Dba, calls: Mapping[tuple[bool, ...], list[str]]) -> None:
    by_size = _largest_first(calls)
    by_size[0] = by_size[0][0], ["all others"]  # they run with the rights of who calls them
    assert not by_size[0][0][0]
    printed = _printed("functions", [(names, ("call" if each else "" for each in may)) for (_, *may), names in by_size])
    assert printed in SECURITY.read_text(), printed
    granted = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) AND has_function_privilege(oid, %s, 'EXECUTE')"
    for whole, name, _, _ in dba.execute(FUNCTIONS).fetchall():
        tried = next({*compress(ROLES, may)} for (_, *may), names in calls.items() if name in names)
        assert {who for (who,) in dba.execute(granted, (list(ROLES), whole)).fetchall()} == tried, name


def test_nobody_but_the_owner_empties_alters_or_drops_anything(rights: Mapping[tuple[str, ...], list[str]]) -> None:
    assert sum(map(len, rights.values())) > 50
    for may in rights:
        assert not [each for each in may[1:] if re.search("|".join(ONLY_OWNERS), each)]
        assert may[2] == may[3]
        assert may[2] in ("read", ""), "clients and auditors write no table"


def test_each_role_goes_around_them_as_a_whole_as_the_page_says(dba: Dba) -> None:
    tried = {
        statement: [_allowed(dba, role, sql.SQL(statement)) for role in ROLES]  # type: ignore[arg-type]
        for statement in WHOLES
    }
    assert not any(each for may in tried.values() for each in may[1:])
    said = {True: "may", False: "refused"}
    printed = _printed("statement", [([statement], (said[each] for each in may)) for statement, may in tried.items()])
    assert printed in SECURITY.read_text(), printed


def test_nobody_but_its_role_calls_a_function_with_the_owners_rights(
    dba: Dba, calls: Mapping[tuple[bool, ...], list[str]]
) -> None:
    definers = {
        name: {*compress(ROLES, may)} - {OWNER} for (definer, *may), names in calls.items() if definer for name in names
    }
    doors = {
        name: {ENGINE, CLIENT} for name in ("accept_all", "accept_one", "create_all", "link_all", "record_refusal")
    }
    called_by_triggers = {"narrows": set(), "note_pruned": set(), "note_pruned_effects": set()}
    assert definers == doors | {"archive": {ENGINE}, "take_claim": {ENGINE}} | called_by_triggers
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
