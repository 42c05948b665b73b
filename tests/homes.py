"""Homes for tests of the supervisor; they are stopped and purged afterwards."""

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

from interlock.supervisor import daemon, orphans, purge
from interlock.supervisor.embedded import CELERY_PARTS, running
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes import status
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.servers import endpoints
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system.users import Account
from tests import databases


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
    def known(self) -> endpoints.Servers:
        return endpoints.load(self.home)

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
        """Copy the database of a stopped home, with its passwords; ports are chosen anew."""
        self.home.create()
        subprocess.run(["cp", "-a", seed.path / "postgres", self.path], check=True)
        endpoints.save(self.home, endpoints.Servers(postgres_passwords=seed.known.postgres_passwords))

    def part(self, name: str) -> dict[str, Any]:
        return next(part for part in status.recorded(self.home) if part["name"] == name)

    def processes(self) -> list[psutil.Process]:
        return orphans.of_home(self.home, data_places(self.home))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.known.superuser_url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def valkey(self) -> "redis.Redis":
        return redis.Redis.from_url(self.known.broker_url, decode_responses=True)


@contextlib.contextmanager
def place(directory: Path) -> Iterator[Place]:
    """A home below `directory`, for the duration of a block."""
    made = Place(directory / "home")
    try:
        yield made
    finally:
        made.stop()
        purge.purge(made.home)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user can pass through (pytest's own are 0700)."""
    directory = Path(tempfile.mkdtemp(prefix="interlock-"))
    os.chmod(directory, 0o755)  # noqa: S103 - that is its point
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def share(directory: Path, account: Account) -> None:
    """Allow an account to work in a directory and in everything created below it (acl(5))."""
    user, mask, everybody = 0x02, 0x10, 0xFFFFFFFF
    entries = [
        (0x01, 7, everybody),
        (user, 7, account.uid),
        (0x04, 5, everybody),
        (mask, 7, everybody),
        (0x20, 5, everybody),
    ]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
    for name in ("system.posix_acl_access", "system.posix_acl_default"):
        os.setxattr(directory, name, packed)


@contextlib.contextmanager
def installed(home: Settings) -> Iterator[Client]:
    """A client of an installation of the block's own, with servers of its own."""
    with running(home, keep=True) as addresses:
        databases.prepare(addresses.owner_url)
        runtime = Runtime(home)
        try:
            yield Client(runtime)
        finally:
            runtime.close()
