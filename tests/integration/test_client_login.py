"""A login that is a member of `interlock_client` only: it creates instances of its own types, fires triggers, reads."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege
from sqlalchemy.orm import Session

from interlock.db.statements import as_json
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotYours
from tests import databases
from tests.crewing import Site, hand
from tests.driving import drain_all, state
from tests.rights import grant

pytestmark = pytest.mark.integration


@pytest.fixture
def outsider(servers: Servers, database_url: str, make_runtime: Callable[..., Runtime]) -> Client:
    """An application's client, with a login for it."""
    return Client(make_runtime(database_url=databases.as_client(servers, database_url), owner_url=None))


@pytest.fixture
def its_sql(servers: Servers, database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Raw SQL under the same login."""
    with psycopg.connect(databases.as_client(servers, database_url), autocommit=True) as connection:
        yield connection


def test_it_creates_fires_waits_and_reads(outsider: Client, runtime: Runtime, project: str) -> None:
    made = outsider.create("story", "S-1", project=project)["id"]
    outsider.create_many([outsider.birth("sprint", f"P-{number}", project=project) for number in range(3)])
    outsider.create("story", "S-2", project=project, context={"sprint_id": "P-1"})
    assert [each["entity_id"] for each in outsider.show("sprint/P-1")["links"]] == ["S-2"]
    first = outsider.fire(made, "design_complete", by="ann")
    again = outsider.fire(made, "design_complete", by="ann", request_id=first.request_id)
    assert again.request_id == first.request_id
    later = outsider.fire(made, "block", by="ann", after=timedelta(hours=1))
    outsider.fire_many([Firing(f"sprint/P-{number}", "start", "ann") for number in range(3)])
    with Session(outsider.runtime.database) as session:
        outsider.fire(made, "start_coding", by="ann", session=session)
        session.rollback()
    drain_all(runtime)
    assert [each.status for each in outsider.wait([first.request_id])] == ["applied"]
    shown = outsider.show(made)
    assert shown["current_state"] == "design"
    assert {each["request_id"] for each in shown["requests"]} == {first.request_id, later.request_id}
    assert [each["login"] for each in outsider.history(made)] == ["interlock_client"]
    assert outsider.verify(made) == ()


def test_what_interlock_carries_out_it_does_not_create(outsider: Client, project: str) -> None:
    search = {"run_id": str(uuid4()), "gate_id": str(uuid4()), "gate": "g"}
    created = {
        "circuit_breaker": {"tool_id": "T"},
        "worker": {"capabilities": ["python"]},
        "run": {},
        "regression": search,
        "rollback": {"run_id": str(uuid4()), "ledger_id": str(uuid4())},
    }
    for type_, given in created.items():
        with pytest.raises(NotYours, match=f"creating a {type_} needs a member of interlock_engine"):
            outsider.create(type_, "T", project=project, context=given)


def test_it_is_no_operator_but_itself(outsider: Client, client: Client, project: str) -> None:
    worker = hand(client.runtime)
    grant(client, "ann")
    with pytest.raises(NotYours, match="can be no operator but itself"):
        outsider.fire(worker, "suspend", by="ann", data={"reason": "because"})
    grant(client, "interlock_client")
    outsider.fire(worker, "suspend", by="interlock_client", data={"reason": "because"})
    drain_all(client.runtime)
    assert state(client, worker) == "suspended"


def test_no_worker_speaks_through_it(outsider: Client) -> None:
    with pytest.raises(NotYours, match="refuses that to the login interlock_client"):
        Agent("eve", capabilities=["python"], runtime=outsider.runtime).register()


def test_a_claims_token_is_not_read(client: Client, its_sql: Any, project: str) -> None:
    Site(client, project).queue()
    its_sql.execute("SELECT claim_id, task_id, worker_id FROM interlock.task_claims")
    for told in ("token", "*", "task_claims"):
        with pytest.raises(InsufficientPrivilege):
            its_sql.execute(f"SELECT {told} FROM interlock.task_claims")


def row(instance: UUID, trigger: str, **more: Any) -> dict[str, Any]:
    given = {"request_id": uuid4().hex, "fingerprint": "00", "workflow_id": instance, "trigger": trigger}
    return given | {"triggered_by": "mallory", "metadata": {}, "origin": "agent"} | more


ACCEPT = "SELECT * FROM interlock.accept_all(%s::json)"
OVERRIDE = {"operator": "ann", "override": {"a": 1}, "reason": "mine"}


@pytest.mark.parametrize("trigger", ["block", "nosuch"])
@pytest.mark.parametrize(
    "more",
    [
        {"request_id": "interlock:claim:7:start"},
        {"request_id": "interlock:claim:8:start", "authority": "holder", "proof": "itself"},
        {"origin": "timer"},
        {"origin": "follow_up"},
        {"origin": "override", "metadata": OVERRIDE},
        {"origin": "override", "metadata": OVERRIDE, "delay_seconds": 3600},
    ],
    ids=str,
)
def test_it_speaks_for_no_part_of_interlock(
    client: Client, its_sql: Any, project: str, trigger: str, more: dict[str, Any]
) -> None:
    grant(client, "ann")
    story = client.create("story", "S-1", project=project)["id"]
    with pytest.raises(InsufficientPrivilege, match="is open to: machinery"):
        its_sql.execute(ACCEPT, [as_json([row(story, trigger, **more)])])


def test_it_moves_no_worker_in_the_workers_name(client: Client, its_sql: Any) -> None:
    worker = hand(client.runtime)
    name = client.show(worker)["entity_id"]
    for claimed in ({}, {"authority": "holder", "proof": "itself"}):
        with pytest.raises(InsufficientPrivilege, match="is open to"):
            its_sql.execute(ACCEPT, [as_json([row(worker, "shutdown_requested", triggered_by=name, **claimed)])])


def test_a_vote_has_no_proof_that_it_made_up(client: Client, its_sql: Any, dba: Any, project: str) -> None:
    approval = client.create("approval", "A-1", project=project, context={"author": "ann", "quorum": 1})["id"]
    its_sql.execute(ACCEPT, [as_json([row(approval, "approve", proof="grant:1")])])
    assert dba.execute("SELECT authority, proof FROM trigger_requests WHERE triggered_by = 'mallory'").fetchall() == [
        ("decider", None)
    ]


@pytest.mark.parametrize(
    "more", [{"trace": "xxxx"}, {"not_before": "infinity"}, {"not_before": "294276-01-01"}], ids=str
)
def test_what_it_writes_breaks_nothing_that_reads_it(
    client: Client, its_sql: Any, project: str, more: dict[str, Any]
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    with pytest.raises(CheckViolation):
        its_sql.execute(ACCEPT, [as_json([row(story, "block", **more)])])


def test_it_links_only_what_it_creates(client: Client, its_sql: Any, project: str) -> None:
    made = [client.create("story", f"S-{number}", project=project)["id"] for number in range(2)]
    with pytest.raises(InsufficientPrivilege, match="links only what it creates"):
        its_sql.execute(
            "SELECT * FROM interlock.link_all(json_build_array(json_build_object('source_id', %s::text, 'role', 'x',"
            " 'inverse', 'y', 'type', 'story', 'target_id', %s::text)))",
            made,
        )
    mine = uuid4()
    birth = {"id": mine, "workflow_type": "story", "definition_version": "1.0.0", "current_state": "analysis"}
    birth |= {"entity_id": "evil", "project": project, "context": {}, "created_by": "eve"}
    link = {"source_id": mine, "role": "story", "inverse": "depends_on", "type": "story", "target_id": made[0]}
    with its_sql.transaction(force_rollback=True):
        its_sql.execute("SELECT * FROM interlock.create_all(%s::json)", [as_json([birth])])
        with pytest.raises(InsufficientPrivilege, match="as its definition declares"):
            its_sql.execute("SELECT * FROM interlock.link_all(%s::json)", [as_json([link])])


@pytest.mark.parametrize("within", ["one statement", "savepoints"])
def test_it_links_what_its_own_transaction_created(
    client: Client, its_sql: Any, dba: Any, project: str, within: str
) -> None:
    (declared,) = client.runtime.catalogue.get("pr_review").links
    story = client.create("story", "S-1", project=project)["id"]
    mine, theirs = uuid4(), uuid4()
    birth = {"id": mine, "workflow_type": "pr_review", "definition_version": "1.0.0", "current_state": "submitted"}
    birth |= {"entity_id": "PR-1", "project": project, "context": {}, "created_by": "eve"}
    link = {"source_id": mine, "role": declared.role, "inverse": declared.inverse, "type": "story", "target_id": story}
    with its_sql.transaction(force_rollback=True):
        (now,) = its_sql.execute("SELECT now()").fetchone()
        dba.execute(  # by somebody whose transaction began in the same microsecond
            "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
            " created_by, created_at) VALUES (%s, 'pr_review', '1.0.0', 'submitted', 'PR-2', %s, 'ann', %s)",
            (theirs, project, now),
        )
        with nullcontext() if within == "one statement" else its_sql.transaction():
            its_sql.execute("SELECT * FROM interlock.create_all(%s::json)", [as_json([birth])])
        with nullcontext() if within == "one statement" else its_sql.transaction():
            linked = its_sql.execute("SELECT * FROM interlock.link_all(%s::json)", [as_json([link])]).fetchall()
        assert linked == [(mine, declared.role, story)]
        with pytest.raises(InsufficientPrivilege, match="links only what it creates"):
            its_sql.execute("SELECT * FROM interlock.link_all(%s::json)", [as_json([link | {"source_id": theirs}])])
