"""A name means an instance of one project, through every door; a UUID means its instance, whatever the project."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration import patches
from interlock.workers.circuit_breakers import BreakerOpen, calling, known
from interlock.workers.client.async_client import AsyncClient, AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import settle
from interlock.workers.operations.bisect import find_regression
from interlock.workers.operations.playbooks import PLAYBOOKS
from interlock.workers.operations.rollback import compensation_plan
from interlock.workers.orchestration.resume import resume
from interlock.workers.orchestration.submission import submit
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import drop_patch, fail_workstream, validate_workstream
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import AlreadyExists, BadInput, Refused, UnknownInstance
from interlock.workflows.plan.problems import PlanInvalid
from interlock.workflows.plan.read import read_plan
from tests.rights import grant

Dba = psycopg.Connection[Any]
PLAN = "name: night\nworkstreams:\n  - id: w\n    tasks:\n      - {id: t, command: ['true']}\n"
ORDER, WHY = OverrideOrder("ann", "a test"), ActionOrder("ann", "a test")
MINE, OTHERS = "mine", "others"
UNGOVERNED = "workflow_instances WHERE project <> 'interlock:governance'"

# Every function that looks up a name, as (what is created in the other project, the function).
Door = Callable[[Client, str], object]
DOORS: dict[str, tuple[str, Door]] = {
    "show": ("story", lambda client, name: client.show(name)),
    "history": ("story", lambda client, name: client.history(name)),
    "fire": ("story", lambda client, name: client.fire(name, "block", by="ann")),
    "resume": ("run", lambda client, name: resume(client.runtime, name, by="ann")),
    "bisect of a run": ("run", lambda client, name: find_regression(client.runtime, "true", run_ref=name)),
    "complete-task": ("task", lambda client, name: complete_task(client.runtime, name, ORDER)),
    "fail-task": ("task", lambda client, name: fail_task(client.runtime, name, ORDER)),
    "reset-task": ("task", lambda client, name: reset_task(client.runtime, name, ORDER)),
    "rerun-gate": ("test_gate", lambda client, name: rerun_gate(client.runtime, name, ORDER)),
    "skip-step": ("task", lambda client, name: skip_step(client.runtime, name, ORDER)),
    "unblock-task": ("task", lambda client, name: unblock_task(client.runtime, name, ORDER)),
    "fail-workstream": ("workstream", lambda client, name: fail_workstream(client.runtime, name, ORDER)),
    "validate-workstream": ("workstream", lambda client, name: validate_workstream(client.runtime, name, ORDER)),
    "drop-patch": ("patch_ledger", lambda client, name: drop_patch(client.runtime, name, ORDER)),
    "compensation": ("patch_ledger", lambda client, name: compensation_plan(client.runtime, name)),
    "reset-breaker": ("circuit_breaker", lambda client, name: reset_breaker(client.runtime, name, ORDER)),
    "playbook": (
        "workstream",
        lambda client, name: list(PLAYBOOKS["recover-workstream"](client.runtime, name, ORDER)),
    ),
    "job": ("job", lambda client, name: Jobs(client).cancel(name, WHY)),
    "supervised worker": ("supervised_worker", lambda client, name: Supervisor(client).terminate(name, WHY)),
}


@pytest.fixture
def others(make_runtime: Callable[..., Runtime]) -> Client:
    """A client of another project."""
    return Client(make_runtime(project=OTHERS))


@pytest.fixture
def mine(make_runtime: Callable[..., Runtime]) -> Client:
    """A client of a project, in whose name operators may act."""
    made = Client(make_runtime(project=MINE))
    grant(made, "ann")
    return made


def one_of_each(client: Client) -> dict[str, dict[str, Any]]:
    """An instance of each type that the doors look up, under one name."""
    made: dict[str, dict[str, Any]] = {}

    def create(type_: str, **context: Any) -> None:
        made[type_] = dict(client.create(type_, "X-1", context=context))

    create("story", author="ann")
    create("run")
    create("workstream", run_id=str(made["run"]["id"]), name="w")
    about = {"run_id": str(made["run"]["id"]), "workstream_id": str(made["workstream"]["id"])}
    create("task", **about, name="w/t", kind="command")
    create("test_gate", **about, name="w/g", gate_type="UNIT")
    with client.runtime.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO interlock.patches (patch_id, body, created_by) VALUES (%s, 'x', 'ann')", (str(uuid7()),)
        )
        patch_id = connection.exec_driver_sql("SELECT patch_id FROM interlock.patches LIMIT 1").scalar_one()
    create("patch_ledger", **about, patch_id=patch_id)
    create("circuit_breaker", tool_id="X-1")
    create("job", task_description="x", depth=0, worker_count=1)
    create("supervised_worker")
    return made


def states(dba: Dba) -> dict[UUID, tuple[str, int]]:
    return {
        row[0]: (row[1], row[2])
        for row in dba.execute("SELECT id, current_state, version FROM workflow_instances").fetchall()
    }


@pytest.mark.parametrize("door", DOORS)
def test_no_door_finds_a_name_in_another_project(door: str, mine: Client, others: Client, dba: Dba) -> None:
    one_of_each(others)
    before = states(dba)
    _, act = DOORS[door]
    with pytest.raises(UnknownInstance, match=r"project mine.*others"):
        act(mine, "X-1")
    assert states(dba) == before


@pytest.mark.parametrize("door", DOORS)
def test_a_name_and_a_uuid_mean_the_instance_of_the_project(
    door: str, mine: Client, others: Client, dba: Dba, seen: list[UUID]
) -> None:
    """Both projects have the name; what a door then says or does is about its own project's instance."""
    foreign, own = one_of_each(others), one_of_each(mine)
    type_, act = DOORS[door]
    for ref, wanted in ((f"{type_}/X-1", own[type_]), (str(foreign[type_]["id"]), foreign[type_])):
        seen.clear()
        with suppress(Refused):  # what the door makes of the instance is not this test's matter
            act(mine, ref)
        assert wanted["id"] in seen


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The ids of the instances that names were resolved to."""
    found: list[UUID] = []
    find, find_many = instances.find, instances.find_many

    def noted(*given: Any, **named: Any) -> Any:
        row = find(*given, **named)
        found.append(row["id"])
        return row

    def noted_many(*given: Any, **named: Any) -> Any:
        rows = find_many(*given, **named)
        found.extend(row["id"] for row in rows.values())
        return rows

    monkeypatch.setattr(instances, "find", noted)
    monkeypatch.setattr(patches, "find_instance", noted)
    monkeypatch.setattr(instances, "find_many", noted_many)
    return found


def test_the_async_client_too(mine: Client, others: Client) -> None:
    asyncio.run(_through_the_async_client(mine, others.create("story", "S-1")["id"]))


async def _through_the_async_client(mine: Client, foreign: UUID) -> None:
    async with AsyncClient(AsyncRuntime(mine.runtime.settings)) as client:
        assert client.project == MINE
        with pytest.raises(UnknownInstance, match="others"):
            await client.show("S-1")
        own = (await client.create("story", "S-1"))["id"]
        assert (await client.show("S-1"))["id"] == own
        assert (await client.show(foreign))["project"] == OTHERS
        receipt = await client.fire("S-1", "design_complete", by="ann")
        assert receipt.workflow_id == own
    async with AsyncClient(AsyncRuntime(mine.runtime.settings), project=OTHERS) as client:
        assert (await client.show("S-1"))["id"] == foreign


def test_a_clients_own_project_goes_before_the_setting(mine: Client, others: Client) -> None:
    foreign = others.create("story", "S-1")["id"]
    client = Client(mine.runtime, project=OTHERS)
    assert client.show("S-1")["id"] == foreign
    assert client.fire("S-1", "design_complete", by="ann").workflow_id == foreign
    with pytest.raises(AlreadyExists, match="project others"):
        client.create("story", "S-1")
    assert client.create("story", "S-1", project=MINE)["project"] == MINE


def test_without_a_setting_it_is_the_default_one(client: Client, project: str) -> None:
    assert client.project == project == "default" == Settings().project
    assert client.create("story", "S-1")["project"] == "default"


def test_a_uuid_is_a_project_in_one_spelling(client: Client, dba: Dba) -> None:
    id_ = uuid7()
    for number, spelled in enumerate((id_, str(id_), str(id_).upper())):
        assert client.create("story", f"S-{number}", project=spelled)["project"] == str(id_)
    birth = (
        "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
        " created_by) VALUES (gen_random_uuid(), 'story', '1.0.0', 'analysis', 'S-9', %s, 'x')"
    )
    with pytest.raises(psycopg.errors.CheckViolation, match="upper case"):
        dba.execute(birth, (str(id_).upper(),))


@pytest.mark.parametrize("wrong", ["", " x", "x ", "a\u202eb", "a\nb", "x" * 101, "e\u0301"])
def test_what_is_no_name_is_no_project_at_any_door(wrong: str, client: Client, dba: Dba) -> None:
    for act in (
        lambda: Client(client.runtime, project=wrong),
        lambda: client.create("story", "S-1", project=wrong),
        lambda: client.birth("story", "S-1", project=wrong),
        lambda: read_plan(f"project: {json.dumps(wrong)}\n{PLAN}"),
        lambda: Settings(project=wrong),
    ):
        with pytest.raises((BadInput, PlanInvalid)):
            act()
    birth = (
        "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
        " created_by) VALUES (gen_random_uuid(), 'story', '1.0.0', 'analysis', 'S-9', %s, 'x')"
    )
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.StringDataRightTruncation)):
        dba.execute(birth, (wrong,))


@pytest.mark.parametrize(("said", "project"), [("", MINE), ("project: elsewhere\n", "elsewhere")])
def test_a_run_is_of_the_plans_project_or_the_submitters(
    said: str, project: str, mine: Client, dba: Dba, tmp_path: Path
) -> None:
    run = submit(mine.runtime, read_plan(said + PLAN), by="ann", directory=tmp_path, run_name="night-1")
    assert run.project == project
    assert dba.execute(f"SELECT DISTINCT project FROM {UNGOVERNED}").fetchall() == [(project,)]
    with pytest.raises(AlreadyExists, match=f"project {project}"):
        submit(mine.runtime, read_plan(said + PLAN), by="ann", directory=tmp_path, run_name="night-1")


def test_a_run_is_resumed_in_its_own_project(
    make_runtime: Callable[..., Runtime], mine: Client, others: Client, tmp_path: Path
) -> None:
    """Also by its UUID from another project."""
    run = submit(others.runtime, read_plan(PLAN), by="ann", directory=tmp_path, run_name="night-1")
    drained = others.fire("night-1", "cancel", by="ann")

    assert settle(others.runtime, drained.request_id, run.id)["status"] == "applied"
    with pytest.raises(UnknownInstance, match="others"):
        resume(mine.runtime, "night-1", by="ann")
    assert resume(mine.runtime, str(run.id), by="ann").project == OTHERS


def test_a_tools_breaker_is_its_projects(mine: Client, others: Client) -> None:
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), calling(others.runtime, OTHERS, "pytest"):
            raise ZeroDivisionError
    with pytest.raises(BreakerOpen, match="--project others"), calling(others.runtime, OTHERS, "pytest"):
        pass
    with pytest.raises(UnknownInstance, match="project mine"):
        known(mine.runtime, MINE, "pytest")
    with calling(mine.runtime, MINE, "pytest"):
        pass
    assert known(mine.runtime, MINE, "pytest").state == "CLOSED"


def test_an_unknown_name_is_listed_for_in_the_project_asked(mine: Client) -> None:
    id_ = mine.create("story", "S-1")["id"]
    with pytest.raises(UnknownInstance, match="interlock list --project mine shows"):
        mine.show("S-2")
    with pytest.raises(UnknownInstance, match="interlock list --type run --project mine shows"):
        resume(mine.runtime, "S-1", by="ann")
    with pytest.raises(UnknownInstance, match="interlock list shows"):
        mine.show(uuid7())
    with pytest.raises(UnknownInstance, match="interlock breaker list --project mine shows"):
        known(mine.runtime, MINE, "pytest")
    with pytest.raises(UnknownInstance, match="leave story/ out"):
        mine.show(f"story/{id_}")


def test_a_name_that_several_projects_have_is_told_with_all_of_them(mine: Client) -> None:
    for each in "abc":
        mine.create("story", "S-1", project=each)
    with pytest.raises(UnknownInstance, match="a, b, c"), transaction(mine.runtime.database) as connection:
        instances.find(connection, "S-1", MINE)
    for each in ("d", "e", "f g", "h"):
        mine.create("story", "S-1", project=each)
    with pytest.raises(UnknownInstance, match="a, b, c, d, e, 'f g' and others;"):
        mine.show("S-1")
    with pytest.raises(UnknownInstance) as unknown, transaction(mine.runtime.database) as connection:
        instances.find(connection, "S-1", MINE, "sprint")
    assert "a, b" not in str(unknown.value), "a story is no sprint"
