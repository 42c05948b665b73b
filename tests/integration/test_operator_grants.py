"""Who is an operator has a history: each grant is an instance, and nobody has the right without its event."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, ForeignKeyViolation, RestrictViolation, UniqueViolation
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from interlock.db.audit import verify
from interlock.db.connection import transaction
from interlock.db.core import effects, requests
from interlock.db.core.request_rows import as_found
from interlock.db.operations import operators
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.client.operations import fire_by_right
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.at_once import GOVERNANCE, CannotMove, at_once
from interlock.workers.overrides.operators import LastOperator, first, grant, revoke
from interlock.workers.overrides.transaction import NotAnOperator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours
from tests import databases
from tests.driving import drain_all, make_due, outcome, swept
from tests.rights import end_at

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
WHY = {"by": "ann", "reason": "a test"}


def current(runtime: Runtime, *names: str) -> frozenset[str]:
    with transaction(runtime.database) as connection:
        return operators.current(connection, names)


def rows(runtime: Runtime) -> list[dict[str, Any]]:
    with transaction(runtime.database) as connection:
        return [dict(row) for row in operators.grants(connection, ended=True)]


def events(runtime: Runtime, name: str) -> list[dict[str, Any]]:
    """The history of the newest grant of a person."""
    newest = [row["grant_id"] for row in rows(runtime) if row["name"] == name][-1]
    return [dict(event) for event in Client(runtime).history(newest)]


def notices(runtime: Runtime, name: str) -> list[str]:
    newest = [row["grant_id"] for row in rows(runtime) if row["name"] == name][-1]
    with transaction(runtime.database) as connection:
        return [each["payload"]["trigger"] for each in effects.of_instance(connection, newest)]


def test_a_grant_and_its_end_are_events_that_say_who_by_which_right_and_why(runtime: Runtime) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    assert grant(runtime, ["bob", "bob"], until=until, **WHY) == ["bob"]
    assert grant(runtime, ["bob", "ann"], **WHY) == []
    revoke(runtime, "bob", by="bob", reason="off duty")
    granted, revoked = events(runtime, "bob")
    proof = f"grant:{rows(runtime)[0]['grant_id']}"
    assert (granted["authority"], granted["proof"], granted["triggered_by"]) == ("operator", proof, "ann")
    assert granted["metadata"]["reason"] == "a test"
    assert granted["metadata"]["terms"] == {"name": "bob", "until": until.isoformat()}
    assert (revoked["triggered_by"], revoked["metadata"]["reason"], revoked["to_state"]) == (
        "bob",
        "off duty",
        "revoked",
    )
    row = rows(runtime)[-1]
    assert (row["name"], row["granted_by"], row["reason"], row["until"]) == ("bob", "ann", "a test", until)
    assert (row["since"], row["ended_at"], row["revoked_by"]) == (granted["created_at"], revoked["created_at"], "bob")
    assert current(runtime, "ann", "bob") == {"ann"}
    assert sorted(notices(runtime, "bob")) == ["grant", "revoke"]
    assert verify.verify(runtime.database).ok


def test_who_is_granted_again_has_another_grant(runtime: Runtime) -> None:
    for _ in range(2):
        assert grant(runtime, ["bob"], **WHY) == ["bob"]
        revoke(runtime, "bob", **WHY)
    assert [row["state"] for row in rows(runtime) if row["name"] == "bob"] == ["revoked", "revoked"]


def test_a_name_of_any_length_can_be_an_operator(runtime: Runtime) -> None:
    long = ["x" * 100, "x" * 99 + "y"]
    assert grant(runtime, long, **WHY) == long
    assert current(runtime, *long) == set(long)


@pytest.mark.parametrize(
    ("names", "said", "refusal"),
    [
        (["b\tb"], {}, BadInput),
        (["bob"], {"reason": " "}, BadInput),
        (["bob"], {"until": datetime(2020, 1, 1, tzinfo=UTC)}, CannotMove),
    ],
)
def test_what_is_no_grant_is_refused_whole(
    runtime: Runtime, dba: Dba, names: list[str], said: dict[str, Any], refusal: type[Exception]
) -> None:
    before = databases.whole(dba)
    with pytest.raises(refusal):
        grant(runtime, ["cyd", *names], **WHY | said)
    assert databases.whole(dba) == before


def test_the_last_operator_stays(runtime: Runtime) -> None:
    grant(runtime, ["bob"], until=datetime.now(UTC) + timedelta(hours=1), **WHY)
    with pytest.raises(LastOperator, match="never expires"):
        revoke(runtime, "ann", **WHY)
    with pytest.raises(BadInput, match="nothing to revoke"):
        revoke(runtime, "eve", **WHY)


def test_a_revocation_says_what_it_waits_for(runtime: Runtime, client: Client, dba: Dba) -> None:
    grant(runtime, ["bob"], **WHY)
    stuck = client.fire(rows(runtime)[-1]["grant_id"], "revoke", by="ann", data={"reason": "a test"}).request_id
    dba.execute(
        "UPDATE trigger_requests SET status = 'scheduled', attempts = 3, error = 'it broke', not_before = '2100-01-01'"
        " WHERE request_id = %s",
        (stuck,),
    )
    says = r"waits for revoke by ann, which failed and is tried again at 2100-01-01 00:00:00 UTC \(it broke\)"
    with pytest.raises(CannotMove, match=rf"{says}.*interlock quarantine request {stuck} "):
        revoke(runtime, "bob", **WHY)
    with transaction(runtime.database) as connection:
        requests.quarantine(connection, [stuck], by="ann", reason="a test")
    revoke(runtime, "bob", **WHY)
    assert current(runtime, "bob") == frozenset()


def test_a_grant_gives_no_right_from_its_end_on_and_lapses(runtime: Runtime, client: Client, dba: Dba) -> None:
    grant(runtime, ["bob"], until=datetime.now(UTC) + timedelta(hours=1), **WHY)
    end_at(dba, "now() - interval '1 second'", "name = 'bob'")
    assert current(runtime, "bob") == frozenset()
    with pytest.raises(NotAnOperator):
        grant(runtime, ["cyd"], by="bob", reason="at night")
    with pytest.raises(NotYours):
        client.fire(rows(runtime)[0]["grant_id"], "revoke", by="bob", data={"reason": "x"})
    make_due(dba, "lapse")
    swept(runtime, "dispatch")
    drain_all(runtime)
    lapsed = events(runtime, "bob")[-1]
    assert (lapsed["to_state"], lapsed["authority"], lapsed["proof"]) == ("lapsed", "machinery", "state:1")
    assert (rows(runtime)[-1]["ended_at"], rows(runtime)[-1]["revoked_by"]) == (lapsed["created_at"], None)


def test_a_transaction_that_began_before_a_grants_end_has_no_right_after_it(
    runtime: Runtime, client: Client, dba: Dba
) -> None:
    grant(runtime, ["bob"], until=datetime.now(UTC) + timedelta(hours=1), **WHY)
    fires = text("SELECT interlock.accept_one('x', '', :grant, 'revoke', 'bob', '{\"reason\": \"x\"}', NULL)")
    with runtime.database.connect() as early:
        early.execute(text("SELECT now()"))
        end_at(dba, "now()", "name = 'bob'")
        with pytest.raises(DBAPIError, match="bob is not an operator"):
            early.execute(fires, {"grant": rows(runtime)[0]["grant_id"]})


def test_a_revoked_grant_does_not_lapse(runtime: Runtime, dba: Dba) -> None:
    grant(runtime, ["bob"], until=datetime.now(UTC) + timedelta(hours=1), **WHY)
    revoke(runtime, "bob", **WHY)
    make_due(dba, "lapse")
    swept(runtime, "dispatch")
    drain_all(runtime)
    assert [event["to_state"] for event in events(runtime, "bob")] == ["active", "revoked"]


def test_grants_at_once_make_one(runtime: Runtime) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: grant(runtime, ["bob"], **WHY), range(4)))
    assert sorted(made) == [[], [], [], ["bob"]]


# What PostgreSQL refuses, whoever asks -------------------------------------------------------------------------------


def seize(runtime: Runtime, database: Engine | None, name: str) -> None:
    """Grant by Interlock's own right, as whoever has its login could."""
    with at_once(runtime, database) as acting:
        made = acting.born("operator_grant", f"{name}#9", by=name, terms={"name": name})
        acting.move(made, "grant", by=name, reason="mine", right=as_found(0))


