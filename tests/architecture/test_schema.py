"""Said once: what the migrations make, what the tables declare and what the code believes are the same."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects.postgresql.base import ischema_names
from uuid_utils.compat import uuid7

from interlock.db.core.request_rows import Origin
from interlock.db.core.requests import PARTITIONS, PARTITIONS_DUE, partition_of
from interlock.db.operations import protections
from interlock.db.schema import SCHEMA
from interlock.db.tables import core
from interlock.db.tables import orchestration as typed_tables  # noqa: F401 - declares the orchestration's tables
from interlock.db.tables.core import metadata
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import AUTHORITIES, Severity
from interlock.workflows.fields import SECRET
from interlock.workflows.input.limits import DEPTH, KEPT_BYTES, KEPT_DEPTH, PLAN_BYTES, deeper
from interlock.workflows.outcomes import FINISHED, Status
from interlock.workflows.scheduling.counts import RUN_COUNTS, TASK_COUNTS

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
PROOFS = Path(__file__).parents[2] / "db" / "audit" / "sql" / "belongings" / "proofs.sql"


def check_of(dba: Dba, table: str, mentions: str) -> set[str]:
    """The values that a CHECK of a table allows, that one which mentions a word."""
    rows = dba.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass", (table,)
    ).fetchall()
    (found,) = [row[0] for row in rows if re.search(mentions, row[0])]
    return set(re.findall(r"'(\w+)'::", found))


def test_the_migrations_make_the_columns_the_code_declares(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ischema_names, "xid8", core.Xid8)
    declared = {table.name for table in metadata.tables.values()}
    with runtime.database.connect() as connection:
        options = {
            "compare_type": True,
            "version_table_schema": SCHEMA,
            "include_schemas": True,
            "include_name": lambda name, kind, _: kind != "schema" or name == SCHEMA,
            "include_object": lambda found, name, kind, *_: kind == "column" or name in declared,
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_the_counts_of_the_scheduler_are_columns_of_its_tables(dba: Dba) -> None:
    for table, key, counts in (("workstream_counts", "ws_id", TASK_COUNTS), ("run_counts", "run_id", RUN_COUNTS)):
        columns = dba.execute("SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,))
        assert {name for (name,) in columns} == {key, *counts}


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


def test_the_statuses_of_a_request_are_said_alike_by_the_trigger_and_the_literal(dba: Dba) -> None:
    assert listed_by(dba, "request_is_sound", "NEW.status NOT IN") == set(get_args(Status))
    assert listed_by(dba, "request_is_sound", r"\(NEW.status IN") == FINISHED


def test_the_severities_are_said_alike_by_the_check_and_the_literal(dba: Dba) -> None:
    assert check_of(dba, "workflow_transitions", r"'info'") == set(get_args(Severity))


def test_the_statuses_of_an_effect_are_those_the_code_writes(dba: Dba) -> None:
    assert check_of(dba, "effects", r"'pending'") == {"pending", "leased", "done", "dead", "cancelled"}


def test_the_origins_of_a_request_are_those_the_code_declares(dba: Dba) -> None:
    assert set(get_args(Origin)) == listed_by(dba, "request_is_sound", "NEW.origin NOT IN")


def listed_by(dba: Dba, function: str, before: str) -> set[str]:
    """The texts of the list that follows some words in the body of a function."""
    (body,) = dba.execute("SELECT prosrc FROM pg_proc WHERE proname = %s", (function,)).fetchone()
    (found,) = re.findall(rf"{before}\s*[(\[]([^)\]]*)[)\]]", body)
    return set(re.findall("'([^']*)'", found))


def test_who_is_a_worker_and_what_an_authority_is_are_said_alike_by_postgresql_and_the_code(dba: Dba) -> None:
    proved = {each.type for each in catalogue() if SECRET in each.fields}
    assert listed_by(dba, "accept_closed", "workflow_type IN") == proved
    (judged,) = re.findall(r"n\.type NOT IN \(([^)]*)\)", PROOFS.read_text())
    assert set(re.findall(r"'(\w+)'", judged)) == proved
    assert listed_by(dba, "narrower", "wanted <@ ARRAY") == set(AUTHORITIES) - {
        "anyone",
        "decider",
    }  # of approvals only
    assert listed_by(dba, "request_is_sound", "NEW.authority NOT IN") == set(AUTHORITIES)


def test_the_partitions_are_said_alike_by_the_column_the_sweep_and_the_code(dba: Dba) -> None:
    (generated,) = dba.execute(
        "SELECT generation_expression FROM information_schema.columns WHERE column_name = 'partition'"
    ).fetchone() or ("",)
    assert re.search(rf"% {PARTITIONS}\b", generated)
    assert f"generate_series(0, {PARTITIONS - 1})" in PARTITIONS_DUE
    ids = [uuid7() for _ in range(200)]
    rows = dba.execute("SELECT id, get_byte(uuid_send(id), 15) %% 16 FROM unnest(%s::uuid[]) AS id", (ids,)).fetchall()
    assert all(partition_of(each) == partition for each, partition in rows)


def test_the_columns_that_clients_read_are_all_there(dba: Dba) -> None:
    core = {
        "workflow_instances": "id workflow_type current_state entity_id project context error retry_count"
        " created_at updated_at",
        "workflow_transitions": "id workflow_id from_state to_state trigger triggered_by metadata created_at",
    }
    for table, columns in core.items():
        rows = dba.execute("SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,))
        assert set(columns.split()) <= {row[0] for row in rows}


def test_times_are_timestamptz_and_json_is_jsonb(dba: Dba) -> None:
    types = dba.execute(
        "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_schema = 'interlock'"
        " AND (data_type LIKE 'timestamp%' OR data_type LIKE 'json%' OR data_type LIKE 'time%')"
    ).fetchall()
    assert set(types) == {("timestamp with time zone",), ("jsonb",)}


def test_every_trigger_of_the_migrations_is_always_on_and_listed_for_doctor(dba: Dba) -> None:
    made = dba.execute(
        "SELECT c.relname, t.tgname, t.tgenabled::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT t.tgisinternal"
    ).fetchall()
    assert set(made) == {
        (table, trigger, "A") for table, triggers in protections.TRIGGERS.items() for trigger in triggers.split()
    }, "a migration that adds a trigger ends with `SELECT interlock.always()`, and protections.py lists it"


def test_every_column_of_json_is_bounded_as_the_code_says(dba: Dba) -> None:
    columns = dba.execute(
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'interlock'::regnamespace"
        " AND NOT starts_with(c.relname, 'archive')"
        " AND a.atttypid IN ('json'::regtype, 'jsonb'::regtype) AND NOT a.attisdropped"
    ).fetchall()
    bounds = {
        (table, re.findall(r"UPDATE OF (\w+)", rule)[0]): int(re.findall(r"bounded\(.*?, (\d+)\)", rule)[0])
        for table, rule in dba.execute(
            "SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger"
            " WHERE tgname LIKE 'bounded\\_%' AND tgenabled = 'A'"
        )
    }
    assert bounds == {(table, column): PLAN_BYTES if table == "plans" else KEPT_BYTES for table, column in columns}, (
        "a migration that adds JSON says `SELECT interlock.bound('interlock.table', 'column')`"
    )
    for depth, fits in ((KEPT_DEPTH, True), (KEPT_DEPTH + 1, False)):
        for document in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            assert dba.execute("SELECT bounded(%s::jsonb)", (document,)).fetchone() == (fits,)
            assert deeper(json.loads(document), KEPT_DEPTH) is not fits
    for size, fits in ((KEPT_BYTES, True), (KEPT_BYTES + 1, False)):
        assert dba.execute("SELECT bounded(to_jsonb(%s::text))", ("x" * (size - 2),)).fetchone() == (fits,)
    assert DEPTH < KEPT_DEPTH
    assert Settings.model_fields["context_limit_bytes"].metadata[-1].le * 2 <= KEPT_BYTES
