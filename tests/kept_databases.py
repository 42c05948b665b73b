"""Databases that tests use one after another: each finds what a new copy of its template holds, and nothing more.

To copy a database and to drop it takes 36 ms of CPU time, and what a new connection reads and plans for its first
moves 13 ms more; to take everything out again that a test wrote takes 5 ms, and to put back what it changed or deleted
a few more. A database whose catalogue a test changed is dropped.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import event

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.waiting import eventually

KEPT = 3  # databases of one process: few templates are in use at a time
USES = 50  # what is deleted stays in files and indexes: after some hundred, a test may take three times as long
POOLS: Mapping[str, str] = {  # of a runtime; what they depend on
    "database": "resolved_database_url",
    "statements": "resolved_database_url",
    "owned": "resolved_owner_url",
}

# Makes `pg_temp.emptied`: it deletes what was written from now on, and says whether all is there that was there before;
# and `pg_temp.put_back`: it writes the tables anew of which something is missing.
REMEMBER = r"""
SET session_replication_role = replica;
SET synchronous_commit = off;
SET lock_timeout = '5s';
CREATE TEMP TABLE passed AS
    SELECT p.oid AS id, p.prosrc AS body, bool_or(tgtype & 8 <> 0) AS deletes
      FROM pg_proc p JOIN pg_trigger t ON tgfoid = p.oid
     WHERE tgtype & (4 | 8) <> 0 AND tgenabled = 'A' AND NOT tgisinternal GROUP BY p.oid;
ANALYZE passed;
DO $$
DECLARE
    each   record;
    rows   bigint;
    steps  text := '';
    whole  text := 'true';
    anew   text := '';
    -- Our triggers also fire for a superuser who deletes, so for one transaction they are made to let that pass.
    bodies text := 'UPDATE pg_proc SET prosrc = %s FROM pg_temp.passed d WHERE oid = d.id AND d.deletes;';
