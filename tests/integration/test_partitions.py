"""A partition that stands is seen, and gets moving again, whatever a request does to the processes that apply it."""

import signal
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction, try_lock
from interlock.db.core import requests, stalled_partitions
from interlock.db.core.requests import PARTITIONS, partition_of
from interlock.db.core.rounds import PARTITION_LOCK, lock
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers import sweeps
from interlock.workers.client.client import Client
from interlock.workers.engine.locked_instance import take
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.cli.terminal import FORKS
from tests.doctoring import examined
from tests.driving import drain_all, outcome
from tests.stuck import look

pytestmark = pytest.mark.integration
OWN = ("tests.integration.mines",)
Dba = psycopg.Connection[Any]


@pytest.fixture
def own(knowing: Callable[..., Runtime]) -> Client:
    return Client(knowing(*OWN))


@pytest.fixture
def mines(own: Client, project: str) -> list[UUID]:
    """Three instances that share a partition."""
    births = [own.birth("mine", f"M-{number}", project=project) for number in range(2 * PARTITIONS + 1)]
    own.create_many(births)
    by_partition: dict[int, list[UUID]] = {}
    for birth in births:
        by_partition.setdefault(partition_of(birth.id), []).append(birth.id)
    return max(by_partition.values(), key=len)[:3]


def _sweep(settings: Settings) -> None:
    sweeps.run(Runtime(settings), "partitions")


def _apply(settings: Settings, partition: int) -> None:
    Runtime(settings).applier.apply_partition(partition)


def elsewhere(work: Callable[..., None], *given: object) -> int:
    """Do it in a process of its own; the code that ends with, negative for a signal."""
    process = FORKS.Process(target=work, args=given)  # no fork of this process, which has threads
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def swept(own: Client, dba: Dba) -> int:
    """Run the sweep `partitions` in a process of its own, a minute later."""
    dba.execute("DELETE FROM sweeps")
    dba.execute("UPDATE partition_watch SET since = since - interval '1 minute'")
    return elsewhere(_sweep, own.runtime.settings)


def late(dba: Dba) -> None:
    dba.execute(
        "UPDATE trigger_requests SET accepted_at = now() - interval '1 min', not_before = now() - interval '1 min'"
    )


def statuses(own: Client, fired: list[str]) -> list[str]:
    return [outcome(own, each)["status"] for each in fired]


def test_a_request_that_ends_its_process_is_dead_after_three_and_those_behind_it_are_applied(
    own: Client, mines: list[UUID], dba: Dba
) -> None:
    partition, how = partition_of(mines[0]), [{"how": "kills"}, {}, {}]
    firings = [Firing(mine, "step", "ann", data=data) for mine, data in zip(mines, how, strict=True)]
    fired = [each.request_id for each in own.fire_many(firings)]
    late(dba)
    killed = -signal.SIGKILL
    assert [swept(own, dba) for _ in range(3)] == [0, killed, killed]
    assert [row["request_id"] for row in partitions_stuck(own)] == [fired[0]]
    assert elsewhere(_apply, own.runtime.settings, partition) == 0, "an ordinary round leaves such a partition alone"
    assert [swept(own, dba) for _ in range(3)] == [killed, killed, 0]
    assert statuses(own, fired) == ["dead", "applied", "applied"]
    assert "quarantined by system: the process that applied it ended 3 times" in outcome(own, fired[0])["error"]
    assert swept(own, dba) == 0
    assert dba.execute("SELECT count(*) FROM partition_watch").fetchone() == (0,)


def partitions_stuck(own: Client) -> Any:
    with transaction(own.runtime.database) as connection:
        return stalled_partitions.stalled(connection)


@pytest.mark.parametrize("count", [3, 40])
def test_a_partition_that_only_nobody_looked_at_is_applied_in_one_round(
    own: Client, mines: list[UUID], dba: Dba, count: int
) -> None:
    own.fire_many([Firing(mines[number % 3], "step", "ann") for number in range(count)])
    late(dba)
    assert [swept(own, dba), swept(own, dba)] == [0, 0]
    assert dba.execute("SELECT count(DISTINCT xid) FROM workflow_transitions").fetchone() == (1,)
    assert dba.execute("SELECT begun, strikes FROM partition_watch").fetchone() == (0, 0)


def test_doctor_names_a_partition_that_stands_and_what_stands_at_its_head(
    own: Client, mines: list[UUID], dba: Dba
) -> None:
    fired = own.fire(mines[0], "step", by="ann").request_id
    late(dba)
    with transaction(own.runtime.database) as connection:
        assert stalled_partitions.watch(connection) == []
    dba.execute("UPDATE partition_watch SET since = since - interval '1 minute'")
    (finding,) = examined(own.runtime, "partitions")
    assert finding.level == "fail"
    assert fired in finding.message
    drain_all(own.runtime)
    sweeps.run(own.runtime, "partitions")
    assert [each.level for each in examined(own.runtime, "partitions")] == ["ok"]


