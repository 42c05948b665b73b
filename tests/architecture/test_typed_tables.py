"""What docs/spec/constraints.md says, PostgreSQL holds against everyone: CHECKs, invariants, no untold state."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import CheckViolation, ForeignKeyViolation, NotNullViolation, RestrictViolation
from uuid_utils.compat import uuid7

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue
from tests import databases
from tests.architecture.typed_checks import CHECKS, VALID

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
NO_BROKER = "redis://127.0.0.1:1/0"  # nobody answers there
NOBODY = "00000000-0000-7000-8000-000000000000"

TYPED = {  # type -> its table, key and state column
    "run": ("runs", "run_id", "state"),
    "workstream": ("workstreams", "ws_id", "state"),
    "task": ("tasks", "task_id", "state"),
    "worker": ("workers", "worker_id", "state"),
    "uet_worker": ("workers", "worker_id", "state"),
    "patch_ledger": ("patch_ledger_entries", "ledger_id", "state"),
    "test_gate": ("test_gates", "gate_id", "state"),
    "circuit_breaker": ("circuit_breakers", "breaker_id", "state"),
    "supervised_worker": ("supervised_workers", "id", "status"),
    "job": ("jobs", "id", "status"),
    "operator_grant": ("operators", "grant_id", "state"),
    "deprecation": ("deprecations", "deprecation_id", "state"),
    "api_token": ("api_tokens", "token_id", "state"),
}


@dataclass(frozen=True)
class Born:
    """A database with one newborn instance of each type."""

    url: str  # for a superuser
    ids: dict[str, UUID]


def bear(url: str) -> dict[str, UUID]:
    """One of each, as the client makes them; the run is what all of its hang on."""
    project = uuid7()
    with psycopg.connect(url, autocommit=True) as dba:
        dba.execute("INSERT INTO patches (patch_id, body, created_by) VALUES ('P-1', 'diff', 'ann')")
    with Client(Runtime(Settings(database_url=url, broker_url=NO_BROKER))) as client:
        ids: dict[str, UUID] = {}

        def create(type_: str, **context: Any) -> None:
            ids[type_] = client.create(type_, f"{type_}-1", project=project, context=context)["id"]

        create("run")
        create("workstream", run_id=str(ids["run"]))
        create("task", workstream_id=str(ids["workstream"]))
        create("worker")
        create("uet_worker")
        create("patch_ledger", workstream_id=str(ids["workstream"]), patch_id="P-1")
        create("test_gate", gate_type="UNIT", workstream_id=str(ids["workstream"]))
        create("circuit_breaker", tool_id="git")
        create("supervised_worker")
        create("job", depth=0, task_description="build")
        create("operator_grant", name="ann")
        create("api_token", name="ann", role="agent", secret_sha256="0" * 64)
        create("deprecation", type="story", version="1.0.0", kind="version")
        return ids


@pytest.fixture(scope="module")
def born(servers: Servers, template: str) -> Iterator[Born]:
    with databases.copy_of(servers, template) as url:
        yield Born(databases.as_superuser(servers, url), bear(url))


@pytest.fixture(scope="module")
def session(born: Born) -> Iterator[Dba]:
    with psycopg.connect(born.url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def undone(session: Dba) -> Iterator[Dba]:
    """Raw SQL whose transaction never commits."""
    yield session
    session.rollback()


def write(dba: Dba, born: Born, type_: str, columns: str) -> None:
    table, key, _ = TYPED[type_]
    known = {name: str(instance_id) for name, instance_id in born.ids.items()} | {"nobody": NOBODY}
    statement = sql.SQL("UPDATE {} SET {} WHERE {} = {}").format(
        sql.Identifier(table),
        sql.SQL(re.sub(r"<(\w+)>", lambda found: f"'{known[found[1]]}'", columns)),  # type: ignore[arg-type]
        sql.Identifier(key),
        sql.Literal(born.ids[type_]),
    )
    assert dba.execute(statement).rowcount == 1


def sound(dba: Dba, table: str, column: str | None) -> str:
    """What the trigger `sound` of a table, which has it instead of CHECKs, refuses in a column."""
    ((source,),) = dba.execute(
        "SELECT p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE t.tgrelid = %s::regclass AND t.tgname = 'sound' AND t.tgenabled = 'A'",
        (table,),
    ).fetchall()
    branches = re.findall(r"WHEN (.*?) THEN '(\w+)'", source, re.DOTALL)
    return "\n".join(said for said, named in branches if named == column)


@pytest.mark.parametrize("type_", TYPED)
def test_a_typed_tables_states_are_those_of_its_definitions(born: Born, undone: Dba, type_: str) -> None:
    table, _, column = TYPED[type_]
    ((said,),) = undone.execute(
        "SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_attribute a"
        " ON a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey)"
        " WHERE c.contype = 'c' AND c.conrelid = %s::regclass AND a.attname = %s AND cardinality(c.conkey) = 1",
        (table, column),
    ).fetchall() or [(sound(undone, table, column),)]
    kept = {each for each in TYPED if TYPED[each][0] == table}
    newer = [each for each in catalogue() if each.type in kept and not each.version.startswith("0.")]
    assert newer
    assert set(re.findall(r"'(\w+)'(?:::|,|\))", said)) == {state for each in newer for state in each.states}


def test_every_type_that_has_a_typed_table_is_listed_here(undone: Dba) -> None:
    told = undone.execute(
        "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'state_in_history' AND tgenabled = 'A'"
    ).fetchall()
    assert {row[0] for row in told} == {table for table, _, _ in TYPED.values()}


@pytest.mark.parametrize("type_", TYPED)
def test_a_state_that_no_definition_has_is_refused(born: Born, undone: Dba, type_: str) -> None:
    with pytest.raises((CheckViolation, RestrictViolation)):
        write(undone, born, type_, f"{TYPED[type_][2]} = 'nirvana'")


def test_a_terminal_state_is_left_only_where_the_spec_says_so(undone: Dba) -> None:
    left = undone.execute(
        "SELECT t.type, t.source, t.dest FROM definition_transitions t JOIN definition_states s"
        " ON (s.type, s.version, s.state) = (t.type, t.version, t.source) WHERE s.terminal AND t.type = ANY(%s)",
        (list(TYPED),),
    ).fetchall()  # TASK-3, POLICY-6, RECOVER-4
    assert set(left) == {("patch_ledger", "committed", "rolled_back"), ("patch_ledger", "quarantined", "dropped")}


@pytest.mark.parametrize(
    ("type_", "wrong", "words", "right"),
    [pytest.param(*each[1:], id=f"{each[0]} {each[1]}: {each[2]}") for each in CHECKS],
)
def test_what_a_check_of_the_spec_forbids_is_refused_by_it_and_what_is_next_to_it_is_not(
    born: Born, undone: Dba, type_: str, wrong: str, words: str, right: str
) -> None:
    with pytest.raises(CheckViolation) as refusal, undone.transaction():
        write(undone, born, type_, wrong)
    table, refused = TYPED[type_][0], refusal.value.diag
    definition = undone.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND conname = %s",
        (table, refused.constraint_name),
    ).fetchone()
    assert words in (definition[0] if definition else sound(undone, table, refused.column_name))
    write(undone, born, type_, right)


FIXED = [
    ("TASK-14", "task", "is_critical = NOT is_critical", ""),
    ("WORKER-5", "worker", """affinity = '{"workstreams": []}'""", "state = 'idle'"),
    ("UET-3", "uet_worker", """affinity = '{"workstreams": []}'""", "state = 'IDLE'"),
]


@pytest.mark.parametrize(
    ("type_", "change", "after"), [pytest.param(*each[1:], id=f"{each[0]} {each[1]}") for each in FIXED]
)
def test_what_is_fixed_cannot_be_changed(born: Born, undone: Dba, type_: str, change: str, after: str) -> None:
    if after:
        write(undone, born, type_, change.replace("[]", '["early"]'))  # while it is made, it may
        write(undone, born, type_, after)
    with pytest.raises(RestrictViolation, match="cannot change"):
        write(undone, born, type_, change)


FOREIGN = [
    ("RUN-8", "run", "phase_id = 'nowhere'"),
    ("CHECK-20", "workstream", "run_id = <nobody>"),
    ("CHECK-20", "workstream", "phase_id = 'nowhere'"),
    ("CHECK-20", "task", "workstream_id = <nobody>"),
    ("CHECK-20", "task", "state = 'running', worker_id = <nobody>"),
    ("CHECK-20", "patch_ledger", "patch_id = 'nothing'"),
    ("CHECK-20", "patch_ledger", "workstream_id = <nobody>"),
    ("CHECK-20", "patch_ledger", "phase_id = 'nowhere'"),
    ("CHECK-20", "test_gate", "phase_id = 'nowhere'"),
    ("CHECK-20", "test_gate", "workstream_id = <nobody>"),
    ("CHECK-17", "job", "parent_job_id = <nobody>"),
]


@pytest.mark.parametrize(("type_", "columns"), [pytest.param(*each[1:], id=" ".join(each)) for each in FOREIGN])
def test_what_a_row_names_must_exist(born: Born, undone: Dba, type_: str, columns: str) -> None:
    with pytest.raises((ForeignKeyViolation, RestrictViolation)):  # whom a row belongs to never changes at all
        write(undone, born, type_, columns)


REQUIRED = [
    ("run", "phase_id created_at"),
    ("workstream", "run_id phase_id created_at updated_at"),
    ("task", "workstream_id created_at retry_count max_retries timeout_sec is_critical"),
    ("worker", "worker_type last_heartbeat created_at current_load max_concurrent_tasks"),
    ("uet_worker", "worker_type last_heartbeat created_at"),
    ("patch_ledger", "patch_id workstream_id phase_id state_history created_at updated_at"),
    ("test_gate", "gate_type phase_id command created_at"),
    ("supervised_worker", "workspace_id created_at updated_at"),
    ("job", "depth worker_count created_at task_description"),
]


@pytest.mark.parametrize(("type_", "column"), [(type_, each) for type_, names in REQUIRED for each in names.split()])
def test_what_every_row_must_have_cannot_be_taken_away(born: Born, undone: Dba, type_: str, column: str) -> None:
    with pytest.raises((NotNullViolation, RestrictViolation)):
        write(undone, born, type_, f"{column} = NULL")


# Each row must be what its history says at once: see test_operator_grants.py, test_deprecations.py and test_tokens.py.
JUDGED = {"operator_grant", "deprecation", "api_token"}
UNJUDGED = [type_ for type_ in TYPED if type_ not in JUDGED]
UNTOLD = {  # a state that satisfies every CHECK, and that no history tells
    "run": "state = 'running', started_at = now()",
    "workstream": "state = 'ready'",
    "task": "state = 'queued'",
    "worker": "state = 'idle'",
    "uet_worker": "state = 'IDLE'",
    "patch_ledger": f"state = 'validated', {VALID}",
    "test_gate": "state = 'RUNNING', started_at = now()",
    "circuit_breaker": "state = 'OPEN'",
    "supervised_worker": "status = 'RUNNING'",
    "job": "status = 'PENDING'",
}


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("type_", UNJUDGED)
def test_a_state_written_by_hand_is_refused_when_it_commits(born: Born, type_: str, role: str) -> None:
    with psycopg.connect(born.url) as dba:
        dba.execute(f"SET session_replication_role = {role}")
        write(dba, born, type_, UNTOLD[type_])  # not yet: history might follow
        with pytest.raises(CheckViolation, match="but its history says"):
            dba.commit()


@pytest.mark.parametrize("type_", UNJUDGED)
def test_a_typed_row_is_neither_deleted_nor_made_by_hand(born: Born, undone: Dba, type_: str) -> None:
    table, key, _ = TYPED[type_]
    statements = (f"DELETE FROM {table} WHERE {key} = '{born.ids[type_]}'", f"TRUNCATE {table} CASCADE")
    for statement in statements:
        with pytest.raises(RestrictViolation), undone.transaction():
            undone.execute(statement)  # type: ignore[call-overload]
    with pytest.raises(ForeignKeyViolation), undone.transaction():
        undone.execute(f"UPDATE {table} SET {key} = '{NOBODY}' WHERE {key} = '{born.ids[type_]}'")  # type: ignore[call-overload]


def test_a_patch_never_changes(undone: Dba) -> None:
    for statement in ("UPDATE patches SET body = 'other'", "DELETE FROM patches"):
        with pytest.raises(RestrictViolation), undone.transaction():
            undone.execute(statement)


def test_a_patchs_state_history_is_append_only(born: Born, undone: Dba) -> None:
    """PATCH-11, CHECK-18."""
    for wrong in (
        "state_history = '[]'",
        "state_history = state_history - 0",
        """state_history = '[{"state": "x"}]'""",
    ):
        with pytest.raises((CheckViolation, RestrictViolation)), undone.transaction():
            write(undone, born, "patch_ledger", wrong)
    write(undone, born, "patch_ledger", """state_history = state_history || '[{"state": "x"}]'""")


def test_a_queued_task_has_no_unmet_dependency(born: Born, undone: Dba) -> None:
    """CHECK-6."""
    with pytest.raises(CheckViolation):
        write(undone, born, "task", "state = 'queued', unmet = 1")


@pytest.mark.parametrize("state", ["validated", "queued", "applied", "verified", "committed"])
def test_a_patchs_validation_flags_match_its_state(born: Born, undone: Dba, state: str) -> None:
    """PATCH-10."""
    with pytest.raises(CheckViolation):
        write(undone, born, "patch_ledger", f"state = '{state}', validation_scope_passed = false")


def test_no_query_lists_the_ended_states() -> None:
    """The tables' CHECKs do, and hold them to `completed_at`, by which queries ask."""
    listed = re.compile(r"'completed', '(skipped|failed)', '(failed|cancelled)'")
    queries = [
        path
        for path in (Path(__file__).parents[2] / "db").rglob("*")
        if path.suffix in (".py", ".sql") and "migrations" not in path.parts
    ]
    assert len(queries) > 100
    assert [path.name for path in queries if listed.search(path.read_text())] == []
