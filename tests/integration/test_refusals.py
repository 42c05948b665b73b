"""Whoever tries what is not theirs leaves an event, and cannot fill history with them (docs/spec/refusals.md)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from interlock.db import refusals
from interlock.db.audit.reports import Period
from interlock.db.core.deprecations import DefinitionPart
from interlock.db.statements import as_json
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit.reports import Wanted, make_report
from interlock.workers.client.async_client import AsyncClient, AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.definitions.instance_migration import Migration, migrate
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.operations import metrics
from interlock.workers.operations.playbooks import PLAYBOOKS
from interlock.workers.overrides import deprecations, operators, workers
from interlock.workers.overrides.narrowing import narrow, widen_again
from interlock.workers.overrides.reset_task import skip_step
from interlock.workers.overrides.tasks import fail_task
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.supervision.actions import ActionOrder, right_to
from interlock.workflows.errors import Attempt, NotYours
from tests import databases
from tests.crewing import Site, hand
from tests.driving import drain_all
from tests.rights import grant

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
Sql = Callable[..., Any]
RECORD = "SELECT interlock.record_refusal('accept_all', %s::json)"
ACCEPT = "SELECT * FROM interlock.accept_all(%s::json)"


@pytest.fixture
def outsider(servers: Servers, database_url: str, make_runtime: Callable[..., Runtime]) -> Client:
    """An application's client, with a login for it."""
    return Client(make_runtime(database_url=databases.as_client(servers, database_url), owner_url=None))


@pytest.fixture
def its_sql(servers: Servers, database_url: str) -> Iterator[Dba]:
    with psycopg.connect(databases.as_client(servers, database_url), autocommit=True) as connection:
        yield connection


@pytest.fixture
def worker(client: Client) -> UUID:
    return hand(client.runtime)


def events(client: Client, dba: Dba) -> list[dict[str, Any]]:
    """The refusals that history has, oldest first."""
    drain_all(client.runtime)
    rows = dba.execute(
        "SELECT i.project, i.entity_id, t.login, t.triggered_by, t.severity, t.authority, t.proof, t.metadata"
        "  FROM workflow_transitions t JOIN workflow_instances i ON i.id = t.workflow_id"
        " WHERE i.workflow_type = 'refusal_log' ORDER BY t.created_at, t.seq"
    )
    names = ("project", "log", "login", "by", "severity", "authority", "proof", "metadata")
    return [dict(zip(names, row, strict=True)) for row in rows]


def row(instance: UUID, trigger: str, **more: Any) -> dict[str, Any]:
    given = {"request_id": uuid4().hex, "fingerprint": "00", "workflow_id": instance, "trigger": trigger}
    return given | {"triggered_by": "mallory", "metadata": {}, "origin": "agent"} | more


def test_the_event_says_who_where_what_and_what_was_lacking(
    outsider: Client, client: Client, dba: Dba, worker: UUID
) -> None:
    name = client.show(worker)["entity_id"]
    with pytest.raises(NotYours, match="mallory may not fire suspend"):
        outsider.fire(worker, "suspend", by="mallory", data={"reason": "because", "password": "s3cret"})
    (told,) = events(client, dba)
    assert (told["project"], told["log"], told["login"]) == ("interlock:workers", *["interlock_client"] * 2)
    assert (told["by"], told["severity"]) == ("mallory", "warning")
    assert (told["authority"], told["proof"]) == ("machinery", "refusal")
    reason = f"mallory may not fire suspend of worker {name}: the login interlock_client can be no operator but itself"
    assert told["metadata"] == {
        "attempted": "suspend",
        "instance": f"worker/{name}",
        "instance_id": str(worker),
        "reason": reason,
    }
    log = client.show(_log(dba))
    assert (log["created_by"], log["context"], log["current_state"]) == ("interlock_client", {}, "open")
    assert client.verify(log["id"]) == ()


