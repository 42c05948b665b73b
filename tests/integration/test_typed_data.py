"""Typed contexts and data through the client, past it, through effects and migrations: refused, and never lost."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from interlock.workers.schedules.creating import firing
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.errors import BadInput, DefinitionChanged, WrongData
from tests import typed_machines
from tests.driving import drain_all, outcome, state, trail
from tests.migrating import move, sound, whys
from tests.parcels import born
from tests.rights import operate
from tests.typed_machines import Heavier, Longer, Shipment, Start, calls, changed

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def typed(knowing: Callable[..., Runtime]) -> Client:
    """A client that knows shipments."""
    calls.clear()
    return Client(knowing("tests.typed_machines", project="default"))


def planned(client: Client, **context: Any) -> UUID:
    made: UUID = client.create("shipment@1.0.0", f"S-{uuid7()}", context={"image": "web:7"} | context, by="ann")["id"]
    return made


def rows(dba: Dba) -> int:
    (found,) = dba.execute("SELECT (SELECT count(*) FROM trigger_requests) + (SELECT count(*) FROM workflow_instances)")
    return int(found[0])


def run_effect(client: Client, shipment: UUID) -> dict[str, Any]:
    effect_runner.run(client.runtime, client.show(shipment)["effects"][0]["id"])
    drain_all(client.runtime)
    return dict(client.show(shipment)["effects"][0])


def test_a_wrong_context_or_wrong_data_is_refused_before_anything_is_stored(typed: Client, dba: Dba) -> None:
    """TYPED-1, TYPED-2."""
    shipment = planned(typed)
    before = rows(dba)
    with pytest.raises(BadInput, match=r"of a shipment: image is missing; imge is no field \(did you mean image"):
        typed.create("shipment", "S-2", context={"imge": "web:7"}, by="ann")
    for data in ({"ticket": "7"}, {}, {"ticket": 7, "lables": {}}):
        with pytest.raises(WrongData, match=r"^data of 'start': "):
            typed.fire(shipment, "start", by="ann", data=data)
    with pytest.raises(WrongData):  # one that is wrong: none of them is accepted
        typed.fire_many([Firing(shipment, "drop", "ann"), Firing(shipment, "start", "ann", data={"ticket": None})])
    with pytest.raises(BadInput, match="context is larger than"):  # the limits hold for typed values, too
        typed.create("shipment", "S-2", context={"image": "web:" + "x" * 2**20}, by="ann")
    assert rows(dba) == before


def test_instances_of_the_definitions_models_are_taken_as_their_json(typed: Client, dba: Dba) -> None:
    """TYPED-9."""
    shipment = typed.create("shipment@1.0.0", "S-1", context=Shipment(image="web:7"), by="ann")
    assert shipment["context"] == {"image": "web:7", "replicas": 2, "registry": None, "patience_seconds": None}
    before = rows(dba)
    wrong: list[tuple[Any, str]] = [
        (Shipment(image="web:7"), "it must be a Start or a JSON object, not a Shipment"),
        (Start.model_construct(ticket="7"), "ticket: Input should be a valid integer"),
        (Longer(ticket=7, reason="why"), "reason is no field"),
    ]
    for data, why in wrong:
        with pytest.raises(WrongData, match=f"^data of 'start': {why}"):
            typed.fire(shipment["id"], "start", by="ann", data=data)
    with pytest.raises(BadInput, match=r"^context of a shipment: it must be a Shipment or a JSON object, not a Start"):
        typed.create("shipment@1.0.0", "S-2", context=Start(ticket=7), by="ann")
    with pytest.raises(BadInput, match=r"^context of a story: it must be a JSON object, since its definition names no"):
        typed.create("story", "S-2", context=Start(ticket=7), by="ann")
    assert rows(dba) == before
    fired = [typed.fire(shipment["id"], "start", by="ann", request_id="r", data=Start(ticket=7)) for _ in range(2)]
    assert [each.replayed for each in fired] == [False, True]
    same = typed.fire(shipment["id"], "start", by="ann", request_id="r", data={"ticket": 7, "labels": {}})
    assert same.replayed
    drain_all(typed.runtime)
    assert typed.history(shipment["id"])[0]["metadata"] == {"ticket": 7, "labels": {}}


NOT_JSON: dict[str, Any] = {
    "bytes": b"7",
    "a set": {7},
    "a date": datetime(2026, 11, 26, tzinfo=UTC),
    "NaN": float("nan"),
    "an object": object(),
    "NUL": "7\0",
    "half a character": "\ud800",
    "a number beyond all": 2**2000,
    "too large": "x" * 2**20,
    "a model": Start(ticket=7),
}
for _ in range(60):
    NOT_JSON["too deep"] = [NOT_JSON.get("too deep", 7)]


@pytest.mark.parametrize("what", NOT_JSON)
def test_what_is_not_json_or_beyond_the_limits_is_refused_before_any_model_sees_it(
    typed: Client, dba: Dba, what: str
) -> None:
    """TYPED-3."""
    shipment = planned(typed)
    before = rows(dba)
    for key in ("ticket", "labels", "unknown"):
        with pytest.raises(BadInput) as refused:
            typed.fire(shipment, "start", by="ann", data={key: NOT_JSON[what]})
        assert not isinstance(refused.value, WrongData)
    with pytest.raises(BadInput):
        typed.create("shipment", "S-2", context={"image": NOT_JSON[what]}, by="ann")
    assert rows(dba) == before


def test_what_comes_past_the_client_is_rejected_where_it_is_decided_and_never_tried_again(
    typed: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TYPED-2, TYPED-4."""
    shipment = planned(typed)
    with monkeypatch.context() as old:  # as a client that has another version of the module
        old.setattr("interlock.workflows.definition.Definition.require_data", lambda *_: None)
        wrong = typed.fire(shipment, "start", by="ann", data={"ticket": "7", "lables": 1})
    right = typed.fire(shipment, "start", by="ann", data={"ticket": 7})
    drain_all(typed.runtime)
    first, second = typed.wait([wrong.request_id, right.request_id])
    assert (first.status, second.status) == ("rejected", "applied"), "it does not hold up what comes after it"
    assert first.result is not None
    assert first.result["code"] == "wrong_data"
    assert first.result["message"] == (
        "data of 'start': ticket: Input should be a valid integer; data of 'start': lables is no field (did you mean "
        "labels?)"
    )
    unfit = born(typed.runtime, "shipment", "1.0.0", "S-raw", "default", {"imag": 1})
    dropped = typed.fire(unfit, "drop", by="ann")
    drain_all(typed.runtime)
    assert outcome(typed, dropped.request_id)["result"]["code"] == "wrong_data"
    assert (state(typed, unfit), trail(typed, unfit)) == ("planned", [])
    sound(typed.runtime)


