"""What is deprecated: whoever uses it is told and counted, and a version goes only when nothing lives under it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
from psycopg.errors import RestrictViolation
from structlog.testing import capture_logs
from uuid_utils.compat import uuid7

from interlock.db.audit.verify import verify
from interlock.db.connection import transaction
from interlock.db.core import definitions, deprecations, effects
from interlock.db.core.deprecations import DefinitionPart
from interlock.db.core.request_rows import OPERATOR, Right, as_found
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.engine.deprecations import Deprecations
from interlock.workers.operations import doctor
from interlock.workers.operations.metrics import read
from interlock.workers.overrides.at_once import CannotMove, at_once
from interlock.workers.overrides.deprecations import (
    CannotDeprecate,
    announce,
    announce_marks,
    approve_removal,
    propose_removal,
    undo,
    withdraw_removal,
)
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import T
from interlock.workflows.errors import BadInput, InterlockError, InvalidDefinition, UnknownWorkflow
from interlock.workflows.versioning.export import checksum
from interlock.workflows.versioning.validate import check
from tests import parcels
from tests.driving import applied, drain_all, outcome
from tests.parcels import PARCEL_1_0, born
from tests.tampering import unprotected
from tests.webhooks import Webhook

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
OLD = ("parcel", "1.0.0")
PATHS = {"version": "", "trigger": "send", "state": "sent"}


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    made = make_runtime(definitions=("tests.parcels",))
    parcels.record(made, "ann", "bob")
    return made


def order(by: str = "ann", reason: str = "old") -> OverrideOrder:
    return OverrideOrder(by, reason)


def deprecate(runtime: Runtime, kind: str = "version", name: str = "", version: str = "1.0.0", **said: Any) -> None:
    part = DefinitionPart("parcel", version, kind, name)
    announce(runtime, part, order(), **{"guide": "use 1.1.0"} | said)


def listed(runtime: Runtime) -> list[dict[str, Any]]:
    with transaction(runtime.database) as connection:
        return [dict(row) for row in deprecations.listed(connection)]


def be_due(dba: Dba) -> None:
    """Let the time of what is deprecated be over."""
    with unprotected(dba, "workflow_instances", "workflow_transitions", "deprecations"):
        for statement in (
            "UPDATE workflow_instances SET created_at = now() - interval '40 days' WHERE workflow_type = 'deprecation'",
            "UPDATE workflow_transitions SET created_at = now() - interval '40 days'"
            " WHERE workflow_type = 'deprecation'",
            "UPDATE deprecations d SET (deprecated_at, remove_after) ="
            " (SELECT t.deprecated_at, t.remove_after FROM interlock.recorded_deprecation(d.deprecation_id) t)",
        ):
            dba.execute(statement)


def see_again(runtime: Runtime) -> None:
    runtime.applier.deprecations.until = 0.0  # as after ten seconds


@pytest.mark.parametrize("kind", PATHS)
def test_whoever_uses_it_is_told_and_counted_in_the_commit_of_the_move(
    client: Client, runtime: Runtime, project: str, kind: str
) -> None:
    deprecate(runtime, kind, PATHS[kind])
    see_again(runtime)
    old, new = (born(runtime, "parcel", version, version, project) for version in ("1.0.0", "1.1.0"))
    receipts = [client.fire(each, "send", by="bob") for each in (old, new)]
    drain_all(runtime)
    told, silent = (outcome(client, each.request_id)["result"] for each in receipts)
    (says,) = told["deprecated"]
    assert "parcel 1.0.0 is deprecated and will be removed after" in says
    assert says.endswith(": old. use 1.1.0")
    assert "deprecated" not in silent
    (row,) = listed(runtime)
    assert (row["kind"], row["name"], row["uses"], row["live"]) == (kind, PATHS[kind], 1, 0 if kind == "trigger" else 1)
    applied(client, old, "deliver")
    uses = 2 if kind == "version" else 1
    assert [each["uses"] for each in listed(runtime)] == [uses]
    assert read(runtime)["interlock_deprecated_uses_total", ("parcel", "1.0.0", kind, PATHS[kind])] == uses


def test_uses_are_counted_over_partitions_and_rounds_and_not_where_a_trigger_is_refused(
    client: Client, runtime: Runtime, project: str
) -> None:
    deprecate(runtime, "trigger", "send")
    see_again(runtime)
    made = [born(runtime, "parcel", "1.0.0", f"P-{number}", project) for number in range(20)]
    for each in made:
        client.fire(each, "send", by="bob")
        client.fire(each, "send", by="bob")  # refused: it is sent already
    drain_all(runtime)
    (row,) = listed(runtime)
    assert row["uses"] == 20
    assert row["last_used_at"] is not None


def test_where_nothing_is_deprecated_a_round_does_not_look_again_within_ten_seconds(runtime: Runtime) -> None:
    seen = Deprecations()
    with transaction(runtime.owned) as connection:
        seen.refresh(connection)
        connection.exec_driver_sql("ALTER TABLE interlock.deprecations RENAME TO gone")
        seen.refresh(connection)  # no statement: there is no such table any more
        connection.rollback()


def test_marks_in_the_code_are_announced_when_definitions_are_recorded_and_change_no_checksum(
    runtime: Runtime,
) -> None:
    marked = replace(
        PARCEL_1_0,
        version="1.5.0",
        deprecated=MappingProxyType({"stopped": "nothing stops any more"}),
        transitions=(
            *PARCEL_1_0.transitions[:-1],
            T("weighed", "packed", "packed", by="effect", deprecated="weigh it yourself"),
        ),
    )
    assert checksum(marked) == checksum(replace(PARCEL_1_0, version="1.5.0"))
    with transaction(runtime.owned) as connection:
        definitions.record(connection, Catalogue([marked]))
    vars(runtime)["catalogue"] = Catalogue([*runtime.catalogue, marked])
    vars(runtime).pop("applier", None)
    assert [announce_marks(runtime) for _ in range(2)] == [2, 0]
    assert [(each["kind"], each["name"], each["deprecated_by"], each["reason"]) for each in listed(runtime)] == [
        ("state", "stopped", "the code", "nothing stops any more"),
        ("trigger", "weighed", "the code", "weigh it yourself"),
    ]
    undo(runtime, DefinitionPart("parcel", "1.5.0", "state", "stopped"), order())
    assert announce_marks(runtime) == 0, "what an operator took back is not announced again"
    assert [each["name"] for each in listed(runtime)] == ["weighed"]
    with pytest.raises(InvalidDefinition, match="'limbo' is deprecated but not a state"):
        check(replace(marked, deprecated=MappingProxyType({"limbo": "x"})))


def test_doctor_names_what_is_in_use_and_what_the_code_has_lost(
    client: Client, runtime: Runtime, make_runtime: Callable[..., Runtime], project: str
) -> None:
    def findings(of: Runtime) -> list[tuple[str, str]]:
        return [(each.level, each.message) for each in dict(doctor.CHECKS)["changes"](of)]

    assert findings(runtime) == [("ok", "0 deprecations, none in use")]
    deprecate(runtime)
    assert findings(runtime) == [("ok", "1 deprecation, none in use")]
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    ((level, says),) = findings(runtime)
    assert (level, says.endswith("1 live instances use it, 0 uses since it was announced")) == ("warn", True)
    (lost, _) = findings(make_runtime())
    assert lost == ("fail", "instances use definition versions that this process does not have: parcel 1.0.0 (1 live)")
    applied(client, parcel, "send", "deliver")
    assert [level for level, _ in findings(runtime)] == ["ok"]


def test_a_version_is_removed_by_two_once_its_time_is_over_and_nothing_lives_under_it(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    with pytest.raises(CannotDeprecate, match="is not deprecated: interlock definitions deprecate parcel"):
        propose_removal(runtime, *OLD, order())
    with pytest.raises(CannotMove, match="notice is at least 30 days"):
        deprecate(runtime, remove_after=datetime.now(UTC) + timedelta(days=29))
    deprecate(runtime)
    with pytest.raises(CannotDeprecate, match=r"deprecated already, on .* by ann"):
        deprecate(runtime)
    with pytest.raises(CannotDeprecate, match="can be removed after"):
        propose_removal(runtime, *OLD, order())
    be_due(dba)
    with pytest.raises(CannotDeprecate, match=r"1 live instances use parcel 1\.0\.0"):
        propose_removal(runtime, *OLD, order())
    applied(client, parcel, "send", "deliver")
    propose_removal(runtime, *OLD, order())
    with pytest.raises(CannotMove, match="another operator must approve it"):
        approve_removal(runtime, *OLD, order())
    with pytest.raises(NotAnOperator):
        approve_removal(runtime, *OLD, order("eve"))
    living = born(runtime, "parcel", "1.0.0", "P-2", project)
    with pytest.raises(CannotDeprecate, match="live instances use"):
        approve_removal(runtime, *OLD, order("bob"))
    with pytest.raises(CannotMove, match="live instances use it"):
        approve_by_hand(runtime, "bob")
    applied(client, living, "send", "deliver")
    approve_removal(runtime, *OLD, order("bob", "seen to it"))
    with pytest.raises(Exception, match="this version was removed at"):
        born(runtime, "parcel", "1.0.0", "P-3", project)
    assert client.show(parcel)["current_state"] == "delivered"
    assert born(runtime, "parcel", "1.1.0", "P-3", project)
    with pytest.raises(CannotDeprecate, match=r"was removed on .* by bob"):
        approve_removal(runtime, *OLD, order("bob"))
    (row,) = listed(runtime)
    events = client.history(row["deprecation_id"])
    assert [(event["to_state"], event["triggered_by"], event["authority"]) for event in events] == [
        ("announced", "ann", "operator"),
        ("removal_proposed", "ann", "operator"),
        ("removed", "bob", "operator"),
    ]
    assert events[-1]["metadata"]["reason"] == "seen to it"


def test_an_older_version_is_created_only_when_named_and_with_a_warning_if_it_is_deprecated(
    client: Client, runtime: Runtime
) -> None:
    def version_of(name: str, entity_id: str, **context: Any) -> str:
        return client.create(name, entity_id, context=context)["definition_version"]

    newest = runtime.catalogue.newest["parcel"].version
    assert version_of("workstream@0.1.0", "W-1") == "0.1.0"
    assert client.show("W-1")["current_state"] == "S_PENDING"
    with capture_logs() as lines:
        assert version_of("parcel@1.0.0", "P-1") == "1.0.0"
        deprecate(runtime)
        runtime.applier.deprecations.until = 0.0  # as after ten seconds
        assert version_of("parcel@1.1.0", "P-2") == "1.1.0"
        assert version_of("parcel@1.0.0", "P-3") == "1.0.0"
    (warning,) = [each["message"] for each in lines if each["event"] == "deprecated"]
    assert warning.startswith("parcel 1.0.0 is deprecated and will be removed after")
    for unknown in ("parcel@9.9.9", "parcel@", "parcel@1.0.0@1.0.0"):
        with pytest.raises(UnknownWorkflow, match=rf"There are: 1\.0\.0, 1\.1\.0, .*{newest}"):
            client.create(unknown, "P-4")


def test_where_nothing_lives_a_version_can_be_removed_at_once(client: Client, runtime: Runtime, project: str) -> None:
    deprecate(runtime, remove_after=datetime.now(UTC))
    propose_removal(runtime, *OLD, order())
    withdraw_removal(runtime, *OLD, order("bob"))
    with pytest.raises(CannotMove, match="was not applied"):
        approve_removal(runtime, *OLD, order("bob"))
    propose_removal(runtime, *OLD, order("bob"))
    approve_removal(runtime, *OLD, order())
    with pytest.raises(Exception, match="this version was removed at"):
        born(runtime, "parcel", "1.0.0", "P-1", project)
    with pytest.raises(BadInput, match=r"parcel 1\.0\.0 cannot begin: this version was removed at .* Name another"):
        client.create("parcel@1.0.0", "P-1")
    assert verify(runtime.database).ok


def test_the_newest_version_is_not_removed_unless_the_code_has_lost_the_type(
    runtime: Runtime, make_runtime: Callable[..., Runtime]
) -> None:
    announce(runtime, DefinitionPart("parcel", "3.0.0"), order(), remove_after=datetime.now(UTC))
    with pytest.raises(CannotDeprecate, match=r"3\.0\.0 is the newest version in the code"):
        propose_removal(runtime, "parcel", "3.0.0", order())
    without = make_runtime()
    propose_removal(without, "parcel", "3.0.0", order())
    with pytest.raises(CannotMove, match="it is the newest version"):
        approve_by_hand(runtime, "bob")
    approve_removal(without, "parcel", "3.0.0", order("bob"))
    assert [row["state"] for row in listed(runtime)] == ["removed"]


def test_a_deprecation_is_taken_back_and_announced_anew(client: Client, runtime: Runtime) -> None:
    deprecate(runtime, "trigger", "send")
    (first,) = listed(runtime)
    undo(runtime, DefinitionPart("parcel", "1.0.0", "trigger", "send"), order("bob", "needed after all"))
    assert listed(runtime) == []
    with pytest.raises(CannotDeprecate, match=r"trigger send of parcel 1\.0\.0 is not deprecated"):
        undo(runtime, DefinitionPart("parcel", "1.0.0", "trigger", "send"), order())
    deprecate(runtime, "trigger", "send")
    (second,) = listed(runtime)
    assert second["deprecation_id"] != first["deprecation_id"]
    assert [event["to_state"] for event in client.history(first["deprecation_id"])] == ["announced", "undone"]
    with transaction(runtime.database) as connection:
        told = [each["payload"]["trigger"] for each in effects.of_instance(connection, first["deprecation_id"])]
    assert sorted(told) == ["announce", "undo"]


def test_people_are_told_of_a_removal_that_is_proposed_withdrawn_and_done(
    make_runtime: Callable[..., Runtime], world: Webhook
) -> None:
    runtime = make_runtime(definitions=("tests.parcels",), notify_urls=(world.url,))
    parcels.record(runtime, "ann", "bob")

    def told() -> list[str]:
        with transaction(runtime.database) as connection:
            due = [row["id"] for row in effects.due(connection, limit=100)]
        for effect in due:
            effect_runner.run(runtime, effect)
        received = [json.loads(each["body"]) for each in world.received]
        world.received.clear()
        return [each["message"] for each in received if each["title"].startswith("deprecation ")]

    deprecate(runtime, remove_after=datetime.now(UTC))
    assert told() == ["announce by ann"]
    propose_removal(runtime, *OLD, order("ann", "nobody needs it"))
    assert told() == ["propose_removal by ann"]
    withdraw_removal(runtime, *OLD, order("bob", "somebody does"))
    assert told() == ["withdraw_removal by bob"]
    propose_removal(runtime, *OLD, order("bob", "not any more"))
    assert told() == ["propose_removal by bob"]
    approve_removal(runtime, *OLD, order("ann", "seen to it"))
    assert told() == ["approve_removal by ann"]


# What PostgreSQL refuses, whoever asks -------------------------------------------------------------------------------


def approve_by_hand(runtime: Runtime, by: str) -> None:
    """Approve the one removal that is proposed, without the checks of the command."""
    (row,) = listed(runtime)
    with at_once(runtime) as acting:
        acting.move(row["deprecation_id"], "approve_removal", by=by, reason="mine", right=OPERATOR)


def by_hand(runtime: Runtime, right: Right, by: str = "ann", **terms: Any) -> None:
    """Announce something without the checks of the command."""
    with at_once(runtime) as acting:
        said = {"type": "parcel", "version": "1.0.0", "kind": "version"} | terms
        made = acting.born("deprecation", f"mine#{uuid7().hex}", by=by, terms=said)
        acting.move(made, "announce", by=by, reason="mine", right=right)


@pytest.mark.parametrize(
    ("right", "terms", "refusal"),
    [
        (OPERATOR, {"by": "eve"}, "eve may not fire announce"),
        (OPERATOR, {"kind": "state", "name": "limbo"}, "none of that name"),
        (OPERATOR, {"kind": "trigger", "name": "limbo"}, "none of that name"),
        (OPERATOR, {"name": "x"}, "violates check constraint"),
        (OPERATOR, {"version": "9.0.0"}, "create that first"),
        (as_found(0), {"by": "the code"}, "the code marks only states and triggers"),
    ],
)
def test_what_makes_no_sense_is_refused_to_everyone(
    runtime: Runtime, right: Right, terms: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(InterlockError, match=refusal):
        by_hand(runtime, right, **terms)


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM deprecations",
        "TRUNCATE deprecations CASCADE",
        "UPDATE deprecations SET remove_after = now()",
        "UPDATE deprecations SET state = 'undone'",
        "UPDATE deprecations SET state = 'removed', removal_proposed_by = 'ann', removed_by = 'bob', removed_at = now()",  # noqa: E501
        "UPDATE deprecations SET deprecated_by = 'eve'",
    ],
)
def test_what_is_deprecated_cannot_be_written_by_hand(runtime: Runtime, dba: Dba, tampering: str, role: str) -> None:
    deprecate(runtime)
    dba.execute(f"SET session_replication_role = {role}")
    with pytest.raises(RestrictViolation):
        dba.execute(tampering)  # type: ignore[call-overload]
