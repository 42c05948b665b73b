"""What is asked at the same time goes to the database together, and each gets its own answer."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest
from httpx import Client as HttpClient
from httpx import HTTPError, Response
from sqlalchemy.util import await_only

from interlock.api.gathering import PATIENCE_SECONDS, Gathering
from interlock.db.core import requests
from interlock.db.core.instances import InstanceRow
from interlock.db.statements import Rows
from interlock.workers.access.tokens import find
from interlock.workers.client.client import Client
from interlock.workers.overrides.narrowing import narrow
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.settings import Settings
from tests.calling import Calls, bearing, noted_sizes, token
from tests.driving import drain_all
from tests.serving import serving
from tests.waiting import eventually

pytestmark = pytest.mark.integration
FIRE = "/api/triggers?wait=0"
ORDER = OverrideOrder("ann", "a test")
Asked = tuple[dict[str, Any], str]  # the body of a request, and its token


class Turns:
    """A question that many ask: `together` and `alone`, and what they were called with."""

    def __init__(self) -> None:
        self.begun: list[int] = []  # how many each turn is of
        self.together_with: list[list[int]] = []
        self.alone_with: list[int] = []
        self.gathering = Gathering[int, int](self.together, self.alone)

    def together(self, asked: Sequence[int]) -> dict[int, int]:
        self.begun.append(len(asked))
        await_only(asyncio.sleep(0.001))
        self.together_with.append(list(asked))
        if any(each < 0 for each in asked):
            raise ValueError("one of them is negative")
        return {place: each * 2 for place, each in enumerate(asked) if each != 100}

    def alone(self, asked: int) -> int:
        self.alone_with.append(asked)
        await_only(asyncio.sleep(5 if asked == 77 else 0.001))
        if asked < 0:
            raise ValueError(f"{asked} is negative")
        return asked * 2

    async def ask(self, *asked: int) -> list[int | BaseException]:
        return await asyncio.gather(*map(self.gathering.ask, asked), return_exceptions=True)


def test_what_is_asked_at_once_makes_a_turn_and_what_is_asked_meanwhile_the_next() -> None:
    async def ask_meanwhile(turns: Turns) -> list[int | BaseException]:
        first = asyncio.create_task(turns.ask(1, 2))
        await asyncio.sleep(0.0005)
        return [*await turns.ask(3, 4, 5), *await first]

    turns = Turns()
    assert asyncio.run(ask_meanwhile(turns)) == [6, 8, 10, 2, 4]
    assert (turns.alone_with, turns.together_with) == ([], [[1, 2], [3, 4, 5]])


def test_the_next_turn_begins_before_the_answers_of_the_one_before_are_written() -> None:
    async def heard(turns: Turns, each: int) -> list[int]:
        await turns.gathering.ask(each)
        return list(turns.begun)

    async def ask_meanwhile(turns: Turns) -> list[list[int]]:
        first = asyncio.gather(heard(turns, 1), heard(turns, 2))
        while not turns.begun:
            await asyncio.sleep(0)
        await turns.ask(3, 4, 5)
        return await first

    assert asyncio.run(ask_meanwhile(Turns())) == [[2, 3], [2, 3]]


def test_who_asks_alone_is_answered_alone() -> None:
    turns = Turns()
    assert asyncio.run(turns.ask(1)) == [2]
    assert (turns.alone_with, turns.together_with) == ([1], [])


def test_the_fault_of_one_is_nobody_elses() -> None:
    turns = Turns()
    one, two, bad, four, known = asyncio.run(turns.ask(1, 2, -3, 4, 100))
    assert (one, two, four, known) == (2, 4, 8, 200)
    assert isinstance(bad, ValueError)
    assert (turns.alone_with, turns.together_with) == ([1, 2, -3, 4, 100], [[1, 2, -3, 4, 100]])


def test_what_a_turn_leaves_out_is_asked_alone() -> None:
    turns = Turns()
    assert asyncio.run(turns.ask(1, 2, 100, 3)) == [2, 4, 200, 6]
    assert (turns.alone_with, turns.together_with) == ([100], [[1, 2, 100, 3]])


def test_who_hangs_up_is_answered_or_not_and_the_others_are() -> None:
    async def hang_up(turns: Turns) -> list[int | BaseException]:
        asking = [asyncio.create_task(turns.gathering.ask(each)) for each in range(1, 7)]
        await asyncio.sleep(0)  # all have asked
        asking[0].cancel()  # before its turn began
        await asyncio.sleep(0.0005)
        asking[3].cancel()  # while it is under way
        answers = await asyncio.gather(*asking, return_exceptions=True)
        return [*answers, await turns.gathering.ask(7)]

    turns = Turns()
    first, *others = asyncio.run(hang_up(turns))
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(others.pop(2), asyncio.CancelledError)
    assert others == [4, 6, 10, 12, 14]
    assert turns.together_with == [[2, 3, 4, 5, 6]]


def test_a_turn_that_takes_long_is_not_waited_for() -> None:
    async def beside(turns: Turns) -> float:
        began = monotonic()
        slow = asyncio.create_task(turns.gathering.ask(77))
        await asyncio.sleep(0.001)
        assert await turns.ask(1, 2) == [2, 4]
        slow.cancel()
        return monotonic() - began

    assert PATIENCE_SECONDS <= asyncio.run(beside(Turns())) < 4


@pytest.fixture
def stories(call: Calls, client: Client) -> dict[str, InstanceRow]:
    """Stories of two projects, known to the API: nothing is left to be looked up but tokens."""
    made = {f"S-{n}": client.create("story", f"S-{n}") for n in range(12)}
    made["other"] = client.create("story", "S-1", project="other")
    call("POST", FIRE, json={"instance": str(made["S-0"]["id"]), "trigger": "design_complete"})
    for each in made.values():
        call("POST", FIRE, json={"instance": str(each["id"]), "trigger": "no such trigger"})
    return made


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many triggers each acceptance was of that was of several, also of those that were refused."""
    return noted_sizes(monkeypatch, requests, "accept_together")


