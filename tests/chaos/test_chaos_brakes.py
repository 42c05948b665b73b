"""Nodes, beat and servers are killed while brakes go on and off: nothing is lost, and no budget is exceeded."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import brakes
from interlock.workers.client.client import Client
from interlock.workers.overrides.brakes import NoSuchBrake, release_brake
from interlock.workers.overrides.budgets import Budgeted, set_budget
from interlock.workers.overrides.transaction import OverrideOrder
from tests.chaos.installation import BACK_SECONDS, Installation
from tests.chaos.promises import assert_promises_kept
from tests.rights import operate
from tests.waiting import eventually

ORDER = OverrideOrder("ann", "it may go on")
MOST = 8
ACTORS = ("braked-0", "braked-1")
TRIGGERS = ("block", "unblock")  # each is legal only after the other
FIRED = """
SELECT triggered_by, status, held_by IS NOT NULL, count(*)::int FROM trigger_requests
 WHERE triggered_by = ANY (%s) GROUP BY 1, 2, 3"""
WAITING = "SELECT count(*) FROM trigger_requests WHERE triggered_by = ANY (%s) AND status = 'waiting'"
BRAKES = """
SELECT context ->> 'name', current_state, count(*)::int FROM workflow_instances
 WHERE workflow_type = 'brake' AND context ->> 'name' = ANY (%s) GROUP BY 1, 2"""


@contextmanager
def agents(installation: Installation, accepted: dict[str, UUID]) -> Iterator[None]:
    """Two agents that loop, each on its own story, until the block ends."""
    over = threading.Event()
    faults: list[BaseException] = []

    def loop(actor: str) -> None:
        try:
            with installation.client() as client:
                story = eventually(lambda: client.create("story", actor), timeout=BACK_SECONDS)["id"]
                number = 0
                while not over.wait(0.1) or number % 2:  # ends as it began
                    trigger, request_id = TRIGGERS[number % 2], f"{actor}:{number}"
                    fire = lambda: client.fire(story, trigger, by=actor, request_id=request_id)  # noqa: B023, E731
                    eventually(fire, timeout=BACK_SECONDS)
                    accepted[request_id] = story
                    number += 1
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=loop, args=(actor,)) for actor in ACTORS]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join()
    assert not faults, faults


def released(client: Client) -> int:
    """Release every brake that is on; how many were."""
    with transaction(client.runtime.database) as connection:
        found = [each for each in brakes.listed(connection, project="default") if each["name"] in ACTORS]
    for each in found:
        try:
            release_brake(client.runtime, each["entity_id"], ORDER)
        except NoSuchBrake:  # the commit was done, only its answer was lost
            continue
    return len(found)


def test_brakes_hold_and_let_go_of_everything_whatever_is_killed(installation: Installation) -> None:
    accepted: dict[str, UUID] = {}
    with installation.client() as client:
        operate(client.runtime, "ann")
        set_budget(client.runtime, Budgeted("actor", "braked-*"), "triggers", ORDER, most=MOST, per_seconds=1000.0)

        def let_go() -> None:
            eventually(lambda: released(client), timeout=BACK_SECONDS)

        with agents(installation, accepted):
            for victim in ("triggers1", "beat", "postgres", "triggers2", "valkey"):
                let_go()
                with installation.broken(victim, signal.SIGKILL):
                    let_go()
        eventually(lambda: not (released(client) or _waiting(installation)), timeout=BACK_SECONDS, every=0.5)
    assert_promises_kept(installation, accepted)
    put = {name: count for name, state, count in installation.sql(BRAKES, [*ACTORS]) if state == "released"}
    assert sum(put.values()) == sum(count for *_, count in installation.sql(BRAKES, [*ACTORS]))
    for actor in ACTORS:
        counted = installation.sql(FIRED, [actor])
        assert {status for _, status, _, _ in counted} == {"applied"}  # so each came in the order of its acceptance
        free = sum(count for _, _, held, count in counted if not held)
        assert 0 < free <= MOST * (put[actor] + 1)
        assert any(held for _, _, held, _ in counted)


def _waiting(installation: Installation) -> bool:
    return installation.sql(WAITING, [*ACTORS]) != [(0,)]
