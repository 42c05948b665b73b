"""Limits on what runs at once and what starts in a period (docs/spec/limit.md)."""

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from interlock.db.connection import transaction
from interlock.db.core import effects, limits
from interlock.db.orchestration import workers
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.effects import holder
from interlock.workers.overrides.limits import LimitedName, NoSuchLimit, remove_limit, set_limit
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.pool import claims
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.crewing import DONE, Site, finish, hand, take
from tests.driving import drain_all
from tests.limited_machines import ran
from tests.rights import grant, known
from tests.stuck import found, terminal

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
WHY = OverrideOrder("olga", "few servers")
BY = ("--by", "olga", "--reason", "few servers")


@pytest.fixture
def own(knowing: Callable[..., Runtime], project: str) -> Client:
    """A client that knows machines whose effects have keys; olga is an operator."""
    ran.clear()
    made = Client(knowing("tests.limited_machines", project=project))
    grant(made, "olga")
    return made


def limit(client: Client, kind: Any, name: str = "", **terms: Any) -> None:
    set_limit(client.runtime, LimitedName(kind, name), WHY, **terms)


def served(client: Client, name: str, server: str | None, type_: str = "copy") -> UUID:
    """An instance whose effect is due; the effect's id."""
    made = client.create(type_, name, context={"server": server} if server else {}, by="ann")["id"]
    client.fire(made, "serve", by="ann")
    drain_all(client.runtime)
    (found,) = client.show(made)["effects"]
    id_: UUID = found["id"]
    return id_


def leased(client: Client, effect_id: UUID) -> Any:
    """Take an effect's lease, as a worker does; None: it is not given."""
    with transaction(client.runtime.database) as connection:
        return effects.claim(connection, effect_id, holder="somebody", lease_seconds=60)


def ended(client: Client, claimed: Any) -> list[UUID]:
    """End an effect; what is woken after it."""
    with transaction(client.runtime.database) as connection:
        effects.finish(connection, claimed, status="done")
        return [row["id"] for row in effects.next_after(connection, claimed)]


def due(client: Client) -> list[UUID]:
    with transaction(client.runtime.database) as connection:
        return [row["id"] for row in effects.due(connection, limit=200) if row["name"] != "notice"]


def row(client: Client, effect_id: UUID) -> Any:
    with transaction(client.runtime.database) as connection:
        return effects.get(connection, effect_id)


def test_limit_4_at_most_so_many_effects_of_a_key_are_leased(own: Client) -> None:
    limit(own, "key", "a", at_once_most=2)
    first, second, third = (served(own, f"I-{each}", "a") for each in range(3))
    other = served(own, "other", "b")
    held = [leased(own, first), leased(own, second)]
    assert all(held)
    assert leased(own, third) is None
    assert leased(own, other), "another key is not limited"
    assert (row(own, third)["attempts"], row(own, third)["status"]) == (0, "pending")
    assert ended(own, held[0]) == [third]
    assert leased(own, third)


def test_limit_8_what_has_no_room_hides_nothing_behind_it(own: Client) -> None:
    limit(own, "key", "a", at_once_most=1)
    waiting = [served(own, f"I-{each}", "a") for each in range(5)]
    other = served(own, "other", None)
    assert due(own) == [waiting[0], other], "as many as there is room for"
    assert leased(own, waiting[0])
    assert due(own) == [other]


@pytest.mark.parametrize(("kind", "name"), [("project", ""), ("type", "copy"), ("key", "*"), ("key", "a*")])
def test_limit_3_a_limit_counts_a_project_a_type_or_names_that_begin_alike(own: Client, kind: str, name: str) -> None:
    limit(own, kind, name, at_once_most=1)
    first, second = served(own, "I-1", "a1"), served(own, "I-2", "a1")
    assert leased(own, first)
    assert leased(own, second) is None
    another = served(own, "I-3", "a2")
    assert bool(leased(own, another)) == (kind == "key"), "each name is counted by itself"


def test_limit_3_a_key_may_be_a_function_of_the_context(own: Client) -> None:
    limit(own, "key", "server:x", at_once_most=1)
    first, second = (served(own, f"P-{each}", "x", "print") for each in range(2))
    assert leased(own, first)
    assert leased(own, second) is None


