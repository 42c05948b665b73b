"""Where a run happens: embedded servers of its own, a database for each side, worker nodes. Nothing of it remains."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from db import definitions, migrate
from db.connect import make_engine, transaction
from supervisor import embedded
from supervisor.home import Home, home_of
from supervisor.servers import Servers
from workers.settings import Settings
from workflows.catalogue import catalogue

TEMPLATE = "interlock_template"


@dataclass
class Stage:
    """The running servers. Sides share them, but neither a database nor a broker's key space."""

    home: Home
    servers: Servers
    _keyspaces: Iterator[int] = field(default_factory=lambda: count(1))

    def side(self, name: str, *, empty: bool = False) -> Servers:
        """A database with Interlock's schema (or, `empty`, with none) and a key space of the broker, for one side."""
        with psycopg.connect(self.servers.database_url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier("template0" if empty else TEMPLATE)
                )
            )
        return replace(
            self.servers,
            database_url=self._database_url(name),
            broker_url=self.servers.broker_url.removesuffix("/0") + f"/{next(self._keyspaces)}",
        )

    def settings(self, servers: Servers) -> Settings:
        """Interlock's settings for one side; everything else is the default."""
        return Settings(home=self.home.path, database_url=servers.database_url, broker_url=servers.broker_url)

    def prepare(self) -> None:
        """Make the template of every side's database: migrated, with the definitions recorded."""
        with psycopg.connect(self.servers.database_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
        engine = make_engine(Settings(database_url=self._database_url(TEMPLATE)).resolved_database_url())
        migrate.upgrade(engine)
        with transaction(engine) as connection:
            definitions.record(connection, catalogue())
        engine.dispose()

    def _database_url(self, name: str) -> str:
        return self.servers.database_url.removesuffix("/interlock") + f"/{name}"


@contextmanager
def staged() -> Iterator[Stage]:
    """A stage for as long as the block runs, however it ends; servers, ports and files are gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="interlock-bench-"))
    directory.chmod(0o755)  # PostgreSQL runs as another user when root starts us
    try:
        settings = Settings(home=directory / "home", database_url=None, broker_url=None)
        with embedded.running(settings) as servers:
            stage = Stage(home_of(settings), servers)
            stage.prepare()
            yield stage
    finally:
        shutil.rmtree(directory, ignore_errors=True)