BEGIN
    PERFORM set_config('kept.until', pg_current_xact_id()::xid::text, false);
    FOR each IN SELECT format('%I.%I', n.nspname, c.relname) AS name, 'kept_' || c.oid AS copy,
                       (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
                         WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') AS columns
                  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' LOOP
        EXECUTE format('SELECT count(*) FROM %s', each.name) INTO rows;
        IF rows = 0 THEN
            steps := steps || format('DELETE FROM %s;', each.name);
        ELSE
            steps := steps || format('DELETE FROM %s WHERE age(xmin) < age(kept_until);', each.name);
            whole := whole || format(' AND (SELECT count(*) = %s FROM %s)', rows, each.name);
            EXECUTE format('CREATE TEMP TABLE %s AS SELECT %s FROM %s', each.copy, each.columns, each.name);
            anew := anew || format('IF (SELECT count(*) <> %s FROM %s) THEN DELETE FROM %2$s; INSERT INTO %2$s (%3$s) '
                                   'OVERRIDING SYSTEM VALUE SELECT %3$s FROM pg_temp.%4$s; END IF;',
                                   rows, each.name, each.columns, each.copy);
        END IF;
    END LOOP;
    FOR each IN SELECT format('%I.%I', schemaname, sequencename) AS name, last_value, start_value FROM pg_sequences LOOP
        steps := steps || format('PERFORM setval(%L, %s, %L);', each.name, coalesce(each.last_value, each.start_value),
                                 each.last_value IS NOT NULL);
    END LOOP;
    EXECUTE format('CREATE FUNCTION pg_temp.emptied() RETURNS boolean LANGUAGE plpgsql AS %L',
                   'DECLARE kept_until xid := current_setting(''kept.until''); BEGIN '
                   || format(bodies, quote_literal('BEGIN RETURN OLD; END')) || steps || format(bodies, 'd.body')
                   || ' RETURN ' || whole || '; END');
    EXECUTE format('CREATE FUNCTION pg_temp.put_back() RETURNS void LANGUAGE plpgsql AS %L',
                   E'#variable_conflict use_column\nBEGIN ' || anew ||
                   ' PERFORM set_config(''kept.until'', pg_current_xact_id()::xid::text, false); END');
END $$;
"""

# Where something is to be put back, inserts must pass too.
LET_BOTH = """
UPDATE pg_proc SET prosrc = 'BEGIN IF TG_OP = ''DELETE'' THEN RETURN OLD; END IF; RETURN NEW; END'
  FROM pg_temp.passed d WHERE oid = d.id"""
LET_NEITHER = "UPDATE pg_proc SET prosrc = d.body FROM pg_temp.passed d WHERE oid = d.id AND prosrc <> d.body"

# What was last changed in the catalogue: tables, columns, triggers, functions, views, rights. The schemas of temporary
# objects stay when their sessions are gone. Comparing ages is twice as fast as reading numbers as text.
CHANGED = "(SELECT (count(*), age('3'::xid) - min(age(xmin)))::text FROM {})"
CATALOGUE = "SELECT " + ", ".join(
    CHANGED.format(table)
    for table in (
        *("pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_rewrite", "pg_type"),
        *("pg_policy", "pg_default_acl", "pg_extension", "pg_event_trigger", "pg_db_role_setting"),
        "pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'",
    )
)
FUNCTIONS = f"SELECT {CHANGED.format('pg_proc')}"

# Tests switch triggers off and on again, which is no change; to read what they all are takes some milliseconds.
TRIGGERS_CHANGED = f"SELECT {CHANGED.format('pg_trigger')}"
TRIGGERS = "SELECT md5(string_agg(t::text, '' ORDER BY oid)) FROM pg_trigger t"

# What makes a session a new one, but for what it has prepared and planned.
ANEW = """
RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();
DISCARD TEMP; DISCARD SEQUENCES"""

# Whoever else is connected, told to end: PostgreSQL's own wait for that fails if another user's process gets the pid.
# And who waits for a statement and holds no lock, as some do until a session ends.
OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
   AND pid <> pg_backend_pid() AND NOT pid = ANY (%s)
"""
IDLE = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'
EXCEPT SELECT pid FROM pg_locks WHERE database IS NOT NULL
"""


class KeptDatabase:
    """A copy of a database, with connections that stay open between tests.

    Attributes:
        url: for the engine's login.
    """

    def __init__(self, url: str, lender: Runtime, superuser: "psycopg.Connection[Any]") -> None:
        self.url, self._lender, self._superuser = url, lender, superuser
        self._connections: list[psycopg.Connection[Any]] = []
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        for pool in POOLS:
            event.listen(getattr(lender, pool), "connect", lambda made, _: self._connections.append(made))
        superuser.execute(REMEMBER)
        self._catalogue, self._functions = self._one(CATALOGUE), self._one(FUNCTIONS)
        self._triggers_changed, self._triggers = self._one(TRIGGERS_CHANGED), self._one(TRIGGERS)
        self._uses = 0

    @contextmanager
    def lent(self, runtime: Runtime) -> Iterator[None]:
        """Let a runtime on this database use the connections, for the duration of a block."""
        mine, its = self._lender.settings, runtime.settings
        pools = [pool for pool, url in POOLS.items() if getattr(its, url)() == getattr(mine, url)()]
        for pool in pools:  # an engine of its own over the same pool: what it is told to listen to ends with it
            vars(runtime)[pool] = getattr(self._lender, pool).execution_options()
        try:
            yield
        finally:
            for pool in pools:  # or it would close them
                vars(runtime).pop(pool, None)

    def session(self, url: str) -> "psycopg.Connection[Any]":
        """A session of the login that a URL names, with autocommit and all as in a new one."""
        if url not in self._sessions:
            self._sessions[url] = psycopg.connect(url, autocommit=True)
            self._connections.append(self._sessions[url])
        return self._sessions[url]

    def close(self) -> None:
        """Close all sessions."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def empty(self) -> bool:
        """Make it again what it was; returns whether it can be used again."""
        self._uses += 1
        for url, session in [*self._sessions.items()]:
            if session.info.transaction_status is not TransactionStatus.IDLE:
                self._sessions.pop(url).close()
        self._connections = [each for each in self._connections if not each.closed]
        mine = {each.info.backend_pid for each in self._connections}
        try:
            eventually(
                lambda: self._superuser.closed or not self._superuser.execute(OTHERS, [[*mine]]).rowcount, every=0.002
            )
            for session in self._sessions.values():
                session.execute(ANEW)
            idle = {pid for (pid,) in self._superuser.execute(IDLE)}
            if self._uses == USES or not mine <= idle or self._is_another():
                return False
            if self._one("SELECT pg_temp.emptied()") != (True,):
                with self._superuser.transaction():
                    self._superuser.execute(LET_BOTH)
                    self._superuser.execute("SELECT pg_temp.put_back()")
                    self._superuser.execute(LET_NEITHER)
            self._functions = self._one(FUNCTIONS)
        except psycopg.OperationalError:  # a test ended this connection too
            return False
        return True

    def _is_another(self) -> bool:
        """Whether something in the catalogue was changed and is not what it was."""
        if (self._one(CATALOGUE), self._one(FUNCTIONS)) != (self._catalogue, self._functions):
            return True
        before, self._triggers_changed = self._triggers_changed, self._one(TRIGGERS_CHANGED)
        return before != self._triggers_changed and self._one(TRIGGERS) != self._triggers

    def _one(self, query: str) -> Any:
        return self._superuser.execute(query.encode()).fetchone()


class KeptDatabases:
    """The databases of one process that no test uses now."""

    def __init__(self, servers: Servers, home: Path) -> None:
        self._servers, self._home = servers, home
        self._free: list[tuple[str, KeptDatabase, ExitStack]] = []

    @contextmanager
    def lent(self, template: str) -> Iterator[KeptDatabase]:
        """A database as a new copy of `template` would be, for the duration of a block."""
        found = next((each for each in self._free if each[0] == template), None)
        if found:
            self._free.remove(found)
        else:
            found = self._made(template)
        _, database, opened = found
        with opened:
            yield database
            if database.empty():
                self._free.append((template, database, opened.pop_all()))
        self._drop(KEPT)

    def close(self) -> None:
        """Drop all."""
        self._drop(0)

    def _drop(self, most: int) -> None:
        while len(self._free) > most:
            _, _, opened = self._free.pop(0)
            opened.close()

    def _made(self, template: str) -> tuple[str, KeptDatabase, ExitStack]:
        with ExitStack() as opened:
            url = opened.enter_context(databases.copy_of(self._servers, template))
            owner_url = databases.as_owner(self._servers, url)
            addresses = {"database_url": url, "owner_url": owner_url, "broker_url": self._servers.broker_url}
            lender = Runtime(Settings(home=self._home, **addresses))
            opened.callback(lender.close)
            as_superuser = databases.as_superuser(self._servers, url)
            superuser = opened.enter_context(psycopg.connect(as_superuser, autocommit=True))
            database = KeptDatabase(url, lender, superuser)
            opened.callback(database.close)
            return template, database, opened.pop_all()