def test_limit_3_a_trigger_whose_effect_has_no_valid_key_is_rejected_at_once(own: Client, dba: Any) -> None:
    made = own.create("print", "P-1", context={"server": "x" * 200}, by="ann")["id"]
    fired = own.fire(made, "serve", by="ann", request_id="too-long")
    drain_all(own.runtime)
    ((status, result),) = dba.execute(
        "SELECT status, result FROM interlock.trigger_requests WHERE request_id = %s", [fired.request_id]
    ).fetchall()
    assert (status, result["code"]) == ("rejected", "wrong_data"), result
    assert "the limit key of the effect 'tests_limited_by_function' must be a name" in result["message"]
    assert "xxx" not in str(result)
    assert own.show(made)["current_state"] == "waiting"


@pytest.mark.parametrize(("kind", "name"), [("key", "a*"), ("type", "copy"), ("project", "")])
def test_limit_10_a_wake_up_without_room_says_which_limit_it_waits_for(own: Client, kind: str, name: str) -> None:
    limit(own, kind, name, at_once_most=1)
    first, second = served(own, "I-1", "a1"), served(own, "I-2", "a1")
    assert leased(own, first)
    waits = {"key": "key a1", "type": "type copy", "project": "project"}[kind]
    assert effect_runner.run(own.runtime, second) == f"waits for a limit: {waits}"
    assert effect_runner.run(own.runtime, first) == effect_runner.NOT_DUE


def test_limit_5_at_most_so_many_start_in_a_period(own: Client, dba: Any) -> None:
    limit(own, "key", "a", starts=2, per_seconds=60.0)
    made = [served(own, f"I-{each}", "a") for each in range(4)]
    for each in made[:2]:
        ended(own, leased(own, each))
    assert leased(own, made[2]) is None
    assert due(own) == []
    (oldest,) = dba.execute("SELECT min(id) FROM limit_starts").fetchone()
    dba.execute("UPDATE limit_starts SET started_at = started_at - interval '1 min' WHERE id = %s", (oldest,))
    assert due(own) == [made[2]]
    assert leased(own, made[2])
    assert leased(own, made[3]) is None
    assert dba.execute("SELECT count(*) FROM limit_starts").fetchone() == (2,), "what no longer counts is deleted"


def test_limit_7_a_start_that_is_refused_by_one_limit_uses_none_of_another(own: Client, dba: Any) -> None:
    limit(own, "key", "a", at_once_most=1)
    limit(own, "type", "copy", starts=5, per_seconds=60.0)
    first, second = served(own, "I-1", "a"), served(own, "I-2", "a")
    assert leased(own, first)
    assert [leased(own, second) for _ in range(3)] == [None] * 3
    assert dba.execute("SELECT count(*) FROM limit_starts").fetchone() == (1,)


def test_limit_6_a_lease_that_is_over_holds_its_place_until_it_is_taken_back(own: Client, dba: Any) -> None:
    limit(own, "key", "a", at_once_most=1)
    first, second = served(own, "I-1", "a"), served(own, "I-2", "a")
    assert leased(own, first)
    dba.execute("UPDATE effects SET lease_until = now() - interval '1 s' WHERE status = 'leased'")
    assert leased(own, second) is None
    with transaction(own.runtime.database) as connection:
        effects.expire_leases(connection, max_attempts=9, own_attempts={}, limit=9)
    assert leased(own, second)


def test_a_worker_runs_the_next_one_as_soon_as_there_is_room(own: Client) -> None:
    limit(own, "key", "a", at_once_most=1)
    first, second = served(own, "I-1", "a"), served(own, "I-2", "a")
    held = leased(own, first)
    effect_runner.run(own.runtime, second)
    assert ran == [], "not tried"
    ended(own, held)
    effect_runner.run(own.runtime, second)
    assert ran == ["I-2"]
    assert row(own, second)["attempts"] == 1


@pytest.mark.parametrize(
    ("kind", "name"), [("project", ""), ("type", "task"), ("tool", "make"), ("key", "a"), ("key", "*")]
)
def test_limit_4_tasks_are_claimed_within_their_limits(own: Client, site: Site, kind: str, name: str) -> None:
    site = Site(own, own.project)
    workers_ = [hand(own.runtime, f"w{each}") for each in range(3)]
    limit(own, kind, name, at_once_most=2)
    site.queue(4, tool="make", limit_key="a")
    held = [take(own.runtime, each) for each in workers_[:2]]
    assert claims.take(own.runtime, known(workers_[2])) is None
    with transaction(own.runtime.database) as connection:
        assert workers.count_free_workers(connection, silent_seconds=60, limit=9) == 0, "nobody is woken in vain"
    finish(own.runtime, held[0], DONE)
    assert take(own.runtime, workers_[2])