def at_once(call: Calls, asked: Sequence[Asked]) -> list[Response]:
    async def all_of_them() -> list[Response]:
        posts = (call.client.post(FIRE, json=body, headers=bearing(bearer)) for body, bearer in asked)
        return list(await asyncio.gather(*posts))

    return call.loop.run(all_of_them())


def order(story: InstanceRow, key: str, trigger: str = "design_complete", **more: object) -> dict[str, object]:
    return {"instance": str(story["id"]), "trigger": trigger, "request_id": key, **more}


def test_each_of_many_gets_its_own_answer(
    call: Calls, client: Client, stories: dict[str, InstanceRow], accepted: list[int]
) -> None:
    runtime = client.runtime
    narrow(runtime, "story", "block", ["operator"], ORDER)
    readers, revoked = token(runtime, "reader", "read-only"), token(runtime, "gone")
    principal = find(runtime, revoked)
    assert principal is not None
    revoke_tokens(runtime, str(principal.token_id), ORDER)
    others = token(runtime, "agent-8", projects=("other",))
    mine, one = call.token, stories["S-1"]
    ill = order(stories["S-2"], "data", data={"spent": "much"})
    asked: list[tuple[Asked, int]] = [
        ((order(one, "a"), mine), 202),
        ((order(stories["S-2"], "b"), mine), 202),
        ((order(stories["S-3"], "twice"), mine), 202),
        ((order(stories["S-3"], "twice"), mine), 202),
        ((order(stories["S-4"], "reused", data={"n": 1}), mine), 202),  # or the other way round
        ((order(stories["S-4"], "reused", data={"n": 2}), mine), 422),
        ((order(one, "wrong"), mine[:-1] + ("A" if mine[-1] != "A" else "B")), 401),
        ((order(one, "revoked"), revoked), 401),
        ((order(one, "reading"), readers), 403),
        ((order(one, "narrowed", "block"), mine), 403),  # which only PostgreSQL knows
        ((order(stories["other"], "elsewhere"), mine), 404),
        ((order(stories["other"], "theirs"), others), 202),
        ((order(one, "unknown", "no such trigger"), mine), 422),
        ((ill, mine), 422),
        ((order(stories["S-5"], "later", after_seconds=60), mine), 202),
        ((order(stories["S-6"], "at version", if_version=0), mine), 202),
        ((order(stories["S-7"], "held", proof="claim:7"), mine), 403),
        ((order(stories["S-8"], "c"), mine), 202),
    ]
    answers = at_once(call, [each for each, _ in asked])
    if answers[4].status_code == 422:  # whichever the server read first
        asked[4:6] = [(asked[4][0], 422), (asked[5][0], 202)]
    told = {
        f"{body['request_id']} {n}": answer.status_code
        for n, (((body, _), _), answer) in enumerate(zip(asked, answers, strict=True))
    }
    assert told == {f"{body['request_id']} {n}": status for n, ((body, _), status) in enumerate(asked)}
    for ((body, bearer), status), answer in zip(asked, answers, strict=True):
        if status == 202:
            said = answer.json()
            assert (said["request_id"], said["workflow_id"]) == (body["request_id"], body["instance"])
            who = find(runtime, bearer)
            assert who is not None
            with runtime.statements.connect() as connection:
                (found,) = connection.exec_driver_sql(
                    "SELECT triggered_by, proof FROM interlock.trigger_requests WHERE request_id = %s",
                    (said["request_id"],),
                )
            assert (found.triggered_by, found.proof) == (who.name, who.proof())
    assert sorted(answer.json()["replayed"] for answer in answers[2:4]) == [False, True]
    assert max(accepted) > 5, "they went together"


