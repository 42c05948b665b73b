"""A long history is verified beside the event loop: others are answered meanwhile, and nobody waits without end."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from time import thread_time
from uuid import UUID

import pytest

from interlock.api import access
from interlock.db.audit.verify import CHUNK
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from tests import databases
from tests.calling import Calls, bearing
from tests.driving import drain_all
from tests.rights import operate
from tests.tampering import Dba, unprotected

pytestmark = pytest.mark.integration

EVENTS = 6_000


def blocked_and_unblocked(client: Client) -> UUID:
    """A story that was blocked and unblocked many times."""
    operate(client.runtime, "ann")
    made: UUID = client.create("story", "S-1")["id"]
    client.fire_many([Firing(made, ("block", "unblock")[each % 2], "bot") for each in range(EVENTS)])
    drain_all(client.runtime)
    assert client.show(made)["version"] == EVENTS
    return made


@pytest.fixture(scope="module")
def written(servers: Servers, template: str) -> Iterator[tuple[str, UUID]]:
    """The name of the database that has it."""
    with databases.written(servers, template, blocked_and_unblocked) as made:
        yield made


@pytest.fixture
def database_to_copy(written: tuple[str, UUID]) -> str:
    """Each test's database is a copy of it."""
    return written[0]


@pytest.fixture
def story(written: tuple[str, UUID]) -> UUID:
    """The story."""
    return written[1]


def test_while_a_long_history_is_verified_others_are_answered(call: Calls, client: Client, story: UUID) -> None:
    client.verify(story)
    began = thread_time()
    client.verify(story)
    alone = thread_time() - began  # CPU seconds, because others may use the machine

    async def looked(path: str) -> tuple[dict[str, object], float]:
        """The answer, and the most CPU seconds of one turn of the event loop meanwhile."""
        loop, turns = asyncio.get_running_loop(), [thread_time()]
        asked = asyncio.create_task(call.client.get(path, headers=bearing(call.token)))

        def turn() -> None:
            turns.append(thread_time())
            if not asked.done():
                loop.call_soon(turn)

        turn()
        assert (await call.client.get("/api/health")).status_code == 200
        answer = await asked
        return answer.json(), max(after - before for before, after in pairwise(turns))

    for path in (f"/api/instances/{story}", f"/api/history/{story}?limit=1"):
        for each in ("/api/health", path):
            call("GET", each)  # the first request of a route also makes what its answers need
        tried = [call.loop.run(looked(path)) for _ in range(3)]  # one of them may have met a collection of garbage
        assert all((answer["verified"], answer["problems"]) == (True, []) for answer, _ in tried)
        assert min(longest for _, longest in tried) < alone / 2, (path, tried, alone)


def test_a_history_that_takes_too_long_is_said_to_be_unverified(
    call: Calls, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "VERIFY_SECONDS", 0.01)
    for path in (f"/api/instances/{story}", f"/api/history/{story}?limit=1"):
        answer = call("GET", path)
        assert (answer.status_code, answer.json()["verified"], answer.json()["problems"]) == (200, None, [])
    monkeypatch.undo()
    assert call("GET", f"/api/instances/{story}").json()["verified"] is True  # and its connection is given back


def test_what_was_changed_is_found_wherever_a_part_ends(call: Calls, story: UUID, dba: Dba) -> None:
    changed, missing = (1, CHUNK - 1, CHUNK + 1, 2 * CHUNK, EVENTS), (4 * CHUNK, 6 * CHUNK + 1)
    with unprotected(dba, "workflow_transitions"):
        dba.execute(
            "UPDATE workflow_transitions SET triggered_by = 'eve' WHERE workflow_id = %s AND seq = ANY(%s)",
            (story, list(changed)),
        )
        dba.execute("DELETE FROM workflow_transitions WHERE workflow_id = %s AND seq = ANY(%s)", (story, list(missing)))
    answer = call("GET", f"/api/instances/{story}").json()
    assert answer["verified"] is False
    assert sum("its hash is not that of its content" in each for each in answer["problems"]) == len(changed)
    assert [each for each in answer["problems"] if "gap" in each] == [f"gap: event {seq} is missing" for seq in missing]