def test_limit_8_tasks_behind_one_without_room_are_claimed(own: Client) -> None:
    site = Site(own, own.project)
    first, second = hand(own.runtime, "w1"), hand(own.runtime, "w2")
    limit(own, "key", "a", at_once_most=1)
    site.queue(3, limit_key="a", priority=5)
    other = site.queue(1)
    take(own.runtime, first)
    assert take(own.runtime, second).task_id == other[0]


def test_limit_6_a_revoked_claim_holds_its_place_until_its_worker_lets_go(own: Client) -> None:
    site = Site(own, own.project)
    first, second = hand(own.runtime, "w1"), hand(own.runtime, "w2")
    limit(own, "key", "a", at_once_most=1)
    site.queue(2, limit_key="a")
    claim = take(own.runtime, first)
    own.fire(claim.task_id, "user_cancelled", by="ann")
    drain_all(own.runtime)
    assert claims.take(own.runtime, known(second)) is None
    claims.release(own.runtime, known(first), claim.token)
    assert take(own.runtime, second)


def test_limit_5_a_claim_that_finds_no_room_is_no_start(own: Client, dba: Any) -> None:
    site = Site(own, own.project)
    first, second = hand(own.runtime, "w1"), hand(own.runtime, "w2")
    limit(own, "tool", "make", starts=1, per_seconds=3600.0)
    site.queue(2, tool="make")
    finish(own.runtime, take(own.runtime, first), DONE)
    assert [claims.take(own.runtime, known(each)) for each in (first, second)] == [None, None]
    assert dba.execute("SELECT kind, name FROM limit_starts").fetchall() == [("tool", "make")]


def test_limit_1_operators_set_and_remove_limits_and_history_says_who_and_why(own: Client) -> None:
    with pytest.raises(NotAnOperator):
        set_limit(own.runtime, LimitedName("key", "a"), OverrideOrder("mallory", "mine"), at_once_most=1)
    limit(own, "key", "a", at_once_most=1)
    limit(own, "key", "a", at_once_most=3, starts=9, per_seconds=1.5)
    with transaction(own.runtime.database) as connection:
        (found,) = limits.listed(connection, project=own.project)
    assert (found["at_once"], found["starts"], found["per_seconds"], found["by"], found["reason"]) == (
        3,
        9,
        1.5,
        "olga",
        "few servers",
    )
    made = remove_limit(own.runtime, LimitedName("key", "a"), OverrideOrder("olga", "many servers"))
    assert made["current_state"] == "removed"
    events = own.history(made["id"])
    assert [(each["trigger"], each["triggered_by"], each["metadata"]["reason"]) for each in events] == [
        ("enforce", "olga", "few servers"),
        ("remove", "olga", "many servers"),
    ]
    assert events[0]["metadata"]["terms"] == made["context"]
    with pytest.raises(NoSuchLimit):
        remove_limit(own.runtime, LimitedName("key", "a"), WHY)


