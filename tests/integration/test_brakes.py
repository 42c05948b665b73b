"""Budgets, and the brakes that hold whoever used one up (docs/spec/brake.md)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from interlock.db.audit.verify import verify
from interlock.db.connection import transaction
from interlock.db.core import brakes, budgets, requests
from interlock.workers import brakes as sweeping
from interlock.workers.client.client import Client
from interlock.workers.operations.checks.instances import check_brakes
from interlock.workers.overrides.brakes import NoSuchBrake, put_brake, release_brake
from interlock.workers.overrides.budgets import Budgeted, NoSuchBudget, remove_budget, set_budget
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.crewing import Site
from tests.driving import drain_all, state
from tests.stuck import found

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
WHY = OverrideOrder("ann", "it loops")
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def client(client: Client, project: str) -> Client:
    """Of the test's own project."""
    return Client(client.runtime, project=project)


def budget(client: Client, kind: Any, name: str, resource: str, most: float, per: float | None = 1000.0) -> None:
    set_budget(client.runtime, Budgeted(kind, name, client.project), resource, WHY, most=most, per_seconds=per)


def story(client: Client, name: str = "S-1", **context: Any) -> UUID:
    made: UUID = client.create("story", name, context=context, by="ann")["id"]
    return made


def block(client: Client, ref: UUID, by: str, **more: Any) -> Any:
    return client.fire(ref, "block", by=by, **more)


def on(client: Client) -> list[Any]:
    with transaction(client.runtime.database) as connection:
        return brakes.listed(connection, project=client.project)


def release(client: Client, row: Any) -> None:
    release_brake(client.runtime, row["entity_id"], WHY, project=client.project)
    drain_all(client.runtime)


def test_brake_2_what_a_budget_has_no_room_for_is_held_and_goes_on_in_its_order(client: Client) -> None:
    budget(client, "actor", "a", "triggers", 2)
    first, second = story(client), story(client, "S-2")
    fired = [client.fire(first, each, by="a") for each in ("design_complete", "start_coding", "submit_pr")]
    fired += [client.fire(first, "request_changes", by="a"), client.fire(second, "block", by="a")]
    assert [each.status for each in fired] == ["pending", "pending", "waiting", "waiting", "waiting"]
    drain_all(client.runtime)
    assert state(client, first) == "implementation"
    (brake,) = on(client)
    assert (brake["held"], brake["reason"]) == (3, "actor a has used 2 triggers of 2 in 1000 s")
    message = f"brake/{brake['entity_id']} holds it: {brake['reason']}."
    assert fired[2].result
    assert fired[2].result["message"].startswith(message)
    assert client.wait([fired[2].request_id])[0].result == fired[2].result
    others = block(client, story(client, "S-3"), "b")
    assert others.status == "pending"
    release(client, brake)
    assert [each.status for each in client.wait([each.request_id for each in fired])] == ["applied"] * 5
    assert [each["trigger"] for each in client.history(first)][2:] == ["submit_pr", "request_changes"]
    assert on(client) == []
    assert block(client, story(client, "S-4"), "a").status == "pending", "what was used is forgiven"
    assert list(verify(client.runtime.database).problems) == []


def test_each_budget_that_is_used_up_puts_its_own_brake_on(client: Client) -> None:
    for name in ("a", "*", "a*"):
        budget(client, "actor", name, "triggers", 1)
    assert [block(client, story(client, each), "a").status for each in ("S-1", "S-2")] == ["pending", "waiting"]
    assert len(on(client)) == 3


def test_a_repetition_is_neither_counted_nor_held(client: Client) -> None:
    budget(client, "actor", "a", "triggers", 1)
    made = story(client)
    assert block(client, made, "a", request_id="once").status == "pending"
    for _ in range(3):
        again = block(client, made, "a", request_id="once")
        assert (again.status, again.replayed) == ("pending", True)
    assert on(client) == []
    held = block(client, made, "a", request_id="twice")
    assert block(client, made, "a", request_id="twice").status == held.status == "waiting"
    assert [each["held"] for each in on(client)] == [1]


def test_what_is_for_later_waits_on_for_its_time_after_the_release(client: Client) -> None:
    put_brake(client.runtime, "project", "", WHY, project=client.project)
    later = block(client, story(client), "a", after=timedelta(hours=1))
    assert later.status == "waiting"
    release(client, on(client)[0])
    assert client.show(later.workflow_id)["requests"][0]["status"] == "scheduled"


MATRIX = [
    ("actor", "a", {("a", "in"), ("a", "out")}),
    ("run", "run", {("a", "in"), ("b", "in")}),
    ("project", "", {("a", "in"), ("b", "in"), ("a", "out"), ("b", "out")}),
    ("instance", "out", {("a", "out"), ("b", "out")}),
]


@pytest.mark.parametrize(("kind", "name", "held"), MATRIX)
def test_brake_5_what_each_kind_holds_and_what_no_brake_holds(
    client: Client, project: str, kind: str, name: str, held: set[tuple[str, str]]
) -> None:
    site = Site(client, project)
    (task,) = site.queue(1, kind="agent")
    with transaction(client.runtime.database) as connection:
        run = str(connection.exec_driver_sql("SELECT run_id FROM interlock.tasks WHERE task_id = %s", (task,)).scalar())
    at = {"in": story(client, "in", run_id=run), "out": story(client, "out")}
    elsewhere = Client(client.runtime, project=f"{project}-2")
    put_brake(client.runtime, kind, str({"run": run, "out": at["out"]}.get(name, name)), WHY, project=project)
    found = {(by, where) for by in "ab" for where in at if block(client, at[where], by).status == "waiting"}
    assert found == held
    assert block(client, at["in"], "ann").status == "pending", "operators are not held"
    assert block(elsewhere, story(elsewhere), "a").status == "pending"
    agent = Agent("a", runtime=client.runtime)
    agent.register()
    drain_all(client.runtime)
    assert (agent.claim() is None) == (kind != "instance")
    assert client.fire(task, "user_cancelled", by="a").status == "pending", "what ends a task is not held"
    assert client.fire(run, "cancel", by="b").status == "pending"


def test_brake_4_claims_and_what_reports_say_was_spent_are_counted(client: Client, project: str) -> None:
    tasks = Site(client, project).queue(4, kind="agent")
    budget(client, "actor", "a", "claims", 2)
    budget(client, "run", "*", "usd", 1.5, None)
    agent, other = Agent("a", runtime=client.runtime), Agent("b", runtime=client.runtime)
    for each in (agent, other):
        each.register()
        drain_all(client.runtime)
    for usd in (0.5, 0.75):
        claim = agent.claim()
        assert claim
        agent.finish(claim.token, spent={"tokens": 1000, "usd": usd})
        drain_all(client.runtime)
    assert agent.claim() is None
    assert [each["kind"] for each in on(client)] == ["actor"]
    claim = other.claim()
    assert claim
    release(client, on(client)[0])
    other.finish(claim.token, spent={"usd": 0.25})
    drain_all(client.runtime)
    ended = [each for each in tasks if state(client, each) in ("validating", "completed")]
    assert len(ended) == 3, "reports of finished work come in"
    told = [
        event["metadata"]["spent"] for task in tasks for event in client.history(task) if "spent" in event["metadata"]
    ]
    assert {"tokens": 1000, "usd": 0.75} in told
    (brake,) = on(client)
    assert (brake["kind"], brake["context"]["used"], brake["context"]["most"]) == ("run", 1.5, 1.5)
    assert agent.claim() is None
    release(client, brake)
    assert agent.claim()


def test_brake_6_only_operators_set_budgets_put_brakes_on_and_release_them(client: Client) -> None:
    mallory = OverrideOrder("mallory", "mine")
    whose = Budgeted("actor", "a", client.project)
    budget(client, "actor", "a", "triggers", 1)
    made = story(client)
    block(client, made, "a")
    held = block(client, made, "a")
    (brake,) = on(client)
    acts: list[Any] = [
        lambda: set_budget(client.runtime, whose, "triggers", mallory, most=10),
        lambda: remove_budget(client.runtime, whose, "triggers", mallory),
        lambda: put_brake(client.runtime, "actor", "b", mallory, project=client.project),
        lambda: release_brake(client.runtime, brake["entity_id"], mallory, project=client.project),
    ]
    for act in acts:
        with pytest.raises(NotAnOperator, match="mallory"):
            act()
    remove_budget(client.runtime, whose, "triggers", WHY)
    assert client.wait([held.request_id])[0].status == "waiting", "removing the budget releases nothing"
    release(client, brake)
    with pytest.raises(NoSuchBrake, match="interlock brake list"):
        release_brake(client.runtime, brake["entity_id"], WHY, project=client.project)
    with pytest.raises(NoSuchBudget, match="interlock budget list"):
        remove_budget(client.runtime, whose, "triggers", WHY)


@pytest.mark.parametrize(
    ("spent", "why"),
    [
        ({}, "what was spent"),
        ({"euros": 1}, "what was spent"),
        ({"tokens": 1.5}, "a whole number"),
        ({"tokens": True}, "a whole number"),
        ({"usd": -1}, "from 0 to"),
        ("much", "what was spent"),
    ],
)
def test_what_is_no_amount_is_refused(client: Client, spent: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        block(client, story(client), "a", data={"spent": spent})


def test_brake_7_what_two_brakes_hold_waits_for_both(client: Client) -> None:
    put_brake(client.runtime, "actor", "a", WHY, project=client.project)
    put_brake(client.runtime, "project", "", WHY, project=client.project)
    held = block(client, story(client), "a")
    first, second = on(client)
    release(client, first)
    receipt = client.wait([held.request_id])[0]
    assert receipt.status == "waiting"
    assert receipt.result
    assert receipt.result["brake"] == f"brake/{second['entity_id']}"
    release(client, second)
    assert client.wait([held.request_id])[0].status == "applied"


def test_brake_8_an_instance_that_goes_back_and_forth_gets_a_brake(
    client: Client, make_runtime: Callable[..., Runtime]
) -> None:
    runtime = make_runtime(bounce_limit=3, bounce_seconds=600.0)
    made, calm = story(client), story(client, "calm")
    for _ in range(3):
        for each in (made, calm):
            block(client, each, "a")
            client.fire(each, "unblock", by="b")
        drain_all(runtime)
    sweeping.sweep(runtime)
    assert on(client) == [], "three times are allowed"
    block(client, made, "a")
    client.fire(made, "unblock", by="b")
    drain_all(runtime)
    sweeping.sweep(runtime)
    drain_all(runtime)
    (brake,) = on(client)
    assert (brake["kind"], brake["name"], brake["state"]) == ("instance", str(made), "on")
    assert brake["reason"].startswith("story S-1 went 4 times from ")
    assert block(client, made, "c").status == "waiting"
    assert block(client, calm, "c").status == "pending"
    assert [each["entity_id"] for each in client.show(made)["brakes"]] == [brake["entity_id"]]
    release(client, brake)
    sweeping.sweep(runtime)
    assert on(client) == [], "what it did before is forgiven"


def test_brake_3_a_brake_is_announced_once(client: Client) -> None:
    budget(client, "actor", "a", "triggers", 1)
    for _ in range(3):
        block(client, story(client, f"S-{_}"), "a")
    assert sweeping.sweep(client.runtime) == 1
    assert sweeping.sweep(client.runtime) == 0
    drain_all(client.runtime)
    (brake,) = on(client)
    (event,) = client.history(brake["brake_id"])
    assert (event["trigger"], event["severity"]) == ("announce", "error")
    assert event["metadata"]["terms"]["used"] == 1
    effects = client.show(brake["brake_id"])["effects"]
    assert [each["name"] for each in effects] == ["notice"]


def test_brake_10_what_is_held_is_in_every_door_and_can_be_set_aside(client: Client, dba: Any) -> None:
    runtime = client.runtime
    assert [each.level for each in check_brakes(runtime)] == ["ok"]
    put_brake(runtime, "actor", "a", WHY, project=client.project)
    made = story(client)
    held, other = block(client, made, "a"), block(client, made, "a")
    (brake,) = on(client)
    release_by = f"interlock brake release {brake['entity_id']}"
    (finding,) = check_brakes(runtime)
    assert (finding.level, "holds 2 triggers: it loops" in finding.message) == ("warn", True)
    dba.execute("UPDATE trigger_requests SET accepted_at = now() - interval '1 h', not_before = now() - interval '1 h'")
    stuck = found(runtime, made)
    assert "is held: brake/" in stuck.reason
    assert stuck.command.startswith(release_by)
    with transaction(runtime.database) as connection:
        requests.quarantine(connection, [other.request_id], by="ann", reason="a loop")
    release(client, brake)
    statuses = [each.status for each in client.wait([held.request_id, other.request_id])]
    assert statuses == ["applied", "dead"]


def test_what_is_used_counts_for_its_period(client: Client, dba: Any) -> None:
    budget(client, "actor", "*", "triggers", 2)
    made = story(client)
    for by in ("a", "a", "b"):
        assert block(client, made, by).status == "pending"
    dba.execute("UPDATE budget_uses SET slot = slot - 99")
    with transaction(client.runtime.database) as connection:
        (found,) = budgets.listed(connection, project=client.project)
        used = budgets.uses(connection, [found["budget_id"]])
    assert {each["name"]: each["used"] for each in used} == {"a": 2, "b": 1}
    assert block(client, made, "a").status == "waiting"
    dba.execute("UPDATE budget_uses SET slot = slot - 2")
    assert block(client, made, "b").status == "pending"
