"""The policies of docs/spec, as PostgreSQL holds them against raw SQL: time, dependencies, what has ended."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import CheckViolation
from psycopg.types.json import Jsonb

from interlock.db.audit import verify
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import catalogue
from interlock.workflows.versioning.export import recorded
from tests.tampering import unprotected
from tests.walking import Walker

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
EVENT = """
WITH asked AS (
    INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, authority, proof)
    SELECT gen_random_uuid()::text, '', id, %(trigger)s, 'dba', %(authority)s, %(proof)s
      FROM workflow_instances WHERE id = %(id)s RETURNING request_id
)
INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state,
                                  trigger, metadata, triggered_by, request_id)
SELECT gen_random_uuid(), i.id, i.version + 1, i.workflow_type, i.definition_version, i.current_state, %(to)s,
       %(trigger)s, %(metadata)s, 'dba', request_id
  FROM workflow_instances i, asked WHERE i.id = %(id)s"""


@pytest.fixture
def walker(runtime: Runtime, dba: Dba) -> Walker:
    return Walker(runtime, dba)


def enter(dba: Dba, made: UUID, dest: str, trigger: str, **said: Any) -> None:
    (found,) = dba.execute("SELECT workflow_type, version FROM workflow_instances WHERE id = %s", (made,)).fetchall()
    right = {"authority": "machinery", "proof": f"state:{found[1]}"}
    if trigger == "worker_started":
        claim = "INSERT INTO task_claims (task_id, run_id, worker_id) SELECT task_id, run_id, %s FROM tasks"
        row = dba.execute(f"{claim} WHERE task_id = %s RETURNING token", (said["worker_id"], made)).fetchone()
        right = {"authority": "holder", "proof": f"claim:{row[0] if row else None}"}
    if trigger == "gate_started":
        lease = "INSERT INTO effects (id, workflow_id, version, name, status, token, leased_by, lease_until)"
        lease += " VALUES (gen_random_uuid(), %s, %s, 'run_gate', 'leased', 1, 'test', now() + interval '1 hour')"
        row = dba.execute(f"{lease} RETURNING id", (made, found[1])).fetchone()
        right = {"authority": "effect", "proof": f"lease:{row[0] if row else None}:1"}
    dba.execute(EVENT, {"to": dest, "trigger": trigger, "metadata": Jsonb(said), "id": made, **right})


# POLICY-8 ---------------------------------------------------------------------------------------------------------

TIMES = [
    ("runs", "run_id", "run", "running", "started_at"),
    ("runs", "run_id", "run", "canceled", "completed_at"),
    ("workstreams", "ws_id", "workstream", "planned", "updated_at"),
    ("workstreams", "ws_id", "workstream", "cancelled", "completed_at"),
    ("tasks", "task_id", "task", "running", "started_at"),
    ("tasks", "task_id", "task", "cancelled", "completed_at"),
    ("workers", "worker_id", "worker", "idle", "last_heartbeat"),
    ("workers", "worker_id", "worker", "shutdown", "shutdown_at"),
    ("workers", "worker_id", "uet_worker", "TERMINATED", "shutdown_at"),
    ("patch_ledger_entries", "ledger_id", "patch_ledger", "created", "updated_at"),
    ("patch_ledger_entries", "ledger_id", "patch_ledger", "quarantined", "quarantined_at"),
    ("test_gates", "gate_id", "test_gate", "RUNNING", "started_at"),
    ("test_gates", "gate_id", "test_gate", "PASSED", "completed_at"),
    ("circuit_breakers", "breaker_id", "circuit_breaker", "OPEN", "opened_at"),
    ("supervised_workers", "id", "supervised_worker", "IDLE", "updated_at"),
    ("jobs", "id", "job", "RUNNING", "started_at"),
]


@pytest.mark.parametrize(("table", "key", "type_", "state", "column"), TIMES, ids=str)
def test_no_time_is_in_the_future_or_before_the_birth(
    walker: Walker, dba: Dba, table: str, key: str, type_: str, state: str, column: str
) -> None:
    made = walker.at(walker.get(type_), state)
    update = sql.SQL("UPDATE {} SET {} = now() {} interval '1 hour' WHERE {} = %s")
    too_early = f"{column} of task .* cannot be" if table == "tasks" else "violates check constraint"
    for sign, says in (("+", f"{column} of {table} .* is in the future"), ("-", too_early)):
        if (table, sign) == ("circuit_breakers", "-"):
            continue  # CHECK-8 orders no time of a breaker's
        with pytest.raises(CheckViolation, match=says):
            dba.execute(
                update.format(*map(sql.Identifier, (table, column)), sql.SQL(sign), sql.Identifier(key)), (made,)
            )


def test_every_time_of_a_typed_table_is_looked_at(dba: Dba) -> None:
    looked = dba.execute(
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = 'not_in_future' AND t.tgenabled = 'A'"
        " WHERE a.atttypid = 'timestamptz'::regtype AND a.attgenerated = ''"
        " AND encode(t.tgargs, 'escape') NOT LIKE '%' || a.attname || '%'"
    ).fetchall()
    assert {tuple(row) for row in looked} == {
        ("circuit_breakers", "trial_until"),  # a lease: it is in the future
        ("workers", "last_took_at"),  # only an order of taking turns
    }


def test_nobody_is_born_in_the_future(walker: Walker, dba: Dba) -> None:
    with pytest.raises(CheckViolation, match="that is in the future"):
        dba.execute(
            "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id,"
            " project, created_by, created_at) VALUES (gen_random_uuid(), 'story', '1.0.0', 'analysis', 'S',"
            " gen_random_uuid(), 'dba', now() + interval '1 hour')"
        )


def test_an_instances_time_never_goes_back_though_the_clock_does(walker: Walker, dba: Dba, runtime: Runtime) -> None:
    run = walker.at(walker.get("run"), "running")
    dba.execute("ALTER TABLE workflow_transitions DISABLE TRIGGER kept")
    dba.execute("UPDATE workflow_transitions SET created_at = created_at + interval '1 hour'")  # the clock is set back
    dba.execute("UPDATE workflow_transitions t SET hash = event_hash(t)")
    dba.execute("ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER kept")
    assert walker.ask(run, "cancel").status == "applied"
    times = dba.execute("SELECT created_at FROM workflow_transitions ORDER BY seq").fetchall()
    assert len(times) == 2
    assert times[0] == times[1]
    assert dba.execute("SELECT completed_at FROM runs").fetchall() == [times[1]]
    assert verify.verify(runtime.database).ok


def test_an_event_dated_before_the_one_before_it_is_named_though_its_hash_is_right(
    walker: Walker, dba: Dba, runtime: Runtime
) -> None:
    gate = walker.at(walker.get("test_gate"), "PASSED")
    assert verify.verify(runtime.database).ok
    with unprotected(dba, "workflow_transitions"):
        dba.execute("UPDATE workflow_transitions SET created_at = created_at - interval '1 hour' WHERE seq = 2")
        dba.execute("UPDATE workflow_transitions t SET hash = event_hash(t)")
    problem, of_its_request = verify.verify(runtime.database).problems
    assert (problem.instance, problem.seq, problem.message) == (str(gate), 2, "is dated before the event before it")
    assert of_its_request.message.endswith("was changed: event 2 says otherwise")


# POLICY-7 ---------------------------------------------------------------------------------------------------------


def test_a_workstream_is_not_ready_before_those_it_depends_on_are_completed(walker: Walker, dba: Dba) -> None:
    made, before = walker.born(walker.get("workstream")), walker.at(walker.get("workstream"), "validating")
    walker.link(made, "depends_on", "dependents", before)
    with pytest.raises(CheckViolation, match=r"cannot enter ready: workstream-\S+ is validating"):
        enter(dba, made, "ready", "all_tasks_created")
    walker.ask(before, "validation_passed")
    assert walker.ask(made, "all_tasks_created").status == "applied"


def test_a_gate_does_not_run_before_those_it_depends_on_have_passed(walker: Walker, dba: Dba) -> None:
    made, before = walker.born(walker.get("test_gate")), walker.at(walker.get("test_gate"), "RUNNING")
    walker.link(made, "depends_on", "dependents", before)
    with pytest.raises(CheckViolation, match=r"cannot enter RUNNING: test_gate-\S+ is RUNNING"):
        enter(dba, made, "RUNNING", "gate_started")
    assert walker.ask(before, "gate_passed", exit_code=0).status == "applied"
    assert walker.ask(made, "gate_started").status == "applied"


def test_a_task_is_not_queued_while_something_is_unmet(walker: Walker, dba: Dba) -> None:
    task = walker.get("task")
    before = walker.born(task)
    made = walker.born(task, depends_on=[str(before)])
    with pytest.raises(CheckViolation, match=r"unmet of task \S+ cannot be 1 while it is queued"):
        enter(dba, made, "queued", "scheduler_assigned")


def test_a_task_does_not_run_at_a_worker_that_lacks_what_it_requires_whatever_it_says(walker: Walker, dba: Dba) -> None:
    made = walker.at(walker.get("task"), "queued", required_capabilities=["python", "rust"])
    able, unable = (
        walker.at(walker.get("worker"), "idle", capabilities=capabilities)
        for capabilities in (["rust", "python", "git"], ["python"])
    )
    said = {"capabilities": ["python", "rust"]}  # what an agent may claim
    with pytest.raises(CheckViolation, match="its worker has no rust"):
        enter(dba, made, "running", "worker_started", worker_id=str(unable), **said)
    dba.execute("DELETE FROM task_claims")
    assert walker.ask(made, "worker_started", worker_id=str(able), **said).status == "applied"


# POLICY-5 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exceptional", [False, True])
def test_no_definition_leaves_what_has_ended_but_by_a_declared_exception(dba: Dba, exceptional: bool) -> None:
    body = recorded(catalogue().get("story")) | {"version": "9.0.0"}
    reopened = {"trigger": "reopen", "source": "done", "dest": "analysis", "by": ["anyone"]}
    body["transitions"] = [*body["transitions"], reopened]
    body["rules"] = [
        *body["rules"],
        {"trigger": "reopen", "exceptional": True} if exceptional else {"trigger": "reopen"},
    ]
    key = "'story', '9.0.0'"
    with dba.transaction(force_rollback=True):
        dba.execute(
            f"INSERT INTO workflow_definitions (type, version, checksum, body, initial_state)"
            f" VALUES ({key}, repeat('0', 64), %s, 'analysis')",  # type: ignore[call-overload]
            (Jsonb(body),),
        )
        for state, about in body["states"].items():
            dba.execute(f"INSERT INTO definition_states VALUES ({key}, %s, %s)", (state, about["terminal"]))  # type: ignore[call-overload]
        statement = f"INSERT INTO definition_transitions VALUES ({key}, 'done', 'reopen', 'analysis', '{{anyone}}')"
        if exceptional:
            dba.execute(statement)  # type: ignore[call-overload]
        else:
            with pytest.raises(CheckViolation, match="leaves the terminal state done by reopen"):
                dba.execute(statement)  # type: ignore[call-overload]
