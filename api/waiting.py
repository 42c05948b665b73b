"""Waits for outcomes without a thread or a connection for each waiter: one query at a time looks for all of them."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from interlock.api.inside import inside
from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.client.receipts import SETTLED, Receipt, receipt

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.005, 0.25  # between two looks; short again as soon as somebody else waits
Found = Mapping[str, Any]


class Waiters:
    """The waiters of one process."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime = runtime
        self._waiters: defaultdict[str, set[asyncio.Future[Found]]] = defaultdict(set)
        self._pause = PAUSE_SECONDS
        self._looking: asyncio.Task[None] | None = None

    async def outcomes(self, receipts: Sequence[Receipt], seconds: float) -> list[Receipt]:
        """Wait until all of these are settled.

        Args:
            receipts: of accepted triggers.
            seconds: how long to wait at most.

        Returns:
            The same, those that were settled in time with their outcomes.
        """
        if not seconds:
            return list(receipts)
        waits = [self._outcome(each, seconds) for each in receipts]
        return list(await asyncio.gather(*waits))

    async def _outcome(self, accepted: Receipt, seconds: float) -> Receipt:
        if accepted.status in SETTLED:
            return accepted
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiters[accepted.request_id].add(future)
        self._pause = PAUSE_SECONDS
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            return receipt(await asyncio.wait_for(future, seconds), replayed=accepted.replayed)
        except TimeoutError:
            return accepted
        finally:
            self._forget(accepted.request_id, future)

    def _forget(self, request_id: str, future: "asyncio.Future[Found]") -> None:
        self._waiters[request_id].discard(future)
        if not self._waiters[request_id]:
            del self._waiters[request_id]

    async def _look(self) -> None:
        while self._waiters:
            try:
                found = await inside(self._read, list(self._waiters))
            except Exception as error:  # each of them is told, and answers for it
                self._tell({each: error for each in self._waiters})
            else:
                self._tell({name: row for name, row in found.items() if row["status"] in SETTLED})
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 1.5, LONGEST_PAUSE_SECONDS)

    def _tell(self, found: Mapping[str, Found | Exception]) -> None:
        for request_id, outcome in found.items():
            for future in [each for each in self._waiters.get(request_id, ()) if not each.done()]:
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

    def _read(self, request_ids: list[str]) -> Mapping[str, Found]:
        with transaction(self._runtime.database) as connection:
            return {name: dict(row) for name, row in requests.by_ids(connection, request_ids).items()}
