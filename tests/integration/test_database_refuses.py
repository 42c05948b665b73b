"""PostgreSQL by itself: what a DBA's raw SQL may not do, also with ordinary triggers switched off, and what it may."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import (
    CheckViolation,
    ForeignKeyViolation,
    InsufficientPrivilege,
    RaiseException,
    RestrictViolation,
    UniqueViolation,
)
from uuid_utils.compat import uuid7

from interlock.db.core.requests import partition_of
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.driving import drain_all
from tests.rights import ASKED

pytestmark = pytest.mark.integration
NO_BROKER = "redis://127.0.0.1:1/0"  # nobody answers there
ILLEGAL = (CheckViolation, ForeignKeyViolation, RestrictViolation)

MOVE = f"""
WITH {ASKED}, moved AS (
    UPDATE workflow_instances SET current_state = %(to)s, version = version + 1 WHERE id = %(id)s RETURNING version
)
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger, triggered_by,
                                  request_id)
SELECT gen_random_uuid(), %(id)s, version, '1.0.0', %(from)s, %(to)s, %(trigger)s, 'dba', request_id
  FROM moved, asked"""

EVENT = f"""
WITH {ASKED}
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger, triggered_by,
                                  request_id)
SELECT gen_random_uuid(), %(id)s, %(seq)s, %(version)s, %(from)s, %(to)s, %(trigger)s, 'dba', request_id FROM asked"""

BIRTH = """
INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, version, entity_id, project,
                                created_by)
