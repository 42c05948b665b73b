"""Live instances move to another version: an event in the chain, what stands in the way named, nothing half done."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.db.core.rounds import PARTITION_LOCK
from interlock.workers.client.client import Client
from interlock.workers.definitions.instance_migration import Migrated, Migration, migrate
from interlock.workers.overrides.transaction import NotAnOperator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, UnknownWorkflow
from interlock.workflows.versioning.migration import MIGRATE, Subject, obstacles
from tests import parcels
from tests.driving import applied, drain_all, outcome, state, trail
from tests.migrating import due_in, move, sound, whys
from tests.parcels import born
from tests.rights import fire

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return parcels.recorded(make_runtime)


def test_a_migration_is_an_event_in_the_chain_that_says_who_from_where_and_why(
    client: Client, runtime: Runtime, project: str
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    applied(client, parcel, "send")
    assert move(runtime) == Migrated(found=1, moved=1)
    event = client.history(parcel)[-1]
    assert (event["seq"], event["trigger"], event["from_state"], event["to_state"]) == (2, MIGRATE, "sent", "sent")
    assert (event["definition_version"], event["triggered_by"], event["severity"]) == ("1.1.0", "ann", "warning")
    assert event["metadata"] == {"from_version": "1.0.0", "to_version": "1.1.0", "reason": "as agreed"}
    applied(client, parcel, "call_back", "send", "deliver")  # what only the new version has, and what both have
    assert trail(client, parcel) == ["send", MIGRATE, "call_back", "send", "deliver"]
    sound(runtime)


def test_one_that_never_moved_can_be_migrated_and_again_and_back(
    client: Client, runtime: Runtime, project: str
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    assert [move(runtime, *way).moved for way in (("1.0.0", "1.1.0"), ("1.1.0", "1.0.0"), ("1.0.0", "1.1.0"))] == [
        1
    ] * 3
    applied(client, parcel, "send", "call_back")
    sound(runtime)


def test_a_client_that_knew_it_before_fires_what_the_new_version_has(
    client: Client, runtime: Runtime, project: str
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    applied(client, parcel, "send")
    move(runtime)
    applied(client, parcel, "call_back")


def test_what_has_ended_and_what_is_under_another_version_stays(client: Client, runtime: Runtime, project: str) -> None:
    ended, other = (born(runtime, "parcel", version, version, project) for version in ("1.0.0", "1.1.0"))
    applied(client, ended, "send", "deliver")
    assert move(runtime) == Migrated()
    assert [len(client.history(each)) for each in (ended, other)] == [2, 0]


def test_a_state_that_the_new_version_lacks_needs_a_name_and_then_gets_its_deadline(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project, {"address": "1 Road"})
    applied(client, parcel, "send")
    assert whys(move(runtime, new="2.0.0")) == {"P-1": ("2.0.0 has no state 'sent': give --map sent=STATE",)}
    assert move(runtime, new="2.0.0", renamed={"sent": "under_way"}).moved == 1
    assert state(client, parcel) == "under_way"
    dba.execute("UPDATE trigger_requests SET status = 'pending' WHERE origin = 'timer'")  # the old version's, the new's
    drain_all(runtime)
    assert trail(client, parcel) == ["send", MIGRATE, "lose"]
    statuses = dba.execute("SELECT status FROM trigger_requests WHERE origin = 'timer' ORDER BY seq").fetchall()
    assert statuses == [("superseded",), ("applied",)]
    sound(runtime)


def test_a_deadline_counts_from_when_the_state_was_entered_and_one_that_is_the_same_keeps_its_instant(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    same, packed = (born(runtime, "parcel", "1.0.0", each, project, {"address": "1 Road"}) for each in ("P-1", "P-2"))
    applied(client, same, "send")
    dba.execute("UPDATE trigger_requests SET not_before = not_before - interval '50 minutes' WHERE origin = 'timer'")
    assert move(runtime, only=[same]).moved == 1
    old, new = due_in(dba, same)
    assert new == old < timedelta(minutes=10)
    assert move(runtime, new="2.0.0", only=[packed]).moved == 1
    (left,) = due_in(dba, packed)
    assert timedelta(seconds=540) < left < timedelta(seconds=600)  # since its birth, in this test's own time
    applied(client, same, "call_back")
    assert move(runtime, "1.1.0", "2.0.0", only=[same]).moved == 1


def test_a_dry_run_names_all_that_would_break_and_why_and_changes_nothing(
    client: Client, runtime: Runtime, project: str, dba: Dba
) -> None:
    good = born(runtime, "parcel", "1.1.0", "good", project, {"address": "1 Road"})
    nowhere = born(runtime, "parcel", "1.1.0", "nowhere", project)
    held = born(runtime, "parcel", "1.1.0", "held", project, {"address": "1 Road"})
    later = born(runtime, "parcel", "1.1.0", "later", project, {"address": "1 Road"})
    telling = born(runtime, "parcel", "1.1.0", "telling", project, {"address": "1 Road"})
    applied(client, held, "send")
    client.fire(held, "stop", by="ann")
    fire(client, later, "weighed", by="ann", after=timedelta(hours=1))
    applied(client, telling, "weigh")
    drain_all(runtime)
    before = everything(dba)
    done = move(runtime, "1.1.0", "2.0.0", renamed={"sent": "under_way", "stopped": "under_way"}, dry_run=True)
    assert (done.found, done.moved) == (5, 1)
    said = whys(done)
    assert said["nowhere"] == ("its context: address must be an address",)
    assert "(stop, waiting): 2.0.0 has no such trigger" in said["held"][0]
    assert "(weighed, scheduled): 2.0.0 has no such trigger" in said["later"][0]
    assert said["telling"] == (
        "an effect under way will report 'weighed', which 2.0.0 does not have: let it end first",
    )
    assert everything(dba) == before
    assert (len(client.history(good)), len(client.history(nowhere))) == (0, 0)
    real = move(runtime, "1.1.0", "2.0.0", renamed={"sent": "under_way", "stopped": "under_way"})
    assert (real.found, real.moved, whys(real)) == (5, 1, said)
    sound(runtime)


def everything(dba: Dba) -> list[Any]:
    tables = ("workflow_instances", "workflow_transitions", "trigger_requests", "effects", "workflow_links", "tasks")
    return [dba.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall() for table in tables]


def test_a_guards_facts_stand_in_the_way_and_a_held_trigger_does_not(
    client: Client, runtime: Runtime, project: str
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    (said,) = whys(move(runtime, new="3.0.0", dry_run=True)).values()
    assert said == ("guards of again read a typed row, which a parcel 3.0.0 does not have",)
    applied(client, parcel, "send")
    held = client.fire(parcel, "stop", by="bob", if_version=1)
    drain_all(runtime)
    assert move(runtime).moved == 1  # the new version asks for the same approval
    applied(client, str(outcome(client, held.request_id)["held_by"]), "approve", by="cid")
    assert state(client, parcel) == "stopped"


def test_votes_still_count_after_a_migration(client: Client, runtime: Runtime, project: str) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    applied(client, parcel, "send")
    held = client.fire(parcel, "stop", by="bob")
    drain_all(runtime)
    applied(client, str(outcome(client, held.request_id)["held_by"]), "approve", by="cid")
    applied(client, parcel, "go_on", by="bob")
    assert move(runtime).moved == 1
    assert state(client, parcel) == "stopped"
    applied(client, parcel, "go_on", by="cid")
    assert state(client, parcel) == "sent"


def test_links_that_only_the_new_version_declares_are_made(client: Client, runtime: Runtime, project: str) -> None:
    crate = born(runtime, "parcel", "1.1.0", "crate", project)
    born(runtime, "parcel", "1.0.0", "P-1", project, {"crate": "crate"})
    born(runtime, "parcel", "1.0.0", "P-2", project, {"crate": "nowhere"})
    done = move(runtime)
    assert done.moved == 1
    assert "a link that 1.1.0 declares: parcel 'nowhere' does not exist" in whys(done)["P-2"][0]
    assert [(each["role"], each["entity_id"]) for each in client.show(crate)["links"]] == [("parcels", "P-1")]


def test_interrupted_and_run_again_it_goes_on(client: Client, runtime: Runtime, project: str) -> None:
    made = [born(runtime, "parcel", "1.0.0", f"P-{number}", project) for number in range(6)]

    def interrupt(looked: int, total: int) -> None:
        assert total == len(made)
        if looked == 4:
            raise KeyboardInterrupt

    order = Migration("parcel", "1.0.0", "1.1.0", "ann", "as agreed")
    with pytest.raises(KeyboardInterrupt):
        migrate(runtime.database, runtime.catalogue, order, interrupt)
    assert [client.show(each)["definition_version"] for each in made] == ["1.1.0"] * 4 + ["1.0.0"] * 2
    assert move(runtime) == Migrated(found=2, moved=2)
    assert {len(client.history(each)) for each in made} == {1}
    sound(runtime)


def test_one_that_cannot_be_judged_stays_and_holds_up_nobody(
    client: Client, runtime: Runtime, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (born(runtime, "parcel", "1.0.0", each, project, {"address": each}) for each in ("bad", "good"))

    def judge(old: Any, new: Any, subject: Subject, renamed: Any) -> list[str]:
        return [str(1 / 0)] if subject.context["address"] == "bad" else obstacles(old, new, subject, renamed)

    monkeypatch.setattr("interlock.workers.definitions.instance_migration.obstacles", judge)
    done = move(runtime)
    assert (done.found, done.moved) == (2, 1)
    assert whys(done) == {"bad": ("it cannot be judged: ZeroDivisionError: division by zero",)}
    assert (client.show(good)["definition_version"], client.history(bad)) == ("1.1.0", [])


def test_only_operators_may_and_only_for_a_reason(runtime: Runtime, project: str) -> None:
    born(runtime, "parcel", "1.0.0", "P-1", project)
    with pytest.raises(NotAnOperator, match="'bob' is not an operator"):
        move(runtime, by="bob")
    with pytest.raises(BadInput, match="--reason"):
        move(runtime, reason=" ")


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"new": "1.0.0"}, "are the same"),
        ({"new": "9.9.9"}, r"no version '9\.9\.9'"),
        ({"old": "0.9.0"}, r"parcel 0\.9\.0 is not recorded"),
        ({"renamed": {"gone": "packed"}}, r"--map gone=packed: parcel 1\.0\.0 has no state 'gone'"),
        ({"renamed": {"sent": "packed"}}, r"1\.1\.0 also has 'sent'"),
        ({"new": "2.0.0", "renamed": {"sent": "gone"}}, r"2\.0\.0 has no state 'gone'"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused_as_a_whole(runtime: Runtime, said: dict[str, Any], wrong: str) -> None:
    with pytest.raises((BadInput, UnknownWorkflow), match=wrong):
        move(runtime, **said)


def test_a_migration_waits_for_the_round_that_decides_for_its_instance(
    client: Client, runtime: Runtime, project: str, database_url: str
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    partition = parcel.bytes[15] % 16
    with psycopg.connect(database_url) as other:
        other.execute("SELECT * FROM gather(%s, %s, 1, NULL, true)", (PARTITION_LOCK, partition))
        runtime.database.dispose()
        with pytest.raises(Exception, match="lock timeout"):
            migrate_impatiently(runtime)
        other.rollback()
    assert move(runtime).moved == 1


def migrate_impatiently(runtime: Runtime) -> None:
    from sqlalchemy import event

    def impatient(connection: Any, _record: Any) -> None:
        connection.execute("SET lock_timeout = '50ms'")
        connection.commit()

    event.listen(runtime.database, "connect", impatient)
    try:
        move(runtime)
    finally:
        event.remove(runtime.database, "connect", impatient)
        runtime.database.dispose()


def test_a_user_of_another_project_is_left_alone(runtime: Runtime, project: str, client: Client) -> None:
    mine, other = born(runtime, "parcel", "1.0.0", "P-1", project), born(runtime, "parcel", "1.0.0", "P-1", uuid7())
    assert move(runtime, only=[mine]) == Migrated(found=1, moved=1)
    assert client.show(other)["definition_version"] == "1.0.0"