def test_replayed_and_refused_ones_are_counted_and_recorded_once(
    call: Calls, client: Client, stories: dict[str, InstanceRow], accepted: list[int]
) -> None:
    narrow(client.runtime, "story", "block", ["operator"], ORDER)
    fired = [order(stories[f"S-{n}"], f"key {n}") for n in range(1, 9)]
    fired += [order(stories["S-9"], f"closed {n}", "block") for n in range(2)]
    for _ in range(2):
        at_once(call, [(each, call.token) for each in fired])
    assert accepted
    drain_all(client.runtime)
    with client.runtime.statements.connect() as connection:
        hits = connection.exec_driver_sql(
            "SELECT sum(value) FROM interlock.metric_deltas WHERE name = 'interlock_idempotency_hits_total'"
        ).scalar_one()
        refusals = connection.exec_driver_sql(
            "SELECT count(*) FROM interlock.workflow_transitions t JOIN interlock.workflow_instances i"
            " ON i.id = t.workflow_id WHERE i.workflow_type = 'refusal_log'"
        ).scalar_one()
    assert (hits, refusals) == (8, 4)


def test_a_token_revoked_between_its_look_up_and_the_acceptance_fires_nothing(
    call: Calls, client: Client, stories: dict[str, InstanceRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    bearer = token(client.runtime, "gone")
    principal = find(client.runtime, bearer)
    assert principal is not None
    real = requests.accept_together

    def revoked_first(statements: Any, rows: Rows) -> Any:
        if principal.proof() in {row.get("proof") for row in rows}:
            await_only(asyncio.to_thread(revoke_tokens, client.runtime, str(principal.token_id), ORDER))
        return real(statements, rows)

    fired = call("POST", FIRE, json=order(stories["S-10"], "looked up"), token=bearer)
    assert fired.status_code == 202
    monkeypatch.setattr(requests, "accept_together", revoked_first)
    asked = [(order(stories[f"S-{n}"], f"k{n}"), bearer if n == 5 else call.token) for n in range(1, 9)]
    answers = at_once(call, asked)
    assert [each.status_code for each in answers] == [202, 202, 202, 202, 401, 202, 202, 202]


@contextmanager
def locked(database_url: str, story: UUID) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has locked an instance, as the archive does; roll it back to let it go."""
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT FROM interlock.workflow_instances WHERE id = %s FOR UPDATE", (story,))
        yield connection


def test_a_locked_instance_holds_nobody_elses_trigger(
    call: Calls, database_url: str, stories: dict[str, InstanceRow], accepted: list[int]
) -> None:
    done: dict[str, float] = {}

    async def fire(body: dict[str, object]) -> int:
        answer = await call.client.post(FIRE, json=body, headers=bearing(call.token))
        done[str(body["request_id"])] = monotonic()
        return answer.status_code

    async def all_of_them(holding: psycopg.Connection[Any]) -> list[int]:
        fired = [asyncio.create_task(fire(order(stories[f"S-{n}"], f"k{n}"))) for n in range(1, 10)]
        while len(done) < len(fired) - 1:
            await asyncio.sleep(0.01)
        assert "k5" not in done
        assert (await fire(order(stories["S-10"], "afterwards"))) == 202
        assert "k5" not in done
        await asyncio.to_thread(holding.rollback)
        return await asyncio.gather(*fired)

    began = monotonic()
    with locked(database_url, stories["S-5"]["id"]) as holding:
        assert call.loop.run(all_of_them(holding)) == [202] * 9
    assert max(accepted) > 1
    assert done["afterwards"] - began < 8, "before the lock's time-out of 10 s"


def repeated(key: str) -> dict[str, str]:
    """The body of the request with this key, `STORY/NUMBER`."""
    story, _, n = key.partition("/")
    return {"instance": story, "trigger": "block" if int(n) % 2 else "design_complete", "request_id": key}


def test_a_killed_api_loses_nothing_that_it_answered(
    settings: Settings, client: Client, ann: None, tmp_path: Path
) -> None:
    ids = [client.create("story", f"S-{n}")["id"] for n in range(8)]
    headers = bearing(token(client.runtime, "agent-7"))
    answered: list[str] = []
    log = tmp_path / "api.log"
    with (
        ThreadPoolExecutor(len(ids)) as agents,
        serving(settings.model_copy(update={"api_rate": 0}), log) as (process, url),
    ):

        def fire_for_ever(story: UUID) -> None:
            with HttpClient(base_url=url, headers=headers, timeout=60) as http, suppress(HTTPError):
                for n in count():
                    body = repeated(f"{story}/{n}")
                    answer = http.post(FIRE, json=body)
                    assert answer.status_code == 202, answer.text
                    answered.append(body["request_id"])

        firing = [agents.submit(fire_for_ever, each) for each in ids]
        eventually(lambda: len(answered) > 100)
        process.send_signal(signal.SIGKILL)
        for each in firing:
            each.result()
    with client.runtime.statements.connect() as connection:
        known = set(connection.exec_driver_sql("SELECT request_id FROM interlock.trigger_requests").scalars())
    assert set(answered) <= known
    with serving(settings, tmp_path / "again.log") as (_, url), HttpClient(base_url=url, headers=headers) as http:
        body = repeated(answered[-1])
        assert http.post(FIRE, json=body, timeout=60).json()["replayed"] is True
    drain_all(client.runtime)
