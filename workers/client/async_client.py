"""The Python client for asyncio.

from interlock import AsyncClient

async with AsyncClient(project="billing") as interlock:
    story = await interlock.create("story", "S-1")
    await interlock.fire("S-1", "design_complete", by="agent-7")

It is `Client` on psycopg's async connections, with the same rules and SQL. Like SQLAlchemy's asyncio classes, it runs
in greenlets that yield to the event loop wherever they wait. A thread sends wake-ups to the broker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from copy import copy
from functools import cached_property, partial, wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.util import await_only, greenlet_spawn

from interlock.db.connection import make_engine
from interlock.workers.access.tokens import Principal
from interlock.workers.broker.wakeup_sender import WakeupSender
from interlock.workers.client.committed_event import CommittedEvent
from interlock.workers.client.event_reader import EventReader
from interlock.workers.client.operations import Operations, acting
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings
from interlock.workflows.errors import BadInput

if TYPE_CHECKING:
    from interlock.workers.engine.applier import Round

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
AsyncCaller = AsyncSession | AsyncConnection


class AsyncRuntime(Runtime):
    """The connections and definitions of an `AsyncClient`, for one event loop."""

    @cached_property
    def database(self) -> Engine:
        """The pool of async connections to PostgreSQL, for use in greenlets."""
        return make_engine(self.settings.resolved_database_url(), for_asyncio=True)

    @cached_property
    def statements(self) -> Engine:
        """A pool of async connections for work that is one statement."""
        return make_engine(self.settings.resolved_database_url(), for_asyncio=True, single_statements=True)

    @cached_property
    def wakeup_sender(self) -> WakeupSender:
        """Sends wake-ups, never from the event loop's thread."""
        return WakeupSender(self.wakeups, always_from_thread=True)

    def pause(self, seconds: float) -> None:
        """Wait, without blocking the event loop."""
        await_only(asyncio.sleep(seconds))

    def blocking(self, call: Callable[[], R]) -> R:
        """Make a call that blocks, but not in the event loop's thread."""
        made: R = await_only(asyncio.to_thread(call))
        return made

    def publish(self, done: "Round", *, scheduled: Iterable[UUID] = ()) -> None:
        """After a commit: as `Runtime.publish`, but not in the event loop's thread, because it waits for the broker."""
        self.blocking(partial(super().publish, done, scheduled=scheduled))

    def end_sending(self) -> None:
        """Wait until wake-ups are sent, but not in the event loop's thread."""
        await_only(asyncio.to_thread(super().end_sending))


def _awaited(
    method: Callable[Concatenate[Operations[AsyncCaller], P], T],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    """A method of both clients, to be awaited; its `session` is an async one."""

    @wraps(method)
    async def called(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        if (caller := kwargs.get("session")) is not None:
            kwargs["session"] = _synchronous(caller)
        return await greenlet_spawn(partial(method, self._operations, *args, **kwargs))

    return called


def _synchronous(caller: object) -> object:
    match caller:
        case AsyncSession():
            return caller.sync_session
        case AsyncConnection():
            return caller.sync_connection
    raise BadInput(f"session must be an AsyncSession or AsyncConnection, not {type(caller).__name__}")


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited. Tasks of one event loop may share a client.

    A cancelled call is rolled back, unless it was committed already: repeat it with the same `request_id`.
    After `os.fork()` the child must create its own event loop and must not close its parent's: both use one epoll of
    the kernel, so closing either loop stops the other.
    """

    def __init__(self, runtime: AsyncRuntime | None = None, *, project: str | UUID | None = None) -> None:
        """Create a client. It connects on first use.

        Args:
            runtime: other settings than this process's environment: `AsyncRuntime(Settings(database_url=…))`.
            project: where names are looked up and instances created; default: INTERLOCK_PROJECT, else `default`.
        """
        self.runtime = runtime or AsyncRuntime(settings())
        self._operations: Operations[AsyncCaller] = Operations(self.runtime, project)
        self.birth = self._operations.birth  # reads and writes nothing, and need not be awaited

    @property
    def project(self) -> str:
        """Where names are looked up and instances created."""
        return self._operations.project

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await greenlet_spawn(self.runtime.close)

    def events(
        self,
        cursor: str | None = None,
        *,
        project: str | UUID | None = None,
        every_project: bool = False,
        types: Sequence[str] = (),
        quiet_seconds: float | None = None,
    ) -> AsyncIterator[CommittedEvent]:
        """Iterate over the events of all instances, as they are committed, without a gap, by `async for` (EVENT-18).

        Args:
            cursor, project, every_project, types, quiet_seconds: see `Client.events`.

        Returns:
            An async iterator. Keep the cursor of what you have processed, where you keep its result.

        Raises:
            BadInput, DBAPIError: see `Client.events`.
        """
        return self._followed(self._operations._reader(cursor, project, every_project, types), quiet_seconds)

    @staticmethod
    async def _followed(reader: EventReader, quiet_seconds: float | None) -> AsyncIterator[CommittedEvent]:
        last = monotonic()
        while quiet_seconds is None or monotonic() - last < quiet_seconds:
            for event in await greenlet_spawn(reader.batch):
                yield event
                last = monotonic()

    create = _awaited(Operations[AsyncCaller].create)
    create_many = _awaited(Operations[AsyncCaller].create_many)
    fire = _awaited(Operations[AsyncCaller].fire)
    fire_many = _awaited(Operations[AsyncCaller].fire_many)
    wait = _awaited(Operations[AsyncCaller].wait)
    show = _awaited(Operations[AsyncCaller].show)
    history = _awaited(Operations[AsyncCaller].history)
    verify = _awaited(Operations[AsyncCaller].verify)


def acting_async(client: AsyncClient, principal: Principal, project: str | None = None) -> AsyncClient:
    """A client as the holder of a token has it. Arguments as for `operations.acting`."""
    made = copy(client)
    made._operations = acting(client._operations, principal, project)
    made.birth = made._operations.birth
    return made