def test_every_way_that_refuses_records_once(
    client: Client, outsider: Client, dba: Dba, project: str, worker: UUID, database_url: str
) -> None:
    (task,) = Site(client, project).queue()
    job = client.create("job", "J-1", project=project, context={"depth": 0}, by="ann")["id"]
    story = client.create("story", "S-1", project=project)["id"]

    async def awaited() -> None:
        async with AsyncClient(AsyncRuntime(client.runtime.settings)) as there:
            await there.fire(worker, "suspend", by="mallory", data={"reason": "mine"})

    ways: dict[str, Callable[[], object]] = {
        "gate, by nobody's right": lambda: client.fire(task, "execution_completed", by="mallory"),
        "an operator's": lambda: client.fire(worker, "suspend", by="mallory", data={"reason": "mine"}),
        "another's claim": lambda: client.fire(task, "execution_completed", by="mallory", proof="claim:7"),
        "several": lambda: client.fire_many(
            [Firing(story, "block", "mallory"), Firing(worker, "suspend", "mallory", data={"reason": "mine"})]
        ),
        "asyncio": lambda: asyncio.run(awaited()),
        "a job's": lambda: right_to(client, job, "success", ActionOrder("mallory")),
        "a creation": lambda: outsider.create("worker", "eve", project=project, by="mallory"),
        "creations": lambda: outsider.create_many([outsider.birth("worker", "eve", project=project, by="mallory")]),
    }
    for number, (name, way) in enumerate(ways.items(), 1):
        with pytest.raises(NotYours):
            way()
        found = events(client, dba)
        assert len(found) == number, name
        assert found[-1]["by"] == "mallory", name
    assert {each["metadata"]["attempted"] for each in found} == {
        *("execution_completed", "suspend", "success", "create")
    }
    assert "instance_id" not in found[-1]["metadata"]
    assert found[-1]["metadata"]["instance"] == "worker/eve"


def test_what_only_operators_may_is_recorded_for_whoever_tries_it(
    client: Client, dba: Dba, project: str, worker: UUID
) -> None:
    runtime, order = client.runtime, OverrideOrder("mallory", "mine")
    name, why = client.show(worker)["entity_id"], {"by": "mallory", "reason": "mine"}
    task = str(Site(client, project).queue()[0])
    breaker = client.create("circuit_breaker", "CB-1", project=project, context={"tool_id": "x"})["id"]
    part, removed = DefinitionPart("story", "1.0.0"), "deprecation of story 1.0.0"
    crossing = Migration("story", "1.0.0", "1.1.0", **why)
    grant(client, "ann")
    ways: dict[str, tuple[str, Callable[[], object]]] = {
        "skip-step": (f"task/{client.show(task)['entity_id']}", lambda: skip_step(runtime, task, order)),
        "fail-task": ("T-0", lambda: fail_task(runtime, "T-0", replace(order, dry_run=True))),
        "reset-breaker": (
            "circuit_breaker/CB-1",
            lambda: next(PLAYBOOKS["reset-breaker"](runtime, str(breaker), order)),
        ),
        "grant": ("operator_grant of mallory, eve", lambda: operators.grant(runtime, ["mallory", "eve"], **why)),
        "revoke": ("operator_grant of ann", lambda: operators.revoke(runtime, "ann", **why)),
        "announce": (removed, lambda: deprecations.announce(runtime, part, order)),
        "approve_removal": (removed, lambda: deprecations.approve_removal(runtime, "story", "1.0.0", order)),
        "enforce": ("narrowing of story.block", lambda: narrow(runtime, "story", "block", ["operator"], order)),
        "lift": ("narrowing of story.block", lambda: widen_again(runtime, "story", "block", order)),
        "suspend": (f"worker/{name}", lambda: workers.move(runtime, name, "suspend", order)),
        "shutdown_requested": (f"worker/{name}", lambda: workers.shut_down(runtime, name, **why)),
        "migrate": ("story 1.0.0", lambda: migrate(runtime.database, runtime.catalogue, crossing)),
    }
    for attempted, (_, way) in ways.items():
        with pytest.raises(NotAnOperator):
            way()
        assert events(client, dba)[-1]["metadata"]["attempted"] == attempted
    found = events(client, dba)
    assert {each["metadata"]["attempted"]: each["metadata"]["instance"] for each in found} == {
        attempted: instance for attempted, (instance, _) in ways.items()
    }
    assert {(each["by"], each["login"], each["metadata"]["reason"]) for each in found} == {
        ("mallory", "interlock_engine", "mallory is not an operator")
    }
    assert found[0]["metadata"]["instance_id"] == task
    with pytest.raises(psycopg.Error, match="does not refuse that"):
        dba.execute("SELECT interlock.record_refusal('operate', %s::json)", [as_json([{"triggered_by": "ann"}])])


