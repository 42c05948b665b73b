"""The environment of a run: its own embedded servers, with a database for each side. All is removed afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

import psycopg
from psycopg import sql
from redis import Redis

from interlock.db import migrate
from interlock.db.connection import make_engine, transaction
from interlock.db.core import definitions
from interlock.db.schema import ENGINE, OWNER
from interlock.supervisor import embedded
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from interlock.workflows.catalogue import catalogue

TEMPLATE = "interlock_template"


@dataclass
class Stage:
    """The running servers. The sides share them, but each has its own database and broker key space."""

    home: Home
    servers: Servers
    # Valkey has sixteen; the benchmark that had one before has ended long ago.
    _keyspaces: Iterator[int] = field(default_factory=lambda: cycle(range(1, 16)))

    def side(self, name: str, *, empty: bool = False) -> Servers:
        """A database and a key space of the broker for one side; the database has Interlock's schema unless `empty`."""
        with psycopg.connect(self.servers.superuser_url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}").format(
                    *map(sql.Identifier, (name, "template0" if empty else TEMPLATE, ENGINE if empty else OWNER))
                )
            )
        broker_url = self.servers.broker_url.removesuffix("/0") + f"/{next(self._keyspaces)}"
        with Redis.from_url(broker_url) as broker:
            broker.flushdb()
        return replace(self.servers, database_url=_beside(self.servers.database_url, name), broker_url=broker_url)

    def settings(self, servers: Servers) -> Settings:
        """Interlock's settings for one side; all others are defaults."""
        return Settings(home=self.home.path, database_url=servers.database_url, broker_url=servers.broker_url)

    def prepare(self) -> None:
        """Make the template of the sides' databases: migrated, with the definitions recorded."""
        with psycopg.connect(self.servers.superuser_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(*map(sql.Identifier, (TEMPLATE, OWNER))))
        engine = make_engine(Settings(database_url=_beside(self.servers.owner_url, TEMPLATE)).resolved_database_url())
        migrate.upgrade(engine)
        with transaction(engine) as connection:
            definitions.record(connection, catalogue())
        engine.dispose()


def _beside(url: str, name: str) -> str:
    return url.removesuffix("/interlock") + f"/{name}"


@contextmanager
def staged() -> Iterator[Stage]:
    """A stage for the duration of a block; servers, ports and files are removed afterwards, however the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="interlock-bench-"))
    directory.chmod(0o755)  # if root runs this, PostgreSQL runs as another user
    try:
        settings = Settings(home=directory / "home", database_url=None, broker_url=None)
        with embedded.running(settings) as servers:
            stage = Stage(home_of(settings), servers)
            stage.prepare()
            yield stage
    finally:
        shutil.rmtree(directory, ignore_errors=True)
