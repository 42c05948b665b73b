"""Data directories for tests of the supervisor, stopped and purged afterwards."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

from supervisor import daemon, places, report, servers, strays
from supervisor.embedded import CELERY_PARTS
from supervisor.home import Home, home_of
from supervisor.supervise import data_places
from workers.settings import Settings


@dataclass
class Place:
    """A home with shortcuts; `start` runs PostgreSQL and Valkey in it under a detached supervisor."""

    path: Path
    supervisors: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def settings(self, **changed: Any) -> Settings:
        return Settings(home=self.path, **changed)

    @property
    def home(self) -> Home:
        return home_of(self.settings())

    @property
    def known(self) -> servers.Servers:
        return servers.load(self.home)

    def start(self, **changed: Any) -> subprocess.Popen[bytes]:
        process = daemon.launch(self.settings(**changed), without=CELERY_PARTS)
        self.supervisors.append(process)
        return process

    def stop(self) -> bool:
        stopped = daemon.stop(self.settings())
        for process in self.supervisors:
            process.wait()
        return stopped

    def copy(self, seed: "Place") -> None:
        """Take over the database of a stopped home, with its password; ports are chosen anew."""
        self.home.create()
        subprocess.run(["cp", "-a", seed.path / "postgres", self.path], check=True)
        servers.save(self.home, servers.Servers(postgres_password=seed.known.postgres_password))

    def part(self, name: str) -> dict[str, Any]:
        return next(part for part in report.recorded(self.home) if part["name"] == name)

    def processes(self) -> list[psutil.Process]:
        return strays.of_home(self.home, data_places(self.home))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.known.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def valkey(self) -> "redis.Redis":
        return redis.Redis.from_url(self.known.broker_url, decode_responses=True)


@contextlib.contextmanager
def place(directory: Path) -> Iterator[Place]:
    """A home below `directory`; afterwards nothing of it is left."""
    made = Place(directory / "home")
    try:
        yield made
    finally:
        made.stop()
        places.purge(made.home)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory every user may pass (pytest's own are 0700)."""
    directory = Path(tempfile.mkdtemp(prefix="interlock-"))
    os.chmod(directory, 0o755)  # noqa: S103 - that is its point
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
