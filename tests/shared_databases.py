"""A database for all tests of a module that are marked `one_database`, with connections that stay open between them.

For tests that look only at what they made themselves, each in a project of its own; in a module that is marked, those
that look at more, or use ids that others use, are marked `own_database`. What a new connection reads and plans anew
takes half of the CPU time of a short test (80 ms), the copy of a database a quarter.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases

POOLS = ("database", "owned", "statements")  # of a runtime


def is_shared(test: pytest.Item) -> bool:
    """Whether a test shares its database with others of its module."""
    return bool(test.get_closest_marker("one_database")) and not test.get_closest_marker("own_database")


@dataclass(frozen=True)
class SharedDatabase:
    """A copy of a database.

    Attributes:
        url: for the engine's login.
        lender: has its connections.
    """

    url: str
    lender: Runtime

    @contextmanager
    def lent(self, runtime: Runtime) -> Iterator[None]:
        """Let a runtime on this database use the connections, for the duration of a block."""
        pools = POOLS if runtime.settings.database_url == self.url else ()
        vars(runtime).update({pool: getattr(self.lender, pool) for pool in pools})
        try:
            yield
        finally:
            for pool in pools:  # or it would close them
                del vars(runtime)[pool]


@contextmanager
def shared_copy(servers: Servers, template: str, home: Path) -> Iterator[SharedDatabase]:
    """Copy a database for the duration of a block."""
    with databases.copy_of(servers, template) as url:
        owner_url = databases.as_owner(servers, url)
        lender = Runtime(Settings(home=home, database_url=url, owner_url=owner_url, broker_url=servers.broker_url))
        try:
            yield SharedDatabase(url, lender)
        finally:
            lender.close()
