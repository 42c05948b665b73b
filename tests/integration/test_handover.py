"""Instances go on in another system: they are frozen here, nothing of theirs is lost, and each goes once."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.operations.handovers import Choice
from interlock.supervisor.environment import environment
from interlock.workers.client.client import Client
from interlock.workers.definitions import handover_file
from interlock.workers.definitions.handover import HandoverMoves, freeze
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.temporal_handover import handed_over
from tests import parcels
from tests.driving import applied, drain_all, outcome, state, trail
from tests.migrating import ALL_PARCELS, HANDING, confirmed, given_back, move, sound, whys
from tests.parcels import born
from tests.rights import fire

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return parcels.recorded(make_runtime)


def frozen(runtime: Runtime, **wanted: Any) -> HandoverMoves:
    return freeze(runtime, ALL_PARCELS, replace(HANDING, **wanted))


def lines(runtime: Runtime, directory: Path) -> dict[UUID, Any]:
    path = directory / "parcels.jsonl"
    handover_file.write_frozen(runtime, ALL_PARCELS, path)
    return {UUID(said["instance"]["id"]): said for said in map(handed_over, path.read_text().splitlines())}


def test_what_is_frozen_moves_no_more_and_its_file_has_all_that_goes_with_it(
    client: Client, runtime: Runtime, project: str, dba: Dba, tmp_path: Path
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project, {"address": "1 Road"})
    applied(client, parcel, "send")
    dba.execute("UPDATE trigger_requests SET not_before = not_before - interval '50 minutes' WHERE origin = 'timer'")
    waiting = client.fire(parcel, "deliver", by="bob", data={"reason": "rang"}, if_version=1)
    later = fire(client, parcel, "lose", by="cid", after=timedelta(hours=1))
    assert frozen(runtime) == HandoverMoves(found=1, moved=1)
    assert frozen(runtime) == HandoverMoves()
    open_to_all = {move.trigger for move in parcels.PARCEL_1_0.transitions if move.authorities == ("anyone",)}
    late = [client.fire(parcel, trigger, by="dan") for trigger in sorted(open_to_all)]
    drain_all(runtime)
    results = [outcome(client, each.request_id) for each in late]
    assert {(each["status"], each["result"]["code"]) for each in results} == {("rejected", "handed_over")}
    assert [outcome(client, each.request_id)["status"] for each in (waiting, later)] == ["waiting"] * 2
    shown = client.show(parcel)
    assert (shown["current_state"], shown["legal"], trail(client, parcel)) == ("sent", [], ["send"])
    said = lines(runtime, tmp_path)[parcel]
    assert said["handover"] | {"frozen_at": ""} == {
        "id": str(shown["handover"]), "by": "ann", "reason": "to Temporal", "frozen_at": ""
    }  # fmt: skip
    assert (said["instance"]["state"], said["instance"]["version"]) == ("sent", 1)
    assert said["instance"]["context"] == {"address": "1 Road"}
    assert said["deadline"]["trigger"] == "lose"
    assert 500 < said["deadline"]["seconds"] <= 600
    first, second = said["pending"]
    assert (first["request_id"], first["trigger"], first["by"], first["data"]) == (
        waiting.request_id, "deliver", "bob", {"reason": "rang"}
    )  # fmt: skip
    assert (first["if_version"], first["at"], second["trigger"], second["at"] is None) == (1, None, "lose", False)
    assert [event["trigger"] for event in said["history"]] == ["send"]
    assert whys(move(runtime)) == {"P-1": (f"PostgreSQL refuses it: instance {parcel} is frozen: it is handed over "
                                           "to another system",)}  # fmt: skip
    sound(runtime)


def test_what_comes_back_goes_on_where_it_was_and_can_be_handed_over_again(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    asking = born(runtime, "parcel", "1.0.0", "P-2", project)
    applied(client, parcel, "send")
    applied(client, asking, "weigh")
    dba.execute("UPDATE trigger_requests SET not_before = not_before - interval '50 minutes' WHERE origin = 'timer'")
    waiting = client.fire(parcel, "lose", by="bob")
    for _ in range(2):
        assert frozen(runtime).moved == 2
        assert dba.execute("SELECT status FROM effects WHERE done_trigger IS NOT NULL").fetchall() == [("cancelled",)]
        assert given_back(runtime, parcel).moved == 1
        assert given_back(runtime).moved == 1
    ((left,),) = dba.execute("SELECT not_before - now() FROM trigger_requests WHERE origin = 'timer'").fetchall()
    assert timedelta(minutes=9) < left <= timedelta(minutes=10)
    assert dba.execute("SELECT status FROM effects WHERE done_trigger IS NOT NULL").fetchall() == [("pending",)]
    drain_all(runtime)
    assert outcome(client, waiting.request_id)["status"] == "applied"
    assert state(client, parcel) == "lost"
    sound(runtime)


def test_an_approval_goes_with_the_instance_whose_trigger_it_holds(
    client: Client, runtime: Runtime, project: str, dba: Dba, tmp_path: Path
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    applied(client, parcel, "send")
    stop = client.fire(parcel, "stop", by="bob")
    drain_all(runtime)
    approval = UUID(outcome(client, stop.request_id)["result"]["approval_id"])
    assert frozen(runtime).moved == 1
    vote = client.fire(approval, "approve", by="cid")
    drain_all(runtime)
    assert outcome(client, vote.request_id)["result"]["code"] == "handed_over"
    (held,) = lines(runtime, tmp_path)[parcel]["held"]
    assert (held["trigger"], held["by"], held["version"]) == ("stop", "bob", 1)
    assert held["approval"]["instance"]["id"] == str(approval)
    assert held["approval"]["deadline"]["trigger"] == "expire"
    assert given_back(runtime).moved == 1
    client.fire(approval, "approve", by="cid")
    drain_all(runtime)
    assert state(client, parcel) == "stopped"
    sound(runtime)


def test_what_was_confirmed_lives_there_for_good(client: Client, runtime: Runtime, project: str) -> None:
    parcel, other = (born(runtime, "parcel", "1.0.0", name, project) for name in ("P-1", "P-2"))
    waiting = client.fire(parcel, "send", by="bob")
    frozen(runtime)
    assert confirmed(runtime, parcel).moved == 1
    settled = outcome(client, waiting.request_id)
    assert (settled["status"], settled["result"]["code"]) == ("superseded", "handed_over")
    assert given_back(runtime) == HandoverMoves(found=1, moved=1)
    applied(client, other, "send")
    late = client.fire(parcel, "send", by="bob")
    drain_all(runtime)
    assert outcome(client, late.request_id)["status"] == "rejected"
    sound(runtime)


def test_what_is_under_way_or_dead_stays_and_says_why(client: Client, runtime: Runtime, project: str, dba: Dba) -> None:
    working, dying, ready = (born(runtime, "parcel", "1.0.0", name, project) for name in ("P-1", "P-2", "P-3"))
    applied(client, working, "weigh")
    ((effect,),) = dba.execute("SELECT id FROM effects WHERE done_trigger IS NOT NULL").fetchall()
    with transaction(runtime.database) as connection:
        assert effects.claim(connection, effect, holder="node:1", lease_seconds=60)
    client.fire(dying, "send", by="bob", request_id="R-1")
    dba.execute("UPDATE trigger_requests SET status = 'dead', finished_at = now() WHERE request_id = 'R-1'")
    tried = frozen(runtime, dry_run=True)
    assert tried == frozen(runtime)
    assert (tried.found, tried.moved) == (3, 1)
    assert {each.entity_id: each.why for each in tried.stays} == {
        "P-1": f"effect {effect} (notice) is being carried out and will tell its outcome: wait until it has",
        "P-2": "request R-1 (send) is dead: redrive it or quarantine it first",
    }
    assert [client.show(each)["handover"] is None for each in (working, dying, ready)] == [True, True, False]


def test_who_may_not_and_what_cannot(client: Client, runtime: Runtime, project: str) -> None:
    born(runtime, "parcel", "1.0.0", "P-1", project)
    with pytest.raises(NotAnOperator):
        freeze(runtime, ALL_PARCELS, OverrideOrder("eve", "mine"))
    with pytest.raises(BadInput, match="with the instance whose trigger it holds"):
        freeze(runtime, Choice("approval", "1.0.0"), HANDING)
    grants = freeze(runtime, Choice("operator_grant", "1.0.0"), HANDING)
    assert grants.moved == 0
    assert {each.why for each in grants.stays} == {"a operator_grant is carried out or kept by Interlock itself"}


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM handovers",
        "UPDATE handovers SET frozen_at = now()",
        "INSERT INTO handovers SELECT id, gen_random_uuid(), now() FROM workflow_instances WHERE entity_id = 'P-2'",
        "INSERT INTO handovers SELECT id, handover_id, now() FROM workflow_instances, handovers WHERE version = 1",
    ],
)
def test_nobody_writes_a_handover_that_no_event_asks_for(
    client: Client, runtime: Runtime, project: str, dba: Dba, change: str
) -> None:
    parcel, _ = (born(runtime, "parcel", "1.0.0", name, project) for name in ("P-1", "P-2"))
    freeze(runtime, Choice("parcel", "1.0.0", only=[parcel]), HANDING)
    with pytest.raises(psycopg.errors.CheckViolation, match="is not what its history says"):
        dba.execute(change)  # type: ignore[call-overload]


FREEZING = """
from interlock.db.operations.handovers import Choice
from interlock.workers.definitions import handover
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings
handover.BATCH = 5
order = OverrideOrder("ann", "to Temporal")
handover.freeze(Runtime(settings()), Choice("parcel", "1.0.0"), order, lambda done, total: print(done, flush=True))
"""


def test_whoever_is_killed_meanwhile_each_instance_is_handed_over_once(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    made = [born(runtime, "parcel", "1.0.0", f"P-{number}", project) for number in range(60)]
    client.fire_many([Firing(each, "send", by="bob") for each in made])
    env = environment(runtime.settings) | {"INTERLOCK_DEFINITIONS": "tests.parcels"}
    for batches in (1, 3):
        with subprocess.Popen([sys.executable, "-c", FREEZING], env=env, stdout=subprocess.PIPE) as freezing:
            assert freezing.stdout is not None
            for _ in range(batches):
                assert freezing.stdout.readline()
            freezing.kill()  # while the next batch is under way
    ((done,),) = dba.execute("SELECT count(*) FROM handovers").fetchall()
    assert 0 < done < len(made)
    left = frozen(runtime)
    assert left.found == left.moved == len(made) - done
    query = """
        SELECT count(*), count(DISTINCT context->>'instance'), count(DISTINCT h.workflow_id)
          FROM workflow_instances i LEFT JOIN handovers h ON h.handover_id = i.id WHERE workflow_type = 'handover'"""
    assert dba.execute(query).fetchall() == [(60, 60, 60)]
    query = "SELECT status, count(*) FROM trigger_requests WHERE trigger = 'send' GROUP BY status"
    assert dba.execute(query).fetchall() == [("waiting", 60)]
    sound(runtime)