VALUES (gen_random_uuid(), %(type)s, %(definition)s, %(state)s, %(version)s, 'S-9', gen_random_uuid(), 'dba')"""


@dataclass(frozen=True)
class Raw:
    """Raw SQL against one story that stands in `design` with one event behind it."""

    connection: "psycopg.Connection[tuple[Any, ...]]"
    story: UUID

    def run(self, statement: str, **given: Any) -> "psycopg.Cursor[tuple[Any, ...]]":
        return self.connection.execute(statement, {"id": self.story} | given)  # type: ignore[call-overload,no-any-return]

    def move(self, source: str, trigger: str, dest: str) -> None:
        self.run(MOVE, **{"from": source, "to": dest, "trigger": trigger})

    def event(self, seq: int, source: str, trigger: str, dest: str, version: str = "1.0.0") -> None:
        self.run(EVENT, **{"seq": seq, "version": version, "from": source, "to": dest, "trigger": trigger})


def design_story(database_url: str) -> UUID:
    """A story that stands in `design`, made by the engine."""
    runtime = Runtime(Settings(database_url=database_url, broker_url=NO_BROKER))
    with Client(runtime) as client:
        made: UUID = client.create("story", "S-1", project=uuid7())["id"]
        client.fire(made, "design_complete", by="agent")
        assert runtime.applier.apply_partition(partition_of(made)).taken == 1
        return made


@pytest.fixture(scope="module")
def kept(servers: Servers, template: str) -> Iterator[tuple[Raw, list[Any]]]:
    """A database with such a story, for tests that must not change it, and what is in it."""
    with databases.copy_of(servers, template) as url:
        story = design_story(url)
        with psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as connection:
            yield Raw(connection, story), _everything(connection)


@pytest.fixture(params=["origin", "replica"])
def raw(request: pytest.FixtureRequest, kept: tuple[Raw, list[Any]]) -> Iterator[Raw]:
    """Raw SQL as it comes, and with everything but ENABLE ALWAYS triggers skipped; afterwards nothing has changed."""
    raw, before = kept
    raw.connection.execute(f"SET session_replication_role = {request.param}")
    yield raw
    raw.connection.rollback()
    assert _everything(raw.connection) == before


@pytest.fixture
def legal(dba: "psycopg.Connection[Any]", database_url: str) -> Raw:
    """Raw SQL that is allowed to change something."""
    return Raw(dba, design_story(database_url))


def _everything(dba: "psycopg.Connection[Any]") -> list[Any]:
    tables = ("workflow_instances", "workflow_transitions", "workflow_definitions", "definition_states")
    return [dba.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall() for table in tables]


def test_a_legal_move_with_its_history_is_accepted_and_chained(legal: Raw) -> None:
    with legal.connection.transaction():
        legal.run("UPDATE workflow_instances SET current_state = 'implementation', version = 2 WHERE id = %(id)s")
        legal.event(2, "design", "start_coding", "implementation")
    rows = legal.run(
        "SELECT seq, prev_hash, hash, event_hash(t) FROM workflow_transitions t WHERE workflow_id = %(id)s ORDER BY seq"
    ).fetchall()
    assert [row[0] for row in rows] == [1, 2]
    assert rows[1][1] == rows[0][2]
    assert all(row[2] == row[3] for row in rows)


def test_the_order_of_the_two_statements_does_not_matter(legal: Raw) -> None:
    with legal.connection.transaction():
        legal.event(2, "design", "start_coding", "implementation")
        legal.run("UPDATE workflow_instances SET current_state = 'implementation', version = 2 WHERE id = %(id)s")


def test_several_legal_moves_in_one_commit_are_accepted(legal: Raw) -> None:
    with legal.connection.transaction():
        legal.event(2, "design", "start_coding", "implementation")
        legal.event(3, "implementation", "submit_pr", "review")
        legal.run("UPDATE workflow_instances SET current_state = 'review', version = 3 WHERE id = %(id)s")


def test_the_chain_begins_with_the_birth(legal: Raw) -> None:
    rows = legal.run(
        "SELECT t.prev_hash, birth_hash(i) FROM workflow_transitions t, workflow_instances i"
        " WHERE t.workflow_id = i.id AND t.seq = 1"
    ).fetchall()
    assert len(rows) == 1
    assert rows[0][0] == rows[0][1]


@pytest.mark.parametrize(
    ("source", "trigger", "dest"),
    [
        ("design", "submit_pr", "review"),  # not from here
        ("design", "start_coding", "done"),  # not to there
        ("design", "sudo", "implementation"),  # no such trigger
        ("analysis", "design_complete", "design"),  # a legal move, but it stands elsewhere
        ("design", "start_coding", "nirvana"),  # no such state
        ("limbo", "start_coding", "implementation"),
    ],
)
def test_an_illegal_move_is_refused_with_or_without_its_history(raw: Raw, source: str, trigger: str, dest: str) -> None:
    with pytest.raises(ILLEGAL):
        raw.move(source, trigger, dest)


def test_a_move_of_another_machine_is_refused(raw: Raw) -> None:
    with pytest.raises(ILLEGAL):
        raw.move("submitted", "start_review", "reviewing")


@pytest.mark.parametrize("state", ["implementation", "done", "nirvana"])
def test_a_state_change_without_its_history_is_refused(raw: Raw, state: str) -> None:
    with pytest.raises(ILLEGAL):
        raw.run(
            "UPDATE workflow_instances SET current_state = %(to)s, version = version + 1 WHERE id = %(id)s", to=state
        )
    with pytest.raises(ILLEGAL):
        raw.run("UPDATE workflow_instances SET current_state = %(to)s WHERE id = %(id)s", to=state)


def test_a_state_change_without_its_history_is_refused_when_it_commits(raw: Raw) -> None:
    raw.run("BEGIN")
    raw.run("UPDATE workflow_instances SET current_state = 'implementation', version = 2 WHERE id = %(id)s")
    with pytest.raises(CheckViolation, match="without its history row"):  # and not before: history might follow
        raw.run("COMMIT")


def test_a_version_without_its_history_is_refused(raw: Raw) -> None:
    with pytest.raises(CheckViolation, match="without its history row"):
        raw.run("UPDATE workflow_instances SET version = version + 1 WHERE id = %(id)s")


def test_a_state_other_than_its_history_tells_is_refused(raw: Raw) -> None:
    raw.run("BEGIN")
    raw.event(2, "design", "start_coding", "implementation")
    raw.run("UPDATE workflow_instances SET current_state = 'done', version = 2 WHERE id = %(id)s")
    with pytest.raises(CheckViolation, match="without its history row"):
        raw.run("COMMIT")


def test_history_without_a_state_change_is_refused_when_it_commits(raw: Raw) -> None:
    with pytest.raises(CheckViolation, match="its state did not move"), raw.connection.transaction():
        raw.event(2, "design", "start_coding", "implementation")


@pytest.mark.parametrize("seq", [-1, 0, 3, 2_000_000_000])
def test_a_gap_in_history_is_refused(raw: Raw, seq: int) -> None:
    with pytest.raises(CheckViolation, match="no event before"):
        raw.event(seq, "design", "start_coding", "implementation")


def test_an_event_that_is_there_already_cannot_be_written_again(raw: Raw) -> None:
    with pytest.raises(UniqueViolation):
        raw.event(1, "analysis", "design_complete", "design")


def test_an_event_under_another_version_is_refused(raw: Raw) -> None:
    with pytest.raises(CheckViolation, match="illegal move"):
        raw.event(2, "design", "start_coding", "implementation", version="2.0.0")


def test_history_of_nobody_is_refused(raw: Raw) -> None:
    with pytest.raises((CheckViolation, ForeignKeyViolation)):
        Raw(raw.connection, uuid7()).event(1, "analysis", "design_complete", "design")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE workflow_transitions SET triggered_by = 'someone else'",
        "UPDATE workflow_transitions SET created_at = now() - interval '1 day'",
        "UPDATE workflow_transitions SET hash = prev_hash",
        "UPDATE workflow_transitions SET seq = seq",
        "DELETE FROM workflow_transitions",
        "TRUNCATE workflow_transitions",
        "TRUNCATE workflow_transitions CASCADE",
        "TRUNCATE workflow_instances CASCADE",
        "TRUNCATE workflow_instances, workflow_links, trigger_requests, effects CASCADE",
        "DELETE FROM workflow_instances",
        "UPDATE workflow_definitions SET checksum = repeat('0', 64)",
        """UPDATE workflow_definitions SET body = '{}'""",
        "DELETE FROM workflow_definitions",
        "TRUNCATE workflow_definitions CASCADE",
        "UPDATE definition_states SET terminal = false",
        "DELETE FROM definition_states",
        "TRUNCATE definition_states CASCADE",
        "UPDATE definition_transitions SET dest = 'done'",
        "DELETE FROM definition_transitions",
        "TRUNCATE definition_transitions",
    ],
)
def test_what_is_kept_for_ever_cannot_be_changed_or_removed(raw: Raw, statement: str) -> None:
    with pytest.raises(RestrictViolation, match="append-only"):
        raw.run(statement)
    with pytest.raises(RestrictViolation), raw.connection.transaction():
        raw.run(statement)


def test_what_has_not_ended_cannot_be_deleted(client: Client, dba: "psycopg.Connection[Any]", project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by="ann", after=timedelta(hours=1))
    client.fire(story, "design_complete", by="ann")
    drain_all(client.runtime)
    with pytest.raises(RestrictViolation, match="of trigger_requests has not ended"):
        dba.execute("DELETE FROM trigger_requests")
    deleted = dba.execute("DELETE FROM trigger_requests WHERE finished_at IS NOT NULL")
    assert deleted.rowcount == 1


def test_history_cannot_be_rewritten_by_an_upsert(raw: Raw) -> None:
    with pytest.raises((RestrictViolation, CheckViolation, InsufficientPrivilege)):
        raw.run(
            "INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger)"
            " SELECT id, workflow_id, seq, definition_version, from_state, to_state, trigger FROM workflow_transitions"
            " ON CONFLICT (id) DO UPDATE SET triggered_by = 'someone else'"
        )


@pytest.mark.parametrize(
    "column",
    [
        "id = gen_random_uuid()",
        "workflow_type = 'sprint'",
        "definition_version = '2.0.0'",
        "entity_id = 'S-2'",
        "project = gen_random_uuid()",
        "created_by = 'someone else'",
        "created_at = now()",
        "version = 0",
        "version = -1",
    ],
)
def test_an_instances_identity_and_past_cannot_change(raw: Raw, column: str) -> None:
    with pytest.raises((RestrictViolation, CheckViolation)):
        raw.run(f"UPDATE workflow_instances SET {column} WHERE id = %(id)s")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"state": "done"}, "begins in state analysis at version 0, not in done"),
        ({"version": 7}, "begins in state analysis at version 0, not in analysis at 7"),
        ({"state": "nirvana"}, "not in nirvana"),
        ({"type": "epic"}, "unknown definition"),
        ({"definition": "9.9.9"}, "unknown definition"),
    ],
)
def test_an_instance_is_born_in_its_initial_state(raw: Raw, changed: dict[str, Any], says: str) -> None:
    born = {"type": "story", "definition": "1.0.0", "state": "analysis", "version": 0}
    with pytest.raises(CheckViolation, match=says):
        raw.run(BIRTH, **born | changed)


def test_forged_time_order_and_hashes_are_replaced_by_the_databases_own(legal: Raw) -> None:
    with legal.connection.transaction():
        legal.run("UPDATE workflow_instances SET current_state = 'implementation', version = 2 WHERE id = %(id)s")
        legal.run(
            f"WITH {ASKED} INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state,"
            " to_state, trigger, triggered_by, request_id, authority, proof, login, created_at, prev_hash, hash, xid)"
            " SELECT gen_random_uuid(), %(id)s, 2, '1.0.0', 'design', 'implementation', 'start_coding', 'dba',"
            " request_id, 'operator', 'grant:1', 'ceo', '1999-12-31', 'forged', 'forged', '1' FROM asked",
            trigger="start_coding",
        )
    row = legal.run(
        "SELECT t.created_at, (t.authority, t.proof, t.login) IS NOT DISTINCT FROM ('anyone', NULL, session_user),"
        " t.xid::text::bigint > 3, t.hash = event_hash(t), t.prev_hash = p.hash"
        " FROM workflow_transitions t JOIN workflow_transitions p ON p.workflow_id = t.workflow_id AND p.seq = 1"
        " WHERE t.seq = 2"
    ).fetchone()
    assert row is not None
    assert (datetime.now(UTC) - row[0]).total_seconds() < 60
    assert row[1:] == (True, True, True, True)


def test_a_commit_order_cannot_be_chosen(raw: Raw) -> None:
    with pytest.raises(psycopg.errors.GeneratedAlways), raw.connection.transaction():
        raw.run(
            "INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,"
            " position) VALUES (gen_random_uuid(), %(id)s, 2, '1.0.0', 'design', 'implementation', 'start_coding', 1)"
        )


@pytest.mark.parametrize("table", ["workflow_instances", "workflow_transitions", "workflow_definitions"])
def test_every_protecting_trigger_fires_always(dba: "psycopg.Connection[Any]", table: str) -> None:
    rows = dba.execute(
        "SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal", (table,)
    ).fetchall()
    assert len(rows) >= 2
    assert {enabled for _, enabled in rows} == {"A"}


def test_two_sessions_cannot_both_take_the_next_event(legal: Raw, database_url: str) -> None:
    with psycopg.connect(database_url) as other:
        other.execute(MOVE, {"id": legal.story, "from": "design", "to": "implementation", "trigger": "start_coding"})
        legal.run("SET lock_timeout = '200ms'")
        with pytest.raises((psycopg.errors.LockNotAvailable, RaiseException)):
            legal.move("design", "start_coding", "implementation")
        other.commit()
    with pytest.raises(ILLEGAL):
        legal.move("design", "start_coding", "implementation")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO definition_transitions VALUES ('story', '1.0.0', 'design', 'skip', 'done', '{anyone}')",
        "INSERT INTO definition_transitions"
        " VALUES ('test_gate', '1.1.0', 'RUNNING', 'gate_passed', 'PASSED', '{anyone}')",
        "INSERT INTO definition_states (type, version, state, terminal) VALUES ('story', '1.0.0', 'limbo', false)",
    ],
)
def test_nothing_is_slipped_into_a_recorded_definition(raw: Raw, statement: str) -> None:
    with pytest.raises(RestrictViolation, match="is recorded without"):
        raw.run(statement)
