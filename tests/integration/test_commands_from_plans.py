"""What is executed comes from a submitted plan or an operator, never from what any caller can write."""

from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg.errors import CheckViolation, RestrictViolation
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.workers.client.client import Client
from interlock.workers.effects import intents
from interlock.workers.overrides.reset_task import reset_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool import work_loop
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours
from interlock.workflows.machines.orchestration.reserved_fields import COMMAND_FIELDS
from tests import commanding
from tests.crewing import Site, hand
from tests.driving import drain_all, state
from tests.landscape import ONE_LINE, Landscape
from tests.rights import known

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
BIRTH = (
    "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
    " context, created_by) VALUES (%s, %s, '1.1.0', %s, %s, %s, %s, 'mallory')"
)
COMMAND = (
    "INSERT INTO commands (workflow_id, run_id, source, made_by, reason, kind, argv)"
    " VALUES (%s, %s, %s, %s, 'x', 'command', %s)"
)


@pytest.fixture
def land(runtime: Runtime, dba: Dba, tmp_path: Path) -> Landscape:
    return Landscape(runtime, dba, tmp_path)


def by_hand(land: Landscape, type_: str, **context: Any) -> UUID:
    """An instance as any caller creates one."""
    said = {"workstream_id": str(land.workstream), "run_id": str(land.run)}
    said |= {"gate_type": "UNIT"} if type_ == "test_gate" else {}
    made = land.client.create(type_, f"{type_}-{uuid7()}", project=land.project, context=said | context)
    return UUID(str(made["id"]))


def test_no_door_takes_a_context_that_says_what_to_run(land: Landscape) -> None:
    for type_, key in product(("task", "test_gate"), COMMAND_FIELDS):
        with pytest.raises(BadInput, match=f"{key}: what a .* comes from a plan: submit one"):
            by_hand(land, type_, **{key: ["touch", "x"]})
        context = {"workstream_id": str(land.workstream), "gate_type": "UNIT", key: ["touch", "x"]}
        initial = {"task": "pending", "test_gate": "PENDING"}[type_]
        with pytest.raises(CheckViolation, match="cannot contain what to run"):
            land.dba.execute(BIRTH, (uuid7(), type_, initial, str(uuid7()), land.project, Jsonb(context)))


def test_a_gate_that_nobody_gave_a_command_fails_and_says_so(land: Landscape) -> None:
    for context in ({}, {"workstream_id": None}):
        gate = by_hand(land, "test_gate", **{name: said for name, said in context.items() if said})
        with transaction(land.runtime.database) as connection:
            effects.intend(connection, [intents.of_gate(gate, 0)])
        land.settle()
        assert (state(land.client, gate), land.said(gate)["exit_code"]) == ("FAILED", 126)
        assert land.said(gate)["reason"].startswith("no command, because neither a plan nor an operator made")


@pytest.mark.parametrize("kind", ["command", "shell", "patch"])
def test_a_task_that_nobody_gave_a_command_runs_nothing(
    runtime: Runtime, client: Client, site: Site, kind: str
) -> None:
    task = site.task(site.workstream(site.run()), kind=kind, max_retries=0)
    assert work_loop.work(runtime, known(hand(runtime))) == 1
    drain_all(runtime)
    assert state(client, task) == "failed"
    assert "neither" in client.history(task)[-1]["metadata"]["error"]


def test_a_ledger_entry_made_by_hand_lands_nothing(land: Landscape) -> None:
    """Not even a patch that a plan brought, nor when every step before its commit is told."""
    land.task(dict(ONE_LINE), "theirs")
    entry = by_hand(land, "patch_ledger", patch_id="patch-theirs")
    land.settle()
    assert state(land.client, entry) == "quarantined"
    assert "neither a plan nor an operator" in land.said(entry)["reason"]
    second = by_hand(land, "patch_ledger", patch_id="patch-theirs")
    land.dba.execute("UPDATE effects SET status = 'done', finished_at = now() WHERE status = 'pending'")
    for trigger in ("validation_passed", "accept", "apply_succeeded", "tests_passed"):
        with pytest.raises(NotYours):
            land.client.fire(second, trigger, by="mallory", data={"reason": "x"})
        land.fire(second, trigger, reason="x")
    land.settle()
    assert state(land.client, second) != "committed"
    assert land.dba.execute("SELECT count(*) FROM patch_ledger_entries WHERE commit_sha IS NOT NULL").fetchone() == (0,)


