"""One running installation for all tests of the command line in a pytest process."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.supervisor import orphans
from interlock.supervisor.home import home_of
from interlock.supervisor.processes.loop import data_places
from interlock.supervisor.servers import data_dirs, endpoints
from interlock.workers.settings import Settings
from tests.cli.terminal import Terminal

# `dead` at the first fault, so that there is something to redrive.
ENVIRONMENT = {
    "INTERLOCK_DEFINITIONS": "tests.chaos.machines_of_chaos",
    "INTERLOCK_MAX_ATTEMPTS": "1",
    "INTERLOCK_OPERATORS": "ann",
}


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Mark the modules of this directory: begun in one process under xdist, and never hanging for long."""
    if isinstance(collector, pytest.Module):
        collector.add_marker(pytest.mark.integration)
        collector.add_marker(pytest.mark.xdist_group("cli"))
        collector.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal where `interlock up --detach` was said; afterwards nothing of it is left."""
    here = Terminal(tmp_path_factory.mktemp("cli") / "home", ENVIRONMENT)
    home = home_of(Settings(home=here.home))
    try:
        up = here.execute("up", "--detach", "--without", "flower")
        assert up.code == 0, up.said
        yield here
    finally:
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
