"""Every column of text is under the rule for names and reasons, or is listed here with the reason why it is free."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from interlock.workflows.input import names
from tests.unit.test_names import HOSTILE

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"

STATES = "one of the values that a CHECK, or the definition it refers to, lists"
REFERS = "refers to a column under the rule"
OWN = "written by the code alone, as it was computed"
PRINTED = "whatever a command printed or an error said: kept as it is, made visible where it is shown"
COPY = "a copy of a row under the rule, compared with it"
FREE = {
    "definition_states": {"type": REFERS, "version": REFERS},
    "definition_transitions": {"type": REFERS, "version": REFERS, "source": REFERS, "dest": REFERS, "by": STATES},
    "workflow_definitions": {"checksum": OWN},
    "workflow_instances": {
        **dict.fromkeys(("workflow_type", "definition_version", "current_state", "born_version"), REFERS),
        "error": PRINTED,
        "born_proof": OWN,
    },
    "workflow_transitions": {
        **dict.fromkeys(("workflow_type", "definition_version"), OWN),
        **dict.fromkeys(("from_state", "to_state", "trigger"), STATES),
        **dict.fromkeys(("severity", "authority"), STATES),
        **dict.fromkeys(("proof", "login"), OWN),
    },
    "schema_states": {"login": OWN},
    "narrowings": dict.fromkeys(("project", "type", "trigger", "open_to"), "a projection of rows under the rule"),
    **dict.fromkeys(
        ("limits", "limit_starts"), dict.fromkeys(("project", "kind", "name"), "a projection of rows under the rule")
    ),
    "budgets": dict.fromkeys(("project", "kind", "name", "resource"), "a projection of rows under the rule"),
    "budget_uses": {"name": "of rows under the rule"},
    "brakes": dict.fromkeys(("project", "kind", "name", "entity_id", "reason"), "a projection of rows under the rule"),
    "schedules": {"login": OWN},
    "subscriptions": {"state": STATES},
    "refusal_counts": {"login": OWN, "project": REFERS, "recent_who": REFERS, "request_id": OWN},
    "trigger_requests": {
        **dict.fromkeys(("origin", "authority", "status"), STATES),
        **dict.fromkeys(("proof", "login", "trace"), OWN),
        "error": PRINTED,
    },
    "effects": {"status": STATES, "exclusive": "a key that is compared, never shown", "error": PRINTED, "trace": OWN},
    "deprecations": {"type": REFERS, "version": REFERS, "kind": STATES, "state": STATES},
    "operators": {"state": STATES},
    "api_tokens": {"state": STATES, "role": STATES},
    "sweeps": {"name": OWN},
    "relay_cursors": {"name": OWN},
    "circuit_breakers": {"project": REFERS, "state": STATES},
    "stuck_entities": dict.fromkeys(
        ("workflow_type", "entity_id", "project", "state", "reason", "command"), "a projection of rows under the rule"
    ),
    "metric_values": {"name": OWN, "labels": "of names under the rule; the exporter escapes them"},
    "metric_deltas": {"name": OWN, "labels": "of names under the rule; the exporter escapes them"},
    "anchors": {"record": OWN, "proof": OWN},
    "anchor_copies": {"destination": OWN, "error": PRINTED},
    "link_changes": {"change": STATES, "login": OWN, **dict.fromkeys(("role", "inverse"), COPY)},
    "audit_exports": {"manifest": OWN},
    "restores": {"backup": "a path"},
    "patches": {"body": "a diff"},
    "patch_ledger_entries": {
        **dict.fromkeys(("patch_id", "phase_id"), REFERS),
        "state": STATES,
        **dict.fromkeys(("quarantine_reason", "rollback_reason"), "a projection of what the event says"),
    },
    "runs": {"phase_id": REFERS, "state": STATES},
    "workstreams": {"phase_id": REFERS, "state": STATES},
    "run_signals": {"kind": OWN, "was": STATES, "state": STATES},
    "plans": {"directory": "a path"},
    "supervised_workers": {"status": STATES},
    "jobs": {"status": STATES},
    "tasks": {"state": STATES, "last_error": PRINTED, "tool": REFERS},
    "test_gates": {
        **dict.fromkeys(("gate_type", "state", "moment"), STATES),
        "phase_id": REFERS,
        **dict.fromkeys(("stdout", "stderr"), PRINTED),
    },
    "workers": {"state": STATES, "project": REFERS},
    "commands": {
        **dict.fromkeys(("source", "kind"), STATES),
        **dict.fromkeys(("made_by", "reason"), "a CHECK of its own holds it to the rule"),
        **dict.fromkeys(("argv", "message"), "a plan's own words: kept as they are, made visible where they are shown"),
        "cwd": "a path",
        **dict.fromkeys(("tool", "patch_id"), REFERS),
    },
    "alembic_version": {"version_num": OWN},
}  # fmt: skip


def worded(dba: "psycopg.Connection[Any]") -> dict[tuple[str, str], str]:
    """(table, column) -> which rule it keeps, as PostgreSQL has it."""
    return {(row[0], row[1]): row[2] for row in dba.execute("SELECT * FROM worded()").fetchall()}


def test_every_column_of_text_keeps_the_rule_or_is_free_for_a_reason(dba: "psycopg.Connection[Any]") -> None:
    there = {
        (table, column)
        for table, column in dba.execute(
            "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t"
            " USING (table_schema, table_name) WHERE c.table_schema = 'interlock' AND t.table_type = 'BASE TABLE'"
            " AND NOT starts_with(table_name, 'archive')"
            " AND (c.data_type IN ('text', 'character varying', 'character')"
            " OR c.udt_name IN ('_text', '_varchar', '_bpchar'))"
        )
    }
    free = {(table, column) for table, columns in FREE.items() for column in columns}
    ruled = set(worded(dba))
    assert there - ruled - free == set(), "say in worded() which rule it keeps, or here why it is free"
    assert (ruled | free) - there == set()
    assert ruled & free == set()


def test_what_the_archive_holds_stood_under_the_rule(dba: "psycopg.Connection[Any]") -> None:
    tables = {
        row[0]
        for row in dba.execute(
            "SELECT table_name FROM information_schema.tables WHERE starts_with(table_name, 'archive')"
        ).fetchall()
    }
    copies = {"archived_instances", "archived_transitions", "archived_links", "archived_records"}
    assert tables - copies == {"archive_progress"}, COPY


def test_no_table_takes_a_hostile_name_or_reason_from_raw_sql(dba: "psycopg.Connection[Any]") -> None:
    """Each column by itself: all other triggers are out of the way, and constraints come after these."""
    tables: dict[str, list[tuple[str, str]]] = {}
    for (table, column), kind in worded(dba).items():
        tables.setdefault(table, []).append((column, kind))
    rules = {"name": names.is_name, "names": names.is_name, "reason": is_reason, "words": names.is_words}
    for table, columns in tables.items():
        with dba.transaction(force_rollback=True):
            for (other,) in dba.execute(
                "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal"
                " AND tgname <> 'worded'",
                (table,),
            ).fetchall():
                dba.execute(
                    sql.SQL("ALTER TABLE {} DISABLE TRIGGER {}").format(sql.Identifier(table), sql.Identifier(other))
                )
            for column, kind in columns:
                statement = sql.SQL("INSERT INTO {} ({}) VALUES (%s)").format(
                    sql.Identifier(table), sql.Identifier(column)
                )
                rule = rules[kind.removeprefix("empty or ")]
                for hostile in HOSTILE.values():
                    value = hostile if len(hostile) < 9 else hostile[:9]
                    if (
                        "\0" in value or "\ud800" in value or rule(value)
                    ):  # no text of PostgreSQL's; words may have lines
                        continue
                    with (
                        pytest.raises(psycopg.errors.CheckViolation, match=f"in {table}.{column}:"),
                        dba.transaction(),
                    ):
                        dba.execute(statement, ([value] if kind == "names" else value,))


def is_reason(value: object) -> bool:
    """Whether Python takes it for a reason."""
    return names._wrong(value, names.REASON_LIMIT, names.IN_REASONS) is None
