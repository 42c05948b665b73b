"""Effects: after the commit, under a lease, reported under its fencing token, and told to the instance."""

import json
import re
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from sqlalchemy import RowMapping
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import effects as rows
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.git.lock import RepositoryBusy
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import StaleLease
from tests.doctoring import examined
from tests.driving import drain_all, outcome, state, swept
from tests.rights import fire
from tests.waiting import eventually
from tests.webhooks import Webhook

pytestmark = pytest.mark.integration
OWN = ("tests.machines",)


@pytest.fixture
def own(knowing: Callable[..., Runtime], world: Webhook) -> Client:
    """A client that knows `announcement`, whose notices go to `world`, and which gives up after three attempts."""
    return Client(knowing(*OWN, notify_urls=(world.url,), max_attempts=3))


@pytest.fixture
def announcing(own: Client) -> UUID:
    """An announcement whose effect is due."""
    made: UUID = own.create("announcement", "A-1", project=uuid7())["id"]
    own.fire(made, "announce", by="ann", request_id="r-1")
    drain_all(own.runtime)
    return made


def only(client: Client, ref: UUID) -> dict[str, Any]:
    """The one effect of an instance."""
    (effect,) = client.show(ref)["effects"]
    return dict(effect)


def claim(client: Client, ref: UUID, lease_seconds: float = 60.0) -> RowMapping:
    """Take the lease, as a worker would."""
    with transaction(client.runtime.database) as connection:
        claimed = rows.claim(connection, only(client, ref)["id"], holder="w", lease_seconds=lease_seconds)
    assert claimed is not None
    return claimed


def finish(client: Client, claimed: RowMapping, **told: Any) -> None:
    with transaction(client.runtime.database) as connection:
        rows.finish(connection, claimed, **({"status": "done"} | told))


def expire(dba: "psycopg.Connection[Any]") -> None:
    """Let every lease run out."""
    dba.execute("UPDATE effects SET lease_until = now() - interval '1 second' WHERE status = 'leased'")


def take_back(client: Client, dba: "psycopg.Connection[Any]") -> int | None:
    expire(dba)
    dba.execute("DELETE FROM sweeps")
    return swept(client.runtime, "leases")


def make_due(dba: "psycopg.Connection[Any]") -> None:
    dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")


def test_a_notice_reaches_the_webhook_with_its_id_and_its_token(own: Client, announcing: UUID, world: Webhook) -> None:
    effect = only(own, announcing)
    effect_runner.run(own.runtime, effect["id"])
    (received,) = world.received
    assert received["interlock-effect"] == str(effect["id"])
    assert received["interlock-token"] == "1"
    body = json.loads(received["body"])
    assert (body["title"], body["message"]) == ("announcement A-1: announcing", "announce by ann")


def test_its_outcome_is_recorded_and_told_to_its_instance(own: Client, announcing: UUID) -> None:
    effect_runner.run(own.runtime, only(own, announcing)["id"])
    effect = only(own, announcing)
    assert (effect["status"], effect["result"], effect["attempts"]) == ("done", {"sent": 1}, 1)
    drain_all(own.runtime)
    assert state(own, announcing) == "announced"
    heard = own.history(announcing)[-1]
    assert heard["triggered_by"] == "effect"
    assert heard["metadata"] == {"effect": "notice", "result": {"sent": 1}, "error": None}


def test_the_effect_is_written_in_the_commit_of_its_move_and_hinted_after_it(
    own: Client, announcing: UUID, valkey: "Redis", dba: "psycopg.Connection[Any]"
) -> None:
    assert valkey.llen("interlock:effects") == 1
    row = dba.execute("SELECT e.xmin = t.xmin FROM effects e, workflow_transitions t").fetchone()
    assert row == (True,)


