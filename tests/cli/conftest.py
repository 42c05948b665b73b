"""One running installation for all tests of the command line that run one after another."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.supervisor import orphans
from interlock.supervisor.home import home_of
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.servers import data_dirs, endpoints
from interlock.workers.settings import Settings
from tests.cli.terminal import Shell, Terminal
from tests.sharing import shared_in_directory

# `dead` at the first fault, so that there is something to redrive.
ENVIRONMENT = {
    "INTERLOCK_DEFINITIONS": "tests.chaos.machines_of_chaos",
    "INTERLOCK_MAX_ATTEMPTS": "1",
    "INTERLOCK_OPERATORS": "ann",
}
INSTALLED = pytest.StashKey[Terminal]()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Mark the modules of this directory."""
    if isinstance(collector, pytest.Module):
        collector.add_marker(pytest.mark.integration)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that share the installation: begun in one process under xdist, and never hanging for long."""
    if isinstance(item, pytest.Function) and "installation" in item.fixturenames:
        item.add_marker(pytest.mark.xdist_group("cli"))
        item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="module")
def installation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A terminal where `interlock up --detach` was said."""
    return shared_in_directory(request, INSTALLED, partial(_installed, tmp_path_factory.mktemp("cli") / "home"))


@contextmanager
def _installed(home_path: Path) -> Iterator[Terminal]:
    """Say it, and afterwards `interlock down`, which must leave nothing."""
    here, shell = Terminal(home_path, ENVIRONMENT), Shell()
    home = home_of(Settings(home=here.home))
    try:
        up = here.execute("up", "--detach", "--without", "flower")
        assert up.code == 0, up.said
        yield replace(here, shell=shell)
    finally:
        shell.end()
        down = here.execute("down", "--purge", "--yes")
        assert down.code == 0, down.said
        assert not orphans.of_home(home, data_places(home))
        assert not here.home.exists()
        assert not data_dirs.outside(home).exists()


@pytest.fixture
def project() -> str:
    """A project nobody else has."""
    return str(uuid7())


@pytest.fixture
def terminal(installation: Terminal, project: str) -> Terminal:
    """The installation, in a project of the test's own."""
    return installation.set(INTERLOCK_PROJECT=project)


@pytest.fixture
def name() -> str:
    """An entity id nobody else has."""
    return f"E-{uuid7().hex[-12:]}"


@pytest.fixture
def story(terminal: Terminal, name: str) -> str:
    """The entity id of a new story."""
    terminal.ok("create", "story", name)
    return name


@pytest.fixture
def dba(installation: Terminal) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
    """Raw SQL of a superuser in the installation's database, each statement its own commit."""
    url = endpoints.load(home_of(Settings(home=installation.home))).superuser_url
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection
