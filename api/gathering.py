"""What requests ask of the database at the same time goes together: a commit and a round trip for many, not for each.

A turn is of what is there when it begins. While one is under way, what is asked waits and makes the next, which begins
as soon as PostgreSQL has answered. Each gets its own answer. If a turn fails, each of it is asked again alone, so that
the fault of one is nobody else's; and a turn that takes long is not waited for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any, Generic, TypeVar

from sqlalchemy.exc import OperationalError

from interlock.api.inside import NoAnswer, inside

A = TypeVar("A")
R = TypeVar("R")

MOST = 100  # of one turn
PATIENCE_SECONDS = 0.02  # after which the next turn begins beside one that is under way


class Gathering(Generic[A, R]):
    """Answers what many ask, in turns.

    Args:
        together: answers several in one turn, by their places. Of those that it leaves out, and of all if it raises,
            `alone` is asked.
        alone: answers one.
    Both are called in a greenlet. They must be safe to repeat.
    """

    def __init__(self, together: Callable[[Sequence[A]], Mapping[int, R]], alone: Callable[[A], R]) -> None:
        self._together, self._alone = together, alone
        self._waiting: deque[tuple[A, asyncio.Future[R]]] = deque()
        self._turns: set[asyncio.Task[None]] = set()  # those under way; an event loop itself keeps no task
        self._awaited: asyncio.Task[None] | None = None  # the one for whose end the next turn waits

    async def ask(self, asked: A) -> R:
        """Its answer; raises what `alone` raises. Who is cancelled meanwhile may have been answered."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((asked, future))
        if self._awaited is None:
            self._begin(loop)
        return await future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        # In a context of its own: it is not a part of whichever request happened to come first.
        self._awaited = loop.create_task(self._turn(), context=Context())
        self._turns.add(self._awaited)
        self._awaited.add_done_callback(self._end)
        loop.call_later(PATIENCE_SECONDS, self._next, self._awaited)

    async def _turn(self) -> None:
        turn = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        if turn := [each for each in turn if not each[1].done()]:  # who was cancelled asks no more
            await self._answer(turn)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._turns.discard(task)
        self._next(task)

    def _next(self, task: asyncio.Task[Any] | None) -> None:
        if self._awaited is task:
            self._awaited = None
            if self._waiting:
                self._begin(asyncio.get_running_loop())

    async def _answer(self, turn: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        answers: Mapping[int, R] = {}
        if len(turn) > 1:
            try:
                answers = await inside(self._together, [asked for asked, _ in turn])
            except Exception as error:
                if isinstance(error, NoAnswer) or (
                    isinstance(error, OperationalError) and not getattr(error.orig, "sqlstate", None)
                ):
                    for _, future in turn:  # the database does not answer: nor would it each alone
                        if not future.done():
                            future.set_exception(error)
                    return
            else:  # now, because PostgreSQL need not wait until these answers are written
                self._next(asyncio.current_task())
        for place, answer in answers.items():
            if not turn[place][1].done():
                turn[place][1].set_result(answer)
        left = [each for place, each in enumerate(turn) if place not in answers]
        await asyncio.gather(*(self._answer_alone(*each) for each in left))

    async def _answer_alone(self, asked: A, future: asyncio.Future[R]) -> None:
        try:
            answer = await inside(self._alone, asked)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(answer)