def test_interlock_itself_grants_only_where_nobody_is_an_operator(runtime: Runtime, dba: Dba) -> None:
    with pytest.raises(CannotMove, match="there are operators"):
        seize(runtime, None, "mallory")
    end_at(dba, "now() - interval '1 second'")
    assert grant(runtime, ["bob", "cyd"], by="bob", reason="nobody is left") == ["bob", "cyd"]
    assert {events(runtime, name)[0]["authority"] for name in ("bob", "cyd")} == {"machinery"}
    with pytest.raises(NotAnOperator):
        grant(runtime, ["eve"], by="eve", reason="me too")


def test_nobody_ends_a_grant_before_its_time_but_an_operator(runtime: Runtime, client: Client) -> None:
    grant(runtime, ["bob"], until=datetime.now(UTC) + timedelta(hours=1), **WHY)
    for grant_id in [row["grant_id"] for row in rows(runtime)]:
        with pytest.raises(CannotMove, match="its end has not come"), at_once(runtime) as acting:
            acting.move(grant_id, "lapse", by="mallory", reason="mine", right=as_found(1))
        with pytest.raises(NotYours):
            fire_by_right(client, Firing(grant_id, "revoke", "mallory", data={"reason": "mine"}), as_found(1))
        with pytest.raises(NotYours):
            client.fire(grant_id, "revoke", by="mallory", data={"reason": "mine"})
    assert current(runtime, "ann", "bob") == {"ann", "bob"}


