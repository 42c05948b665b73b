"""The bridge from the event loop to code that was written for threads, which waits for PostgreSQL only so long."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from sqlalchemy.util import greenlet_spawn

from interlock.workflows.errors import InterlockError

P = ParamSpec("P")
T = TypeVar("T")

ANSWER_SECONDS = 6.0  # with what is slow by itself, an answer is given within ten


class NoAnswer(InterlockError):
    """PostgreSQL has not answered in time. Repeat the request unchanged; `interlock doctor` says what is wrong."""

    def __init__(self) -> None:
        super().__init__(
            "PostgreSQL has not answered in time. Nothing was done, or it is not known: repeat it unchanged, with its "
            "key. If that goes on, `interlock doctor` says what is wrong on the server."
        )


async def inside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a greenlet, on the connections of an `AsyncRuntime`; it yields to the loop wherever it waits.

    Raises:
        NoAnswer: it took longer than `ANSWER_SECONDS`, and its transaction is rolled back unless it was committed.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS) as patience:
            return await greenlet_spawn(partial(work, *args, **kwargs))
    except TimeoutError:
        if patience.expired():
            raise NoAnswer from None
        raise
