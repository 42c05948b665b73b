"""psycopg's async connection, which a cancelled call leaves at once, whether or not the server still answers."""

import asyncio
from typing import Any, TypeVar

import psycopg
from psycopg import waiting

T = TypeVar("T")

INTERVAL_SECONDS = 0.1  # as psycopg has it


class AbandonableConnection(psycopg.AsyncConnection[Any]):
    """psycopg's own one asks the server to cancel the statement, and waits ten seconds for a server that is frozen."""

    async def wait(self, gen: Any, interval: float = INTERVAL_SECONDS, timeout: float | None = None) -> Any:
        """Wait for the server; if the caller is cancelled meanwhile, close the socket, which ends the transaction."""
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise
