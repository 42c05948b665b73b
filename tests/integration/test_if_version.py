"""A caller says which version of an instance it saw: at any other nothing moves, and the caller is told where it is."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.client.async_client import AsyncClient, AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import VersionConflict
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput
from tests import machines
from tests.driving import applied, drain_all, make_due, outcome, state, swept, trail
from tests.stuck import terminal

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def turnstiles(knowing: Callable[..., Runtime]) -> Iterator[Client]:
    """A client that knows `tests.machines`."""
    yield Client(knowing("tests.machines"))
    machines.broken.clear()


def fire(client: Client, ref: str | UUID, trigger: str, if_version: int) -> dict[str, Any]:
    """Fire, apply, and return what became of it."""
    receipt = client.fire(ref, trigger, by="a", if_version=if_version)
    drain_all(client.runtime)
    return outcome(client, receipt.request_id)


def said(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a rejection says of the versions."""
    result = row["result"]
    return row["status"], result["code"], result["if_version"], result["version"], result["state"]


@pytest.mark.promise("O12")
def test_whoever_waits_is_told_the_present_version_and_state(settings: Settings, client: Client, story: UUID) -> None:
    first, late = (client.fire(story, trigger, by="a", if_version=0) for trigger in ("design_complete", "block"))
    drain_all(client.runtime)
    with pytest.raises(
        VersionConflict, match=r"at version 1, in 'design', and not at version 0\. Look at it"
    ) as raised:
        client.wait([first.request_id, late.request_id])
    assert (raised.value.version, raised.value.state) == (1, "design")
    assert [each.status for each in raised.value.receipts] == ["applied", "rejected"]
    assert client.wait([first.request_id])[0].result["seq"] == 1  # type: ignore[index]

    async def wait_for_the_same() -> None:
        async with AsyncClient(AsyncRuntime(settings)) as interlock:
            await interlock.fire(story, "start_coding", by="a", if_version=1)
            await interlock.wait([late.request_id])

    with pytest.raises(VersionConflict) as of_async:
        asyncio.run(wait_for_the_same())
    assert str(of_async.value) == str(raised.value)
    drain_all(client.runtime)
    assert trail(client, story) == ["design_complete", "start_coding"]


@pytest.mark.promise("O12")
def test_the_command_prints_a_conflict_as_it_prints_other_rejections(
    make_runtime: Callable[..., Runtime], project: str
) -> None:
    runtime = make_runtime()
    client, here = Client(runtime), terminal(runtime)
    ref = str(client.create("story", "S-1", project=project)["id"])
    applied(client, ref, "design_complete")
    given = ("fire", ref, "start_coding", "--by", "a", "--wait", "--if-version")
    with ThreadPoolExecutor(1) as another:
        for version, told in (("0", (2, "rejected")), ("1", (0, "applied"))):
            command = another.submit(here.run, *given, version)
            while not command.done():
                drain_all(runtime)
            done = command.result()
            assert (done.code, (done.out + done.err).split()[0]) == told, done
    assert here.run(*given, "-1").code == 2


def test_each_of_a_batch_sees_the_version_after_the_one_before(client: Client, story: UUID) -> None:
    walk = (("design_complete", 0), ("start_coding", 0), ("start_coding", 1), ("block", 3), ("submit_pr", 2))
    receipts = client.fire_many([Firing(story, trigger, "a", if_version=version) for trigger, version in walk])
    drain_all(client.runtime)
    rows = [outcome(client, receipt.request_id) for receipt in receipts]
    assert [row["status"] for row in rows] == ["applied", "rejected", "applied", "rejected", "applied"]
    assert said(rows[1]) == ("rejected", "version_conflict", 0, 1, "design")
    assert said(rows[3]) == ("rejected", "version_conflict", 3, 2, "implementation")


@pytest.mark.promise("O12")
def test_the_version_counts_when_the_trigger_is_applied_not_when_it_was_fired(turnstiles: Client, dba: "Dba") -> None:
    gate = turnstiles.create("turnstile", "T-1", project=uuid7())["id"]
    later = turnstiles.fire(gate, "remove", by="a", after=timedelta(hours=1), if_version=0)
    applied(turnstiles, gate, "coin", "push")
    machines.broken.add("a")
    retried, dead = (turnstiles.fire(gate, "coin", by="a", if_version=2) for _ in range(2))
    for _ in range(20):
        drain_all(turnstiles.runtime)
        make_due(dba, "coin")
        dba.execute("DELETE FROM sweeps")
        swept(turnstiles.runtime, "dispatch")
    assert {outcome(turnstiles, each.request_id)["status"] for each in (retried, dead)} == {"dead"}
    machines.broken.clear()
    with transaction(turnstiles.runtime.database) as connection:
        requests.redrive(connection, [retried.request_id, dead.request_id])
    make_due(dba, "remove")
    dba.execute("DELETE FROM sweeps")
    swept(turnstiles.runtime, "dispatch")
    drain_all(turnstiles.runtime)
    assert outcome(turnstiles, retried.request_id)["status"] == "applied"
    assert said(outcome(turnstiles, dead.request_id)) == ("rejected", "version_conflict", 2, 3, "open")
    assert said(outcome(turnstiles, later.request_id))[:3] == ("rejected", "version_conflict", 0)
    assert state(turnstiles, gate) == "open"


@pytest.mark.parametrize("moves", [False, True])
def test_a_held_trigger_was_at_its_version_and_is_superseded_if_its_instance_moves_before_the_approval(
    client: Client, project: str, moves: bool
) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})["id"]
    applied(client, review, "start_review", "approve", by="bob")
    assert said(fire(client, review, "merge", 1)) == ("rejected", "version_conflict", 1, 2, "approved")
    held = fire(client, review, "merge", 2)
    assert held["status"] == "waiting"
    if moves:
        applied(client, review, "dismiss", "approve", by="bob")
    applied(client, held["held_by"], "approve", by="cyd")
    row = outcome(client, held["request_id"])
    assert (row["status"], row["result"].get("code")) == (("superseded", "superseded") if moves else ("applied", None))


@pytest.mark.parametrize("version", [-1, 2**31, 2**70, True, "1", 1.0])
def test_what_can_be_no_version_is_refused_at_the_door(client: Client, story: UUID, version: Any) -> None:
    with pytest.raises(BadInput, match="if_version must be"):
        client.fire(story, "block", by="a", if_version=version)
    with pytest.raises(BadInput, match="if_version must be"):
        client.fire_many([Firing(story, "block", "a", if_version=version)])
    assert client.show(story)["requests"] == []


def test_postgresql_refuses_the_event_of_a_trigger_for_another_version(client: Client, story: UUID, dba: "Dba") -> None:
    client.fire(story, "block", by="a", request_id="r", if_version=1)
    with pytest.raises(InsufficientPrivilege, match=r"request r asks for block of .* at version 1, not at 0"):
        dba.execute(
            "WITH moved AS (UPDATE workflow_instances SET current_state = 'blocked', version = 1 RETURNING id)"
            " INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state,"
            " trigger, triggered_by, request_id)"
            " SELECT gen_random_uuid(), id, 1, '1.0.0', 'analysis', 'blocked', 'block', 'a', 'r' FROM moved"
        )
