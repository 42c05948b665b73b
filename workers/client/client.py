"""The Python client.

from interlock import Client

with Client(project="billing") as interlock:
    story = interlock.create("story", "S-1")
    interlock.fire("S-1", "design_complete", by="agent-7")
"""

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING
from uuid import UUID

from interlock.workers.client.committed_event import CommittedEvent
from interlock.workers.client.event_reader import EventReader
from interlock.workers.client.operations import Operations
from interlock.workers.runtime import Runtime
from interlock.workers.runtime import runtime as process_runtime
from interlock.workflows.input.arguments import door

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from interlock.workers.client.borrowed import DjangoConnection

    Caller = Session | Connection | DjangoConnection


class Client(Operations["Caller"]):
    """Everything an agent needs. Accepting a trigger takes PostgreSQL only; the broker may be down.

    Threads may share a client. After `os.fork()`, parent and children can each continue to use it.
    """

    def __init__(self, runtime: Runtime | None = None, *, project: str | UUID | None = None) -> None:
        """Create a client. It connects on first use.

        Args:
            runtime: other settings than this process's environment: `Runtime(Settings(database_url=…))`.
            project: where names are looked up and instances created; default: INTERLOCK_PROJECT, else `default`.
        """
        super().__init__(runtime or process_runtime(), project)

    @door
    def events(
        self,
        cursor: str | None = None,
        *,
        project: str | UUID | None = None,
        every_project: bool = False,
        types: Sequence[str] = (),
        quiet_seconds: float | None = None,
    ) -> Iterator[CommittedEvent]:
        """Iterate over the events of all instances, as they are committed, without a gap (EVENT-18).

        Each comes once, in commit order, so those of an instance in their order. They are read from the Redis stream
        `interlock:events`, and from history where the stream has them no longer, or not yet.

        Args:
            cursor: `cursor` of the last event that was processed, to go on after it; "0": from the first event of
                history on; None: from now on, with some that were committed right before.
            project: only events of this project; default: the client's.
            every_project: those of all projects.
            types: only events of these workflow types.
            quiet_seconds: end after so many seconds without an event; None: wait for ever.

        Returns:
            An iterator. Keep the cursor of what you have processed, where you keep its result.

        Raises:
            BadInput: the cursor is none, or of another database.
            DBAPIError: while iterating: PostgreSQL is needed and away. Go on with the last cursor.
        """
        return self._followed(self._reader(cursor, project, every_project, types), quiet_seconds)

    @staticmethod
    def _followed(reader: EventReader, quiet_seconds: float | None) -> Iterator[CommittedEvent]:
        last = monotonic()
        while quiet_seconds is None or monotonic() - last < quiet_seconds:
            for event in reader.batch():
                yield event
                last = monotonic()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.close()