@pytest.mark.parametrize(
    ("kind", "name", "terms", "why"),
    [
        ("key", "a", {}, "how much may run at once"),
        ("key", "a", {"starts": 1}, "how much may run at once"),
        ("key", "a", {"at_once_most": 0}, "at_once must be a whole number from 1 to 10000"),
        ("key", "a", {"starts": 1, "per_seconds": 700_000.0}, "at most 604800"),
        ("key", "", {"at_once_most": 1}, "key"),
        ("project", "another", {"at_once_most": 1}, "its own project"),
        ("type", "copi", {"at_once_most": 1}, r"there is no workflow type copi: did you mean copy\?"),
        ("type", "zzz*", {"at_once_most": 1}, "interlock definitions list"),
    ],
)
def test_limit_2_terms_that_are_not_valid_are_refused(
    own: Client, kind: str, name: str, terms: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        limit(own, kind, name, **terms)


def test_limit_9_what_runs_already_counts(own: Client) -> None:
    first, second = served(own, "I-1", "a"), served(own, "I-2", "a")
    assert leased(own, first)
    limit(own, "key", "a", at_once_most=1)
    assert leased(own, second) is None
    remove_limit(own.runtime, LimitedName("key", "a"), WHY)
    assert leased(own, second)


def test_limit_10_commands_show_who_holds_a_limit_and_who_waits_for_it(own: Client) -> None:
    commands = terminal(own.runtime, INTERLOCK_PROJECT=own.project)
    made = commands.ok("limit", "set", "key", "deploy", "--at-once", "1", "--rate", "10/2h", *BY)
    assert made["context"] == {"kind": "key", "name": "deploy", "at_once": 1, "starts": 10, "per_seconds": 7200.0}
    site = Site(own, own.project)
    site.queue(3, limit_key="deploy")
    claim = take(own.runtime, hand(own.runtime, "w1"))
    (listed,) = commands.ok("limit", "list")
    assert {name: listed["uses"][0][name] for name in ("held", "started", "waiting", "room")} == {
        "held": 1, "started": 1, "waiting": 2, "room": 0,
    }  # fmt: skip
    shown = commands.ok("limit", "show", "key", "deploy")
    (holder,) = shown["uses"][0]["holders"]
    assert (holder["workflow_id"], holder["holder"]) == (str(claim.task_id), "w1")
    assert [each["trigger"] for each in shown["history"]] == ["enforce"]
    said = commands.run("limit", "show", "key", "deploy").said
    assert "1 at once, 10 starts in 7200 s" in said
    assert "by w1" in said
    said = commands.run("limit", "list").said
    assert "when one ends" in said
    waits = commands.ok("stuck", "--all", "--type", "task")
    assert "it waits for the limit on key deploy: 1 run, of 1 at once" in str(waits)
    removed = commands.ok("limit", "remove", "key", "deploy", *BY)
    assert removed["current_state"] == "removed"
    assert commands.ok("limit", "list") == []


def test_limit_10_stuck_says_what_an_effect_waits_for_and_when_the_next_may_start(own: Client) -> None:
    limit(own, "key", "*", starts=1, per_seconds=3600.0)
    ended(own, leased(own, served(own, "I-1", "a")))
    served(own, "I-2", "a")
    waits = found(own.runtime, "I-2", everything=True)
    assert "on key *, which counts a by itself: 1 start in 3600 s used; the next may start at " in waits.reason
    assert waits.command.startswith("interlock limit show key '*'")
    assert "deadline" not in waits.reason
    served(own, "I-3", "a", "stamp")
    assert found(own.runtime, "I-3", everything=True).reason.endswith(". The deadline of serving runs on meanwhile")


def test_an_effect_whose_deadline_was_over_before_it_had_room_was_no_attempt(own: Client, dba: Any) -> None:
    limit(own, "key", "a", at_once_most=1)
    first = leased(own, served(own, "I-1", "a"))
    waiting = served(own, "I-2", "a", "stamp")
    dba.execute("UPDATE trigger_requests SET not_before = now(), status = 'pending' WHERE trigger = 'expire'")
    drain_all(own.runtime)
    ended(own, first)
    assert effect_runner.run(own.runtime, waiting).startswith("cancelled: stamp I-2 has moved on")
    assert (row(own, waiting)["status"], row(own, waiting)["attempts"], ran) == ("cancelled", 0, [])


def test_limit_10_whoever_sees_a_name_finds_the_limit_that_counts_it_and_its_holder(own: Client) -> None:
    commands = terminal(own.runtime, INTERLOCK_PROJECT=own.project, COLUMNS="200")
    limit(own, "key", "customer:*", at_once_most=1)
    with transaction(own.runtime.database) as connection:
        assert effects.claim(connection, served(own, "I-1", "customer:acme"), holder=holder.holder(), lease_seconds=60)
    said = commands.run("limit", "list").said
    assert all(each in said for each in ("counted", "customer:*", "customer:acme"))
    said = " ".join(commands.run("limit", "show", "key", "customer:*").said.split())
    assert f"by process {os.getpid()} of node {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d} " in said
    with pytest.raises(NoSuchLimit, match=r"what counts it is the limit on key customer:\*"):
        remove_limit(own.runtime, LimitedName("key", "customer:acme"), WHY)
    refused = commands.run("limit", "show", "key", "customer:acme").said
    assert "what counts it is the limit on key customer:*" in " ".join(refused.split())