def test_a_callers_transaction_is_left_as_it_is(client: Client, dba: Dba, project: str, worker: UUID) -> None:
    suspend = Firing(worker, "suspend", "mallory", data={"reason": "mine"})
    with Session(client.runtime.database) as session:
        client.create("story", "S-1", project=project, session=session)
        (xid,) = session.connection().exec_driver_sql("SELECT pg_current_xact_id()::text").one()
        with pytest.raises(NotYours):  # refused before PostgreSQL is asked: the transaction goes on
            client.fire(worker, "task_assigned", by="mallory", session=session)
        assert session.connection().exec_driver_sql("SELECT pg_current_xact_id()::text").one() == (xid,)
        with pytest.raises(NotYours):
            client.fire_many([suspend], session=session)
        session.rollback()
    assert [each["metadata"]["attempted"] for each in events(client, dba)] == ["task_assigned", "suspend"]
    with Session(client.runtime.database) as session:  # what only this transaction knows
        made = client.create("job", "J-1", project=project, context={"depth": 0}, session=session)["id"]
        with pytest.raises(NotYours):
            client.fire(made, "success", by="mallory", session=session)
        session.commit()
    assert len(events(client, dba)) == 2


def test_a_transaction_of_another_login_is_not_recorded(
    client: Client, servers: Servers, database_url: str, dba: Dba, worker: UUID
) -> None:
    other = create_engine(databases.as_client(servers, database_url).replace("postgresql:", "postgresql+psycopg:", 1))
    with other.connect() as connection, pytest.raises(NotYours):
        client.fire(worker, "task_assigned", by="mallory", session=connection)
    other.dispose()
    assert events(client, dba) == []


def test_twenty_in_an_hour_are_events_and_all_are_counted(
    outsider: Client, client: Client, dba: Dba, project: str, worker: UUID
) -> None:
    job = client.create("job", "J-1", project=project, context={"depth": 0})["id"]
    for number in range(25):
        with pytest.raises(NotYours):
            outsider.fire(worker, "suspend", by=f"mallory {number % 3}", data={"reason": "mine"})
    assert len(events(client, dba)) == 20
    with pytest.raises(NotYours):  # another project, another log
        outsider.fire(job, "success", by="mallory")
    with pytest.raises(NotYours):  # another login, another log
        client.fire(worker, "suspend", by="mallory", data={"reason": "mine"})
    assert len(events(client, dba)) == 22
    counted = metrics.read(client.runtime)
    assert counted["interlock_refusals_total", ("interlock_client",)] == 26
    dba.execute("UPDATE refusal_counts SET recent = ARRAY(SELECT at - interval '1 hour' FROM unnest(recent) AS at)")
    with pytest.raises(NotYours):
        outsider.fire(worker, "suspend", by="mallory", data={"reason": "mine"})
    assert len(events(client, dba)) == 23


def test_one_name_does_not_hide_the_others(outsider: Client, client: Client, dba: Dba, worker: UUID) -> None:
    for by in (*["confused"] * 15, "mallory"):
        with pytest.raises(NotYours):
            outsider.fire(worker, "suspend", by=by, data={"reason": "mine"})
    assert Counter(event["by"] for event in events(client, dba)) == {"confused": 10, "mallory": 1}


def test_a_hundred_in_all_projects_are_events(its_sql: Dba, client: Client, dba: Dba) -> None:
    job = client.runtime.catalogue.get("job")
    jobs = [client.birth("job", "J", project=f"P-{number}", context={"depth": 0}, by=job.type) for number in range(105)]
    client.create_many(jobs)
    recorded = [its_sql.execute(RECORD, [as_json([row(each.id, "success")])]).fetchone() for each in jobs]
    assert recorded == [(True,)] * 100 + [(False,)] * 5
    assert len(events(client, dba)) == 100
    assert dba.execute("SELECT count(*) FROM refusal_counts").fetchone() == (101,)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"authority": "machinery", "proof": "refusal"},
        {"authority": "machinery", "proof": "state:0", "bound_version": 0},
        {"authority": "operator", "proof": "refusal"},
        {"authority": "effect", "proof": "refusal"},
        {"authority": "holder", "proof": "itself"},
    ],
    ids=str,
)
def test_nobody_fills_a_log(
    outsider: Client, client: Client, its_sql: Dba, dba: Dba, worker: UUID, more: dict[str, Any]
) -> None:
    with pytest.raises(NotYours):
        outsider.fire(worker, "suspend", by="mallory", data={"reason": "mine"})
    before = events(client, dba)
    (newest,) = dba.execute("SELECT request_id FROM refusal_counts WHERE project <> ''").fetchone() or ("",)
    dba.execute("DELETE FROM trigger_requests WHERE request_id = %s", (newest,))  # as the sweep does, later
    for sql in (its_sql, dba):
        for request_id in (uuid4().hex, newest):
            with pytest.raises(InsufficientPrivilege):
                sql.execute(ACCEPT, [as_json([row(_log(dba), "refuse", request_id=request_id, **more)])])
    assert events(client, dba) == before


