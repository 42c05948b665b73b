"""Of two moves of one patch that processes ask for at once, exactly one is made (PATCH-15).

That two workers never claim one task is in `test_crew_nodes.py`.
"""

from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.callers import FORKS
from tests.landscape import Landscape
from tests.rights import fire

pytestmark = pytest.mark.integration
PATIENCE = 60.0
ROUNDS = 12
MOVES = (("validation_passed", {}), ("validation_failed", {"reason": "a policy forbids it"}))


def _move(settings: Settings, patches: list[UUID], which: int, together: Barrier, said: Any) -> None:
    """Fire one of the moves on each patch, at the moment when the other process fires the other one."""
    runtime, (trigger, data) = Runtime(settings), MOVES[which]
    client, statuses = Client(runtime), []
    for patch in patches:
        together.wait(PATIENCE)
        receipt = fire(client, patch, trigger, by=f"process-{which}", data=data)
        runtime.applier.apply_partition(patch.bytes[15] % 16)
        statuses += [each.status for each in client.wait([receipt.request_id])]
    runtime.close()
    said.put((which, statuses))


def test_of_two_processes_that_move_one_patch_one_succeeds(
    runtime: Runtime, settings: Settings, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path)
    patches = [land.patch({"app.py": f"{number}\n"}, f"t{number}") for number in range(ROUNDS)]
    together, said = FORKS.Barrier(len(MOVES)), FORKS.Queue()
    processes = [
        FORKS.Process(target=_move, args=(settings, patches, which, together, said)) for which in range(len(MOVES))
    ]
    for process in processes:
        process.start()
    try:
        told = dict(said.get(timeout=PATIENCE) for _ in processes)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
            process.join()
            process.close()
    for number, patch in enumerate(patches):
        statuses = [told[which][number] for which in range(len(MOVES))]
        assert sorted(statuses) == ["applied", "rejected"]
        (event,) = land.client.history(patch)
        assert event["trigger"] == MOVES[statuses.index("applied")][0]
        assert event["to_state"] == land.client.show(patch)["current_state"]
