"""No input stops anything: JSON is bounded at every door and by PostgreSQL; what is there already fails by itself."""

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.requests import PARTITIONS, partition_of
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.operations.doctor import examine
from interlock.workflows.errors import Refused
from interlock.workflows.input import limits
from tests.doctoring import examined
from tests.doors import Scene, called, cells, found
from tests.driving import drain_all, outcome, state
from tests.hostile import JSON, alternating, arrays, objects, unbound
from tests.stuck import look

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
DOORS = found()


@pytest.fixture
def of_each_partition(client: Client, project: str) -> dict[int, UUID]:
    """A story in each partition."""
    births = {}
    while len(births) < PARTITIONS:
        birth = client.birth("story", f"S-{uuid7()}", project=project)
        births[partition_of(birth.id)] = birth
    client.create_many(list(births.values()))
    return {partition: birth.id for partition, birth in births.items()}


@pytest.fixture
def scene(client: Client, project: str, tmp_path: Path) -> Scene:
    return Scene(client, project, tmp_path)


def answer(door: Callable[..., Any], given: dict[str, Any] | Callable[[], dict[str, Any]]) -> tuple[str, str]:
    """`done`, the class and words of a refusal, or a fault of ours."""
    try:
        called(door, given() if callable(given) else given)
    except Refused as error:
        return type(error).__name__, str(error)
    except Exception as error:
        return "fault", f"{type(error).__name__}: {error}"
    return "done", ""


def everything_kept(dba: Dba) -> list[Any]:
    """How many rows each table has, and the newest transaction in it."""
    tables = dba.execute("SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'interlock' ORDER BY 1")
    counts = [f"SELECT '{table}', count(*), max(xmin::text::bigint) FROM {table}" for (table,) in tables.fetchall()]
    return dba.execute(" UNION ALL ".join(counts)).fetchall()  # type: ignore[call-overload,no-any-return]


def poison(dba: Dba, story: UUID, data: str, status: str = "pending") -> str:
    """A request whose data somebody wrote before there were bounds."""
    request_id = str(uuid7())
    dba.execute(
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata)"
        " VALUES (%s, '', %s, 'design_complete', 'mallory', jsonb_build_object('a', %s::jsonb))",
        (request_id, story, data),
    )
    return request_id


# Doors ----------------------------------------------------------------------------------------------------------------


def test_every_door_there_is_has_a_sound_call_here(scene: Scene) -> None:
    assert set(scene.given) == set(DOORS)


@pytest.mark.usefixtures("ann")
def test_no_door_takes_a_hostile_value_and_each_says_why(scene: Scene, dba: Dba) -> None:
    wrong = {}
    for name, door in DOORS.items():
        before, given = answer(door, scene.given[name]())[0], scene.given[name]()
        kept = everything_kept(dba)
        for cell, make in cells(door, given):
            how, says = answer(door, make)
            if how in ("done", "fault") or not says or len(says) > 300 or "\n" in says:
                wrong[name, cell] = f"{how}: {says[:300]}"
        if kept != everything_kept(dba):
            wrong[name, "kept"] = "something was written"
        if (after := answer(door, scene.given[name]())) and after[0] != before:
            wrong[name, "after"] = f"was {before}, is {after}"
    assert wrong == {}


@pytest.mark.parametrize("shape", [arrays, objects, alternating])
def test_what_is_just_within_the_bounds_is_applied_and_verified(
    client: Client, story: UUID, shape: Callable[[int], Any]
) -> None:
    given = {
        "deep": shape(limits.DEPTH - 1),
        "most": -(2**1_023),
        "least": 5e-324,
        "whole": 2**1_023,
        "some": 1.25e-300,
        "text": "\x01😀\\u0000",
    }
    receipt = client.fire(story, "design_complete", by="ann", data=given)
    drain_all(client.runtime)
    assert outcome(client, receipt.request_id)["status"] == "applied"
    assert client.history(story)[0]["metadata"] == given
    assert verify.verify(client.runtime.database).ok


def test_of_a_context_within_bounds_effects_are_within_bounds(client: Client, project: str) -> None:
    context = {"author": "ann", "deep": arrays(limits.DEPTH - 1)}
    client.create("pr_review", "PR-1", project=project, context=context)
    client.fire("PR-1", "start_review", by="bob")
    drain_all(client.runtime)
    assert state(client, "PR-1") == "reviewing"


# PostgreSQL -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["[" * 70 + "]" * 70, '{"a":' * 5_000 + "1" + "}" * 5_000, "1e130000, " * 20 + "1"])
def test_postgresql_refuses_what_goes_around_the_doors(client: Client, story: UUID, dba: Dba, data: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=r"trigger_requests\.metadata is nested .* or larger"):
        poison(dba, story, f"[{data}]")
    dba.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.errors.CheckViolation):
        dba.execute("UPDATE workflow_instances SET context = jsonb_build_object('a', %s::jsonb)", (f"[{data}]",))


# What is there already ------------------------------------------------------------------------------------------------


