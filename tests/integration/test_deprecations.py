"""What is deprecated: whoever uses it is told and counted, and a version goes only when nothing lives under it."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, ForeignKeyViolation, InsufficientPrivilege, RestrictViolation

from interlock.db.connection import transaction
from interlock.db.core import definitions, deprecations
from interlock.workers.client.client import Client
from interlock.workers.engine.deprecations import Deprecations
from interlock.workers.operations import doctor
from interlock.workers.operations.metrics import read
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import T
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.versioning.export import checksum
from interlock.workflows.versioning.validate import check
from tests import parcels
from tests.driving import applied, drain_all, outcome
from tests.parcels import PARCEL_1_0, born

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
PATHS = {"version": "", "trigger": "send", "state": "sent"}


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    made = make_runtime(definitions=("tests.parcels",))
    parcels.record(made, "ann")
    return made


def deprecate(runtime: Runtime, kind: str = "version", name: str = "", version: str = "1.0.0", **said: Any) -> bool:
    with transaction(runtime.database) as connection:
        words = {"by": "ann", "reason": "old", "guide": "use 1.1.0"} | said
        return deprecations.deprecate(connection, type_="parcel", version=version, kind=kind, name=name, **words)


def listed(runtime: Runtime) -> list[dict[str, Any]]:
    with transaction(runtime.database) as connection:
        return [dict(row) for row in deprecations.listed(connection)]


def see_again(runtime: Runtime) -> None:
    runtime.applier.deprecations.until = 0.0  # as after ten seconds


@pytest.mark.parametrize("kind", PATHS)
def test_whoever_uses_it_is_told_and_counted_in_the_commit_of_the_move(
    client: Client, runtime: Runtime, project: str, kind: str
) -> None:
    assert deprecate(runtime, kind, PATHS[kind])
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
    with transaction(runtime.database) as connection:
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
    for _ in range(2):
        with transaction(runtime.database) as connection:
            definitions.record(connection, Catalogue([marked]))
    assert [(each["kind"], each["name"], each["deprecated_by"], each["reason"]) for each in listed(runtime)] == [
        ("state", "stopped", "the code", "nothing stops any more"),
        ("trigger", "weighed", "the code", "weigh it yourself"),
    ]
    with pytest.raises(InvalidDefinition, match="'limbo' is deprecated but not a state"):
        check(replace(marked, deprecated=MappingProxyType({"limbo": "x"})))


def test_doctor_names_what_is_in_use_and_what_the_code_has_lost(
    client: Client, runtime: Runtime, make_runtime: Callable[..., Runtime], project: str
) -> None:
    def findings(of: Runtime) -> list[tuple[str, str]]:
        return [(each.level, each.message) for each in dict(doctor.CHECKS)["changes"](of)]

    assert findings(runtime) == [("ok", "0 deprecations, none in use")]
    deprecate(runtime)
    assert findings(runtime) == [("ok", "1 deprecations, none in use")]
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    ((level, says),) = findings(runtime)
    assert (level, says.endswith("1 live instances use it, 0 uses since it was announced")) == ("warn", True)
    (lost, _) = findings(make_runtime())
    assert lost == ("fail", "instances use definition versions that this process does not have: parcel 1.0.0 (1 live)")
    applied(client, parcel, "send", "deliver")
    assert [level for level, _ in findings(runtime)] == ["ok"]


def test_a_version_is_removed_once_its_time_is_over_and_nothing_lives_under_it(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    def remove() -> None:
        with transaction(runtime.database) as connection:
            deprecations.remove(connection, type_="parcel", version="1.0.0", by="ann", reason="over")

    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    with pytest.raises(Exception, match="cannot be removed before it is deprecated"):
        remove()
    deprecate(runtime)
    with pytest.raises(Exception, match="cannot be removed before"):
        remove()
    dba.execute("ALTER TABLE deprecations DISABLE TRIGGER kept")
    dba.execute("UPDATE deprecations SET remove_after = now(), deprecated_at = now() - interval '30 days'")
    with pytest.raises(Exception, match=r"live instances use parcel 1\.0\.0"):
        remove()
    applied(client, parcel, "send", "deliver")
    remove()
    with pytest.raises(Exception, match="this version was removed at"):
        born(runtime, "parcel", "1.0.0", "P-2", project)
    assert client.show(parcel)["current_state"] == "delivered"
    assert born(runtime, "parcel", "1.1.0", "P-2", project)


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ("'parcel', '1.0.0', 'version', '', 'bob', 'x', now() + interval '30 d'", InsufficientPrivilege),
        ("'parcel', '1.0.0', 'state', 'limbo', 'ann', 'x', now() + interval '30 d'", CheckViolation),
        ("'parcel', '1.0.0', 'trigger', 'limbo', 'ann', 'x', now() + interval '30 d'", CheckViolation),
        ("'parcel', '1.0.0', 'version', '', 'ann', '', now() + interval '30 d'", CheckViolation),
        ("'parcel', '1.0.0', 'version', '', 'ann', 'x', now() - interval '1 d'", CheckViolation),
        ("'parcel', '1.0.0', 'version', 'x', 'ann', 'x', now() + interval '30 d'", CheckViolation),
        (
            "'parcel', '9.0.0', 'version', '', 'ann', 'x', now() + interval '30 d'",
            (CheckViolation, ForeignKeyViolation),
        ),
    ],
)
def test_what_makes_no_sense_is_refused_to_everyone(
    runtime: Runtime, dba: Dba, values: str, refusal: Any, role: str
) -> None:
    dba.execute(f"SET session_replication_role = {role}")
    if role == "replica" and refusal is not InsufficientPrivilege and "9.0.0" in values:
        pytest.skip("foreign keys are ordinary triggers")
    with pytest.raises(refusal):
        dba.execute(
            "INSERT INTO deprecations (type, version, kind, name, deprecated_by, reason, remove_after)"
            f" VALUES ({values})"  # type: ignore[call-overload]
        )


def test_what_was_announced_is_not_taken_back(runtime: Runtime, dba: Dba) -> None:
    deprecate(runtime)
    assert not deprecate(runtime, reason="again")
    for statement in ("UPDATE deprecations SET remove_after = now()", "DELETE FROM deprecations"):
        with pytest.raises(RestrictViolation):
            dba.execute(statement)