def test_doctor_names_who_keeps_a_partition(
    runtime: Runtime, servers: Servers, database_url: str, project: str
) -> None:
    sweeps.run(runtime, "partitions")

    def found() -> list[Finding]:
        return examined(runtime, "partitions")

    assert [each.level for each in found()] == ["ok"]
    with psycopg.connect(databases.as_client(servers, database_url)) as stranger:
        stranger.execute("SELECT pg_advisory_xact_lock(%s, n) FROM generate_series(0, 4) n", (PARTITION_LOCK,))
        stranger.execute("SELECT pg_advisory_xact_lock(%s, 99)", (PARTITION_LOCK,))  # no partition
        (held,) = found()
        pid = stranger.info.backend_pid
    assert held.level == "fail"
    assert held.message.startswith(
        f"session {pid} of interlock_client (application unnamed) holds the locks of 5 of 16"
    )
    assert f"pg_terminate_backend({pid})" in held.cure
    with transaction(runtime.database) as working:
        lock(working, 3)
        (held,) = found()
    assert (held.level, "application interlock) holds the locks of 1 of" in held.message) == ("warn", True)
    assert [each.level for each in found()] == ["ok"]


def test_doctor_does_not_say_that_partitions_move_while_nobody_watches_them(runtime: Runtime, dba: Dba) -> None:
    sweeps.run(runtime, "partitions")
    dba.execute("UPDATE sweeps SET started_at = started_at - interval '40 seconds'")
    (finding,) = examined(runtime, "partitions")
    assert finding.level == "warn"
    assert finding.message.startswith("unknown: the sweep `partitions`, which checks this, has not run for 4")


def test_two_do_not_rescue_the_same_partition_at_once(own: Client, mines: list[UUID]) -> None:
    with transaction(own.runtime.database) as one, transaction(own.runtime.database) as other:
        assert [
            try_lock(one, stalled_partitions.RESCUE_LOCK, 3),
            try_lock(other, stalled_partitions.RESCUE_LOCK, 3),
            try_lock(other, stalled_partitions.RESCUE_LOCK, 4),
        ] == [True, False, True]


def test_what_is_quarantined_by_hand_says_who_and_why_and_can_be_redriven_by_its_name(
    own: Client, mines: list[UUID]
) -> None:
    fired = [own.fire(mine, "step", by="ann").request_id for mine in mines]
    with transaction(own.runtime.database) as connection:
        aside = requests.quarantine(connection, [fired[0], "nobody"], by="bob", reason="it kills")
    assert [row["request_id"] for row in aside] == [fired[0]]
    drain_all(own.runtime)
    assert statuses(own, fired) == ["dead", "applied", "applied"]
    row = outcome(own, fired[0])
    assert row["error"] == "quarantined by bob: it kills"
    assert (row["result"]["by"], row["result"]["reason"], row["result"]["was"]) == ("bob", "it kills", "pending")
    with transaction(own.runtime.database) as connection:
        assert requests.quarantine(connection, fired, by="bob", reason="again") == []
        assert requests.redrive(connection, by="ann") == []
        assert requests.unrevived(connection) == {"quarantined": fired[:1], "unreadable": []}
        requests.redrive(connection, fired[:1], by="ann")
    drain_all(own.runtime)
    assert statuses(own, fired) == ["applied"] * 3
    assert own.history(mines[0])[0]["metadata"] == {"redriven_by": "ann"}


def test_doctor_and_stuck_offer_nobody_to_redrive_what_is_quarantined_with_the_rest(
    own: Client, mines: list[UUID]
) -> None:
    fired = [own.fire(mine, "step", by="ann").request_id for mine in mines]
    with transaction(own.runtime.database) as connection:
        requests.quarantine(connection, fired[:2], by="bob", reason="it kills")
    (finding,) = examined(own.runtime, "dead", by="backlog")
    assert finding.message == "2 are quarantined"
    assert "--all" not in finding.cure
    told = {each.workflow_id: each for each in look(own.runtime)}
    assert set(told) == set(mines[:2])
    assert told[mines[0]].reason == "step is dead: quarantined by bob: it kills. Redrive it once its cause is fixed"
    assert told[mines[0]].command == f"interlock redrive {fired[0]} --reason WHY"


def test_a_request_that_is_quarantined_while_a_round_judges_it_is_not_applied(
    own: Client, mines: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = [own.fire(mine, "step", by="ann").request_id for mine in mines]

    def meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        with transaction(own.runtime.database) as connection:
            requests.quarantine(connection, fired[:1], by="bob", reason="it kills")
        return take(*given)

    monkeypatch.setattr("interlock.workers.engine.applier.take", meanwhile)
    drain_all(own.runtime)
    assert statuses(own, fired) == ["dead", "applied", "applied"]
    assert own.history(mines[0]) == []