def test_sixteen_poisoned_triggers_fail_by_themselves_and_every_partition_goes_on(
    client: Client, of_each_partition: dict[int, UUID], dba: Dba
) -> None:
    with unbound(dba):
        partitions = zip(of_each_partition.values(), cycle(JSON.values()), strict=False)
        poisoned = [poison(dba, story, data) for story, data in partitions]
    good = [client.fire(story, "design_complete", by="ann").request_id for story in of_each_partition.values()]
    drain_all(client.runtime)
    for row in (outcome(client, request_id) for request_id in poisoned):
        assert (row["status"], row["attempts"]) == ("dead", 1)
        assert row["error"].startswith("metadata cannot be read: ")
    assert {outcome(client, request_id)["status"] for request_id in good} == {"applied"}
    assert verify.verify(client.runtime.database).ok


def test_an_instance_whose_context_cannot_be_read_fails_its_own_triggers_only(
    client: Client, of_each_partition: dict[int, UUID], dba: Dba
) -> None:
    bad = of_each_partition[0], of_each_partition[1]
    births = [client.birth("story", f"N-{number}", project=uuid7()) for number in range(64)]
    client.create_many(births)
    with unbound(dba):
        for story, data in zip(bad, ("beyond the stack", "an integer of 5,000 digits"), strict=True):
            dba.execute(
                "UPDATE workflow_instances SET context = jsonb_build_object('a', %s::jsonb) WHERE id = %s",
                (JSON[data], story),
            )
    client.fire_many([Firing(each, "design_complete", "ann") for each in (*bad, *(birth.id for birth in births))])
    drain_all(client.runtime)
    with transaction(client.runtime.database) as connection:
        assert requests.count_by_status(connection) == {"dead": 2, "applied": 64}
    for shown in map(client.show, bad):
        assert shown["requests"][0]["error"].startswith("context cannot be read: ")
        assert shown["error"] == shown["requests"][0]["error"]
        assert json.dumps(shown["context"])


def test_what_cannot_be_read_is_not_redriven_and_holds_up_no_other(
    client: Client, of_each_partition: dict[int, UUID], dba: Dba
) -> None:
    with unbound(dba):
        poison(dba, of_each_partition[0], JSON["beyond the stack"])
    other = client.fire(of_each_partition[1], "design_complete", by="ann").request_id
    dba.execute("UPDATE trigger_requests SET status = 'dead', finished_at = now(), error = 'x'")
    with transaction(client.runtime.database) as connection:
        assert [row["request_id"] for row in requests.redrive(connection, by="ann")] == [other]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("beyond the stack", "nested too deeply"),
        ("an integer of 5,000 digits", "a number of 5,000 digits; 4,300 is the most"),
    ],
)
def test_what_cannot_be_read_is_settled_by_a_command_and_told_of_no_more(
    client: Client, of_each_partition: dict[int, UUID], dba: Dba, data: str, why: str
) -> None:
    story = of_each_partition[0]
    with unbound(dba):
        dead = poison(dba, story, JSON[data])
    drain_all(client.runtime)
    (told,) = look(client.runtime)
    assert told.command == f"interlock quarantine request {dead} --reason WHY"
    (finding,) = [each for each in examine(client.runtime) if each.check == "dead"]
    assert (finding.message, "redrive" in finding.cure) == ("1 cannot be read", False)
    with transaction(client.runtime.database) as connection:
        assert requests.redrive(connection) == []
        (aside,) = requests.quarantine(connection, [dead], by="bob", reason="fired again")
        assert aside["was"] == "dead"
        assert requests.unrevived(connection) == {"quarantined": [], "unreadable": []}
    assert outcome(client, dead)["error"] == f"quarantined by bob: fired again (metadata cannot be read: {why})"
    assert look(client.runtime) == []
    assert examined(client.runtime, "dead", by="backlog") == []
    dba.execute("UPDATE trigger_requests SET finished_at = now() - interval '2 days'")
    with transaction(client.runtime.database) as connection:
        assert requests.prune(connection, keep_days=1, limit=10) == 1


def test_what_is_not_asked_for_its_small_size_is_within_bounds(dba: "psycopg.Connection[Any]") -> None:
    """The trigger looks at 200 bytes and more, and at all that is compressed: 300 such numbers take less then."""
    widest = (
        "SELECT jsonb_agg(1e131071::numeric + ('0.' || repeat('0', 16383))::numeric) AS j FROM generate_series(1, %s)"
    )
    sizes = f"SELECT pg_column_size(j) <= 200, bounded(j) FROM ({widest}) AS x"
    assert dba.execute(sizes, (12,)).fetchone() == (True, True)
    assert dba.execute(sizes, (13,)).fetchone() == (False, True)
    for deep in ("[" * 26 + "]" * 26, '{"":' * 16 + "1" + "}" * 16):
        assert dba.execute("SELECT pg_column_size(%s::jsonb) > 200", (deep,)).fetchone() == (True,)
    dba.execute("CREATE TEMPORARY TABLE kept (j jsonb)")
    dba.execute(f"INSERT INTO kept {widest}", (300,))
    stored = "SELECT pg_column_size(j) <= 200, pg_column_compression(j) FROM kept"
    assert dba.execute(stored).fetchone() == (True, "pglz")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"trigger_requests\.metadata is nested"):
        dba.execute("INSERT INTO trigger_requests (metadata) SELECT j FROM kept")