def test_nobody_writes_into_the_log_of_another_login(client: Client, its_sql: Dba, dba: Dba, project: str) -> None:
    birth = {"id": uuid4(), "workflow_type": "refusal_log", "definition_version": "1.0.0", "current_state": "open"}
    birth |= {"entity_id": "somebody", "project": project, "context": {}, "created_by": "somebody"}
    with pytest.raises(InsufficientPrivilege, match="creating a refusal_log"):
        its_sql.execute("SELECT interlock.create_all(%s::json)", [as_json([birth])])
    for change in (
        "INSERT INTO interlock.refusal_counts (login, project) VALUES ('somebody', 'p')",
        "UPDATE interlock.refusal_counts SET total = 0",
        "DELETE FROM interlock.refusal_counts",
    ):
        for role in ("interlock_client", "interlock_engine"):
            with dba.transaction(force_rollback=True):
                dba.execute(f"SET LOCAL ROLE {role}")  # type: ignore[call-overload]
                with pytest.raises(InsufficientPrivilege):
                    dba.execute(change)  # type: ignore[call-overload]


def test_what_postgresql_does_not_refuse_is_not_recorded(client: Client, its_sql: Dba, dba: Dba, project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    with pytest.raises(psycopg.Error, match="does not refuse that"):
        its_sql.execute(RECORD, [as_json([row(story, "block")])])
    with pytest.raises(psycopg.Error):
        its_sql.execute(RECORD, [as_json([row(uuid4(), "block")])])
    assert events(client, dba) == []
    assert client.show(story)["requests"] == []
    assert dba.execute("SELECT count(*) FROM refusal_counts").fetchone() == (0,)


def test_a_refusal_stays_one_whatever_becomes_of_its_record(
    outsider: Client, client: Client, dba: Dba, worker: UUID
) -> None:
    def refused() -> None:
        with pytest.raises(NotYours, match="can be no operator but itself"):
            outsider.fire(worker, "suspend", by="mallory", data={"reason": "mine"})

    refused()
    with dba.transaction():  # another session holds the count
        dba.execute("SELECT FROM refusal_counts FOR UPDATE")
        refused()
    dba.execute("DROP FUNCTION record_refusal")
    refused()
    assert len(events(client, dba)) == 1


def test_a_record_that_cannot_be_made_is_no_error(make_runtime: Callable[..., Runtime]) -> None:
    away = make_runtime(database_url="postgresql://nobody:x@127.0.0.1:1/none")
    refused = NotYours("not yours")
    refused.attempt = Attempt("accept_all", [])
    refusals.record(away.database, refused)
    assert refused.attempt is None


def test_a_report_lists_attempts_on_what_it_covers(outsider: Client, client: Client, dba: Dba, project: str) -> None:
    jobs = [client.create("job", f"J-{n}", project=project, context={"depth": 0})["id"] for n in range(2)]
    for job in jobs:
        with pytest.raises(NotYours):
            outsider.fire(job, "success", by="mallory")
    with pytest.raises(NotYours):
        outsider.create("worker", "eve", project=project, by="mallory")
    drain_all(client.runtime)
    one = make_report(client.runtime, Wanted(ref=jobs[0])).report.refusals
    assert [(each.workflow_id, each.trigger, each.by, each.login, each.status) for each in one] == [
        (str(jobs[0]), "success", "mallory", "interlock_client", "refused")
    ]
    assert "mallory may not fire success of job J-0" in one[0].message
    whole = make_report(client.runtime, Wanted(period=Period(), project=project))
    assert [each.trigger for each in whole.report.refusals] == ["success", "success", "create"]
    assert whole.report.refusals[-1].workflow_id == str(_log(dba))
    assert "mallory may not fire success of job J-1" in whole.page


def _log(dba: Dba) -> UUID:
    (found,) = dba.execute("SELECT id FROM workflow_instances WHERE workflow_type = 'refusal_log'").fetchone() or (
        None,
    )
    assert isinstance(found, UUID)
    return found
