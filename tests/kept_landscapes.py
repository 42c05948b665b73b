"""Landscapes made once for all tests of a module: a database to copy, and the files beside it as they were then."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.system.users import Account
from tests import databases
from tests.homes import open_directory, share

Dba = psycopg.Connection[Any]


class Movable(Protocol):
    """What reaches all that it has by its runtime and its superuser's connection."""

    runtime: Runtime
    dba: Dba


Make = Callable[[Runtime, Dba, Path], Movable]


@dataclass(frozen=True)
class KeptLandscape:
    """A landscape as it was made.

    Attributes:
        database: the database to copy.
        home: the home of its runtime, which holds its worktrees.
    """

    database: str
    home: Path
    _made: Movable
    _files: Path

    def again(self, runtime: Runtime, dba: Dba) -> Any:
        """The landscape for one test, whose runtime has the same home and a copy of the database."""
        shutil.rmtree(self.home.parent)
        subprocess.run(["cp", "-a", self._files, self.home.parent], check=True)
        found = copy(self._made)
        found.runtime, found.dba = runtime, dba
        return found


@contextmanager
def kept_landscape(servers: Servers, template: str, account: Account | None, make: Make) -> Iterator[KeptLandscape]:
    """Make a landscape, for the duration of a block.

    Args:
        servers: where its database is.
        template: the database that it begins with.
        account: the user that its commands run as.
        make: makes it, in a folder at which it stays.
    """
    with open_directory() as directory:
        root, home = directory / "root", directory / "root" / "home"
        root.mkdir()
        if account is not None:
            share(root, account)

        def written(client: Client) -> Movable:
            url = str(client.runtime.settings.database_url)
            with psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as dba:
                return make(client.runtime, dba, root)

        with databases.written(servers, template, written, home) as (database, made):
            files = directory / "files"
            subprocess.run(["cp", "-a", root, files], check=True)
            yield KeptLandscape(database, home, made, files)
