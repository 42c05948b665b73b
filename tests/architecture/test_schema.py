"""Said once: what the migrations make, what the tables declare and what the code believes are the same."""

import re
from pathlib import Path
from typing import get_args

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects.postgresql.base import ischema_names
from uuid_utils.compat import uuid7

from db import tables, typed_tables  # noqa: F401 - declares the orchestration's tables
from db.connect import sql
from db.requests import LANES, lane_of
from db.tables import metadata
from workers.runtime import Runtime
from workflows.catalogue import catalogue
from workflows.definition import Severity
from workflows.outcomes import FINISHED, STATUSES, Status

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
Dba = "psycopg.Connection[Any]"


def check_of(dba: Dba, table: str, mentions: str) -> set[str]:
    """The values that a CHECK of a table allows, that one which mentions a word."""
    rows = dba.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass", (table,)
    ).fetchall()
    (found,) = [row[0] for row in rows if re.search(mentions, row[0])]
    return set(re.findall(r"'(\w+)'::", found))


def test_the_migrations_make_the_tables_the_code_declares(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ischema_names, "xid8", tables.Xid8)
    with runtime.database.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_every_server_default_and_generated_column_is_declared(runtime: Runtime, dba: Dba) -> None:
    made = {
        (table, column)
        for table, column in dba.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
            " AND (column_default IS NOT NULL OR is_generated = 'ALWAYS' OR is_identity = 'YES')"
        )
    }
    declared = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        if column.server_default is not None or column.identity is not None or column.computed is not None
    }
    assert made == declared


def test_the_moves_postgresql_allows_are_those_of_the_definitions(dba: Dba) -> None:
    enforced = set(dba.execute("SELECT type, version, source, trigger, dest FROM definition_transitions").fetchall())
    assert enforced == {
        (each.type, each.version, source, move.trigger, move.dest)
        for each in catalogue()
        for move in each.transitions
        for source in move.sources
    }


def test_the_states_postgresql_knows_are_those_of_the_definitions(dba: Dba) -> None:
    known = set(dba.execute("SELECT type, version, state, terminal FROM definition_states").fetchall())
    assert known == {
        (each.type, each.version, state, state in each.terminal) for each in catalogue() for state in each.states
    }
    begins = set(dba.execute("SELECT type, version, initial_state FROM workflow_definitions").fetchall())
    assert begins == {(each.type, each.version, each.initial) for each in catalogue()}


def test_the_statuses_of_a_request_are_said_alike_by_the_check_the_literal_and_the_list(dba: Dba) -> None:
    allowed = check_of(dba, "trigger_requests", r"'scheduled'")
    assert allowed == set(STATUSES) == set(get_args(Status))
    assert check_of(dba, "trigger_requests", r"finished_at IS NOT NULL") == FINISHED


def test_the_severities_are_said_alike_by_the_check_and_the_literal(dba: Dba) -> None:
    assert check_of(dba, "workflow_transitions", r"'info'") == set(get_args(Severity))


def test_the_statuses_of_an_effect_are_those_the_code_writes(dba: Dba) -> None:
    assert check_of(dba, "effects", r"'pending'") == {"pending", "leased", "done", "dead"}


def test_the_origins_of_a_request_are_those_the_code_writes(dba: Dba) -> None:
    written = {
        origin
        for file in [*(ROOT / "workers").rglob("*.py"), *(ROOT / "db" / "sql").glob("*.sql")]
        for origin in re.findall(r"""["']origin["']: ["'](\w+)["']|, '(follow_up)'""", file.read_text())
    }
    allowed = check_of(dba, "trigger_requests", r"'agent'")
    assert {name for pair in written for name in pair if name} == allowed


def test_the_lanes_are_said_alike_by_the_column_the_sweep_and_the_code(dba: Dba) -> None:
    (generated,) = dba.execute(
        "SELECT generation_expression FROM information_schema.columns WHERE column_name = 'lane'"
    ).fetchone() or ("",)
    assert re.search(rf"% {LANES}\b", generated)
    assert f"generate_series(0, {LANES - 1})" in sql("lanes_due")
    ids = [uuid7() for _ in range(200)]
    rows = dba.execute("SELECT id, get_byte(uuid_send(id), 15) %% 16 FROM unnest(%s::uuid[]) AS id", (ids,)).fetchall()
    assert all(lane_of(each) == lane for each, lane in rows)


def test_adr_010s_columns_are_all_there(dba: Dba) -> None:
    adr = {
        "workflow_instances": "id workflow_type current_state entity_id project_id context error retry_count"
        " created_at updated_at",
        "workflow_transitions": "id workflow_id from_state to_state trigger triggered_by metadata created_at",
    }
    for table, columns in adr.items():
        rows = dba.execute("SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,))
        assert set(columns.split()) <= {row[0] for row in rows}


def test_times_are_timestamptz_and_json_is_jsonb(dba: Dba) -> None:
    types = dba.execute(
        "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_schema = 'public'"
        " AND (data_type LIKE 'timestamp%' OR data_type LIKE 'json%' OR data_type LIKE 'time%')"
    ).fetchall()
    assert set(types) == {("timestamp with time zone",), ("jsonb",)}