def test_nobody_runs_an_effect_that_somebody_else_has(own: Client, announcing: UUID, world: Webhook) -> None:
    world.before_answering.clear()
    effect_id = only(own, announcing)["id"]
    threads = [threading.Thread(target=effect_runner.run, args=(own.runtime, effect_id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(thread.is_alive() for thread in threads) == 1)
    world.before_answering.set()
    for thread in threads:
        thread.join()
    assert len(world.received) == 1
    assert only(own, announcing)["attempts"] == 1


def test_a_refused_notice_is_tried_again_later(own: Client, announcing: UUID, world: Webhook) -> None:
    world.answer = 503
    effect_runner.run(own.runtime, only(own, announcing)["id"])
    effect = only(own, announcing)
    assert (effect["status"], effect["attempts"], effect["finished_at"]) == ("pending", 1, None)
    assert effect["error"].startswith("NoticeNotSent")
    shown = world.url.rstrip("/")  # its scheme and host, and no more
    assert effect["error"] == f"NoticeNotSent: {shown} did not accept the notice"


def test_attempts_used_up_end_it_and_tell_the_instance(
    own: Client, announcing: UUID, world: Webhook, dba: "psycopg.Connection[Any]"
) -> None:
    world.answer = 503
    for _ in range(3):
        make_due(dba)
        effect_runner.run(own.runtime, only(own, announcing)["id"])
    assert only(own, announcing)["status"] == "dead"
    assert [received["interlock-token"] for received in world.received] == ["1", "2", "3"]
    drain_all(own.runtime)
    assert state(own, announcing) == "unheard"


def test_waiting_for_a_busy_repository_is_no_attempt(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(runtime: Runtime, claimed: RowMapping) -> dict[str, Any]:
        raise RepositoryBusy("held by pid 1")

    monkeypatch.setitem(effect_runner.EFFECTS, "notice", busy)  # type: ignore[arg-type]
    for _ in range(own.runtime.settings.max_attempts + 2):
        make_due(dba)
        effect_runner.run(own.runtime, only(own, announcing)["id"])
    row = only(own, announcing)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    dba.execute("UPDATE effects SET created_at = created_at - interval '1 hour'")
    for _ in range(own.runtime.settings.max_attempts):
        make_due(dba)
        effect_runner.run(own.runtime, only(own, announcing)["id"])
    assert only(own, announcing)["status"] == "dead", "not for ever"


def test_a_connection_that_a_restart_of_postgresql_cut_is_no_attempt(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(runtime: Runtime, claimed: RowMapping) -> dict[str, Any]:
        with transaction(runtime.database) as connection:
            driver: Any = connection.connection.driver_connection
            dba.execute("SELECT pg_terminate_backend(%s)", (driver.info.backend_pid,))
            return dict(connection.exec_driver_sql("SELECT 1 AS one").mappings().one())

    monkeypatch.setitem(effect_runner.EFFECTS, "notice", cut_off)
    for _ in range(own.runtime.settings.max_attempts + 1):
        make_due(dba)
        effect_runner.run(own.runtime, only(own, announcing)["id"])
    row = only(own, announcing)
    assert (row["status"], row["attempts"], row["error"][:16]) == ("pending", 0, "OperationalError")
    monkeypatch.undo()
    make_due(dba)
    effect_runner.run(own.runtime, row["id"])
    assert only(own, announcing)["status"] == "done"


def test_an_instance_that_has_moved_on_is_not_told(own: Client, announcing: UUID) -> None:
    effect = only(own, announcing)
    fire(own, announcing, "give_up", by="ann", request_id="r-2")
    drain_all(own.runtime)
    effect_runner.run(own.runtime, effect["id"])
    drain_all(own.runtime)
    (told,) = [each for each in own.show(announcing)["requests"] if each["triggered_by"] == "effect"]
    assert told["status"] == "superseded"
    assert state(own, announcing) == "unheard"


@pytest.mark.parametrize("status", ["done", "dead", "pending"])
def test_a_stale_token_cannot_finish_an_effect(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]", status: str
) -> None:
    stale = claim(own, announcing)
    take_back(own, dba)
    fresh = claim(own, announcing)
    assert fresh["token"] == stale["token"] + 1
    with pytest.raises(StaleLease, match=f"no longer held under token {stale['token']}"):
        finish(own, stale, status=status)
    finish(own, fresh)
    with pytest.raises(StaleLease):
        finish(own, stale, status=status)
    assert only(own, announcing)["status"] == "done"


def test_a_lease_that_ran_out_cannot_finish_though_nobody_took_it_yet(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    late = claim(own, announcing)
    expire(dba)
    with pytest.raises(StaleLease):
        finish(own, late)
    assert only(own, announcing)["status"] == "leased"


def test_a_worker_that_lost_its_lease_while_acting_reports_nothing(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def act_and_lose(runtime: Runtime, effect: RowMapping) -> Mapping[str, Any]:
        take_back(own, dba)
        return {"by": effect["token"]}

    monkeypatch.setattr(effect_runner, "EFFECTS", {"notice": act_and_lose})
    effect_runner.run(own.runtime, only(own, announcing)["id"])
    assert only(own, announcing)["status"] == "pending"
    assert drain_all(own.runtime) == 0
    monkeypatch.undo()
    effect_runner.run(own.runtime, only(own, announcing)["id"])
    assert (only(own, announcing)["status"], only(own, announcing)["result"]) == ("done", {"sent": 1})
    assert dba.execute("SELECT count(*) FROM trigger_requests WHERE triggered_by = 'effect'").fetchone() == (1,)


def test_a_silent_workers_effect_is_given_back_and_woken(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]", valkey: "Redis"
) -> None:
    claim(own, announcing)
    valkey.flushall()
    assert swept(own.runtime, "leases") == 0  # it still has its lease
    assert take_back(own, dba) == 1
    effect = only(own, announcing)
    assert (effect["status"], effect["leased_by"]) == ("pending", None)
    assert effect["error"] == "lease expired: its worker went silent"
    assert valkey.llen("interlock:effects") == 1


def test_an_effect_whose_workers_all_went_silent_ends_and_tells_the_instance(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    for _ in range(3):
        claim(own, announcing)
        take_back(own, dba)
    assert only(own, announcing)["status"] == "dead"
    drain_all(own.runtime)
    assert state(own, announcing) == "unheard"  # nothing waits for ever


def test_an_effect_that_this_node_does_not_know_is_left_to_others(
    own: Client, announcing: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_runner, "EFFECTS", {})
    effect_runner.run(own.runtime, only(own, announcing)["id"])
    row = only(own, announcing)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert row["error"] == "UnknownEffect: no module of this node's INTERLOCK_DEFINITIONS declares 'notice'"


@pytest.mark.parametrize("effect_id", [uuid7(), UUID(int=0)])
def test_a_forged_message_is_a_no_op(own: Client, effect_id: UUID) -> None:
    effect_runner.run(own.runtime, effect_id)


def test_without_targets_a_notice_is_sent_to_nobody_and_is_done(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)  # its import fails: it takes megabytes, for nothing here
    story = client.create("story", "S-1", project=uuid7())["id"]
    client.fire(story, "block", by="a", request_id="r-1")
    drain_all(client.runtime)
    assert outcome(client, "r-1")["status"] == "applied"
    effect_runner.run(client.runtime, only(client, story)["id"])
    assert (only(client, story)["status"], only(client, story)["result"]) == ("done", {"sent": 0})


def test_an_approvals_notice_says_how_to_decide(own: Client, world: Webhook) -> None:
    sprint = own.create("sprint", "P-1", project=uuid7())["id"]
    fire(own, sprint, "start", by="ann", request_id="r-1")
    drain_all(own.runtime)
    approval = outcome(own, "r-1")["held_by"]
    effect_runner.run(own.runtime, only(own, approval)["id"])
    body = json.loads(world.received[0]["body"])
    assert body["message"] == (
        f"ann asks to start sprint/P-1. Decide with: interlock fire {approval} approve --by YOU (or reject)"
    )


def test_an_effect_that_nobody_takes_is_reported_unless_its_kind_is_at_work(
    own: Client, announcing: UUID, dba: "psycopg.Connection[Any]"
) -> None:
    def says() -> list[str]:
        return [each.message for each in examined(own.runtime, "effects", by="backlog")]

    assert says() == [], "it has only just become due"
    dba.execute("UPDATE effects SET not_before = now() - interval '30 s'")
    (said,) = says()
    assert re.match(r"an effect has been due for 3\d s, and no node", said)
    other: UUID = own.create("announcement", "A-2", project=uuid7())["id"]
    own.fire(other, "announce", by="ann", request_id="r-2")
    drain_all(own.runtime)
    claim(own, other)
    assert says() == [], "the node is busy with another"
    dba.execute("UPDATE effects SET queue = 'gates' WHERE workflow_id = %s", (other,))
    assert len(says()) == 1, "gates have a node of their own"
