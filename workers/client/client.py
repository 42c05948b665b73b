"""The Python client.

from interlock import Client

with Client(project="billing") as interlock:
    story = interlock.create("story", "S-1")
    interlock.fire("S-1", "design_complete", by="agent-7")
"""

from typing import TYPE_CHECKING
from uuid import UUID

from interlock.workers.client.operations import Operations
from interlock.workers.runtime import Runtime
from interlock.workers.runtime import runtime as process_runtime

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

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.close()