def test_a_grant_needs_a_reason(runtime: Runtime, client: Client) -> None:
    with at_once(runtime) as acting:
        made = acting.born("operator_grant", "bob#9", by="ann", terms={"name": "bob"})
    with pytest.raises(NotYours, match="no reason is given"):
        client.fire(made, "grant", by="ann")
    receipt = client.fire(made, "grant", by="ann", data={"reason": "a test"})
    drain_all(runtime)
    assert outcome(client, receipt.request_id)["status"] == "applied"
    assert current(runtime, "bob") == {"bob"}


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM operators",
        "TRUNCATE operators",
        "UPDATE operators SET name = 'eve'",
        "UPDATE operators SET since = now() - interval '1 year'",
        "UPDATE operators SET until = now() - interval '1 hour'",
        "UPDATE operators SET granted_by = 'eve', reason = 'mine'",
        "UPDATE operators SET state = 'revoked', ended_at = now(), revoked_by = 'ann'",
        "UPDATE workflow_instances SET context = '{\"name\": \"eve\"}' WHERE workflow_type = 'operator_grant'",
        "INSERT INTO operators SELECT gen_random_uuid(), 'active', 'eve', 'ann', 'x', now(), NULL, NULL, NULL",
        "INSERT INTO operators SELECT id, 'active', 'eve', 'ann', 'x', now(), NULL, NULL, NULL"
        " FROM workflow_instances WHERE workflow_type = 'sprint'",
    ],
)
def test_who_was_an_operator_when_cannot_be_written_by_hand(
    client: Client, dba: Dba, project: str, tampering: str, role: str
) -> None:
    client.create("sprint", "active", project=project)
    dba.execute(f"SET session_replication_role = {role}")
    with pytest.raises((RestrictViolation, CheckViolation, ForeignKeyViolation, UniqueViolation)):
        dba.execute(tampering)  # type: ignore[call-overload]


def test_terms_are_those_of_the_birth_and_no_request_can_say_others(runtime: Runtime) -> None:
    with at_once(runtime) as acting:
        made = acting.born("operator_grant", "bob#9", by="ann", terms={"name": "bob"})
    with pytest.raises(BadInput, match="terms is what Interlock itself writes"):
        Client(runtime).fire(made, "grant", by="ann", data={"reason": "x", "terms": {"name": "eve"}})
    receipt = Client(runtime).fire(made, "grant", by="ann", data={"reason": "x"})
    drain_all(runtime)
    assert outcome(Client(runtime), receipt.request_id)["status"] == "applied"
    assert (current(runtime, "eve", "bob"), events(runtime, "bob")[0]["metadata"]["terms"]) == (
        {"bob"},
        {"name": "bob"},
    )


def test_a_clients_login_creates_and_grants_nothing(
    runtime: Runtime, make_runtime: Callable[..., Runtime], servers: Servers, database_url: str
) -> None:
    outsider = Client(make_runtime(database_url=databases.as_client(servers, database_url)))
    with pytest.raises(NotYours, match="needs a member of interlock_engine"):
        outsider.create("operator_grant", "eve#9", context={"name": "eve"}, project=GOVERNANCE, by="eve")
    with at_once(runtime) as acting:
        made = acting.born("operator_grant", "eve#9", by="eve", terms={"name": "eve"})
    with pytest.raises(NotYours):
        outsider.fire(made, "grant", by="ann", data={"reason": "mine"})


def test_the_archive_leaves_what_gave_power(runtime: Runtime, dba: Dba) -> None:
    grant(runtime, ["bob"], **WHY)
    revoke(runtime, "bob", **WHY)
    bob = rows(runtime)[-1]["grant_id"]
    (held,) = dba.execute("SELECT held FROM archive(ARRAY[%s::uuid], '-1 s', '-1 s')", (bob,)).fetchall()
    assert held == ("what gave power stays",)


def test_migrating_again_grants_nobody(
    runtime: Runtime, servers: Servers, database_url: str, make_runtime: Callable[..., Runtime]
) -> None:
    assert first(runtime, ["bob"]) == []
    with databases.copy_of(servers, "template0") as url:
        databases.prepare(databases.as_owner(servers, url))
        fresh = make_runtime(database_url=url, owner_url=databases.as_owner(servers, url))
        names = first(fresh, ["bob", "cyd"])
        assert names[1:] == ["bob", "cyd"]
        first_of_bob = events(fresh, "bob")[0]
        assert (first_of_bob["authority"], first_of_bob["triggered_by"]) == ("machinery", names[0])
        assert first(fresh, ["dan"]) == []
        with pytest.raises(CannotMove, match="there are operators"):
            seize(fresh, fresh.owned, "dan")
        fresh.close()