def test_raw_sql_gives_nobody_a_command_and_changes_none(land: Landscape) -> None:
    gate, bare = land.gate(["true"]), by_hand(land, "test_gate")
    for source, by in (("plan", "mallory"), ("operator", commanding.OPERATOR)):
        with pytest.raises(RestrictViolation, match="cannot get a command"):
            land.dba.execute(COMMAND, (bare, land.run, source, by, ["touch", "x"]))
    context = {"workstream_id": str(land.workstream), "gate_type": "UNIT"}
    for source in ("plan", "operator"):  # born beside it, in somebody's run, by one who is no operator
        land.dba.execute("BEGIN")
        land.dba.execute("SET LOCAL session_replication_role = replica")
        land.dba.execute(BIRTH, (born := uuid7(), "test_gate", "PENDING", f"g-{born}", land.project, Jsonb(context)))
        with pytest.raises(RestrictViolation, match="cannot get a command"):
            land.dba.execute(COMMAND, (born, land.run, source, "mallory", ["touch", "x"]))
        land.dba.execute("ROLLBACK")
    for change in (
        "UPDATE commands SET argv = '{touch,x}'",
        "DELETE FROM commands",
        "TRUNCATE commands CASCADE",
        "UPDATE plans SET directory = '/'",
        "DELETE FROM plans",
    ):
        with pytest.raises(RestrictViolation):
            land.dba.execute(change)
    land.settle()
    assert state(land.client, gate) == "PASSED"


def test_commands_of_one_statement_are_refused_together(land: Landscape) -> None:
    """One that its operator may give is refused with one for an instance that existed before."""
    land.gate(["true"])  # by the operator, who has a grant from then on
    bare, context = by_hand(land, "test_gate"), {"workstream_id": str(land.workstream), "gate_type": "UNIT"}
    for beside, refused in (((), None), ((bare, land.run, "operator", commanding.OPERATOR, ["touch", "x"]), bare)):
        born = uuid7()
        own = (born, land.run, "operator", commanding.OPERATOR, ["true"])
        land.dba.execute("BEGIN")
        land.dba.execute(BIRTH, (born, "test_gate", "PENDING", f"g-{born}", land.project, Jsonb(context)))
        if refused is None:
            land.dba.execute(COMMAND, own)
        else:
            with pytest.raises(RestrictViolation, match=f"instance {refused} cannot get a command"):
                land.dba.execute(f"{COMMAND}, (%s, %s, %s, %s, 'x', 'command', %s)".encode(), (*own, *beside))
        land.dba.execute("ROLLBACK")


def test_where_a_plans_work_is_done_never_changes(land: Landscape) -> None:
    task = land.task(dict(ONE_LINE))
    elsewhere = land.client.create("run", "elsewhere", project=land.project)["id"]
    with pytest.raises(RestrictViolation, match="a plan is stored when its run is created"):
        land.dba.execute("INSERT INTO plans (run_id, body, directory) VALUES (%s, '{}', '/')", (elsewhere,))
    with pytest.raises(BadInput, match="takes no workstream that its plan does not name"):
        by_hand(land, "workstream", name="w")
    theirs = land.client.create("workstream", "own", project=land.project, context={"run_id": str(elsewhere)})["id"]
    for change in (
        'UPDATE workflow_instances SET context = context || \'{"name": "other"}\' WHERE id = %(task)s',
        "UPDATE tasks SET workstream_id = %(theirs)s WHERE task_id = %(task)s",
        "UPDATE tasks SET kind = 'command' WHERE task_id = %(task)s",
        "UPDATE workstreams SET run_id = %(run)s WHERE ws_id = %(theirs)s",
    ):
        with pytest.raises(RestrictViolation):
            land.dba.execute(change, {"task": task, "theirs": theirs, "run": land.run})


def test_what_is_made_anew_keeps_its_command_and_says_who_made_it(runtime: Runtime, client: Client, site: Site) -> None:
    (task,) = site.submit(1, command=["echo", "again"])
    drain_all(runtime)
    done = reset_task(runtime, str(task), OverrideOrder(commanding.OPERATOR, "once more"))
    (new,) = done.made.values()
    before, after = client.show(task)["command"], client.show(new)["command"]
    assert after["argv"] == before["argv"] == ["echo", "again"]
    assert (after["source"], after["made_by"], after["reason"]) == ("operator", commanding.OPERATOR, "once more")