def test_an_effect_gets_the_models_and_its_result_is_checked(typed: Client) -> None:
    """TYPED-5."""
    shipment = planned(typed, registry={"host": "r", "mirrors": ["a"]})
    typed.fire(shipment, "start", by="ann", data={"ticket": 7})
    drain_all(typed.runtime)
    assert run_effect(typed, shipment)["status"] == "done"
    (call,) = calls
    assert call.instance.context == Shipment(image="web:7", registry={"host": "r", "mirrors": ("a",)})  # type: ignore[arg-type]
    assert call.data == Start(ticket=7)
    assert typed.history(shipment)[-1]["metadata"] == {"at": "web:7", "effect": "tests_ship"}
    assert typed.show(shipment)["context"] == {"image": "web:7", "registry": {"host": "r", "mirrors": ["a"]}}


def test_an_effect_whose_result_does_not_fit_has_failed_and_its_failure_is_told(
    typed: Client, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TYPED-5."""
    monkeypatch.setattr(typed_machines, "ship", lambda call: {"url": "x"})
    shipment = planned(typed)
    typed.fire(shipment, "start", by="ann", data={"ticket": 7})
    drain_all(typed.runtime)
    row = run_effect(typed, shipment)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert "data of 'arrived': at is missing; url is no field" in row["error"]
    dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")
    assert run_effect(typed, shipment)["status"] == "dead"
    assert state(typed, shipment) == "lost"


def test_a_schedule_with_wrong_data_or_a_wrong_context_is_refused(typed: Client) -> None:
    """TYPED-2."""
    shipment = planned(typed)
    assert firing(typed, shipment, "start", {"ticket": 1})["fire"]["data"] == {"ticket": 1}
    with pytest.raises(WrongData, match="ticket is missing"):
        firing(typed, shipment, "start", {})


def test_a_changed_model_under_the_same_version_is_refused(typed: Client) -> None:
    """TYPED-6."""
    heavier = Catalogue([changed("1.0.0", context=Heavier)])
    with transaction(typed.runtime.owned) as connection, pytest.raises(DefinitionChanged, match="field weight of the"):
        definitions.record(connection, heavier)


def test_instances_migrate_only_if_they_fit_and_a_client_that_knew_them_learns_it(
    knowing: Callable[..., Runtime],
) -> None:
    """TYPED-6."""
    typed = Client(knowing("tests.typed_versions", project="default"))
    operate(typed.runtime, "ann")
    light = planned(typed)
    heavy = born(typed.runtime, "shipment", "1.0.0", "S-heavy", "default", {"image": "web:7", "weight": 3})
    with pytest.raises(WrongData):
        typed.fire(heavy, "start", by="ann", data={"ticket": 1, "reason": "x"})  # it is known to be under 1.0.0
    done = move(typed.runtime, "1.0.0", "2.0.0", "shipment")
    assert (done.moved, [*whys(done).values()]) == (1, [("its context: weight is missing",)])
    typed.fire(heavy, "start", by="ann", data={"ticket": 1, "reason": "x"})
    drain_all(typed.runtime)
    assert (state(typed, heavy), state(typed, light)) == ("shipping", "planned")
    sound(typed.runtime)


def test_the_schemas_are_recorded_with_the_definition(typed: Client, dba: Dba) -> None:
    """TYPED-6."""
    (found,) = dba.execute("SELECT body FROM workflow_definitions WHERE type = 'shipment'")
    body = found[0] if isinstance(found[0], dict) else json.loads(found[0])
    assert body["context"]["additionalProperties"] is False
    assert body["data"]["start"]["required"] == ["ticket"]
