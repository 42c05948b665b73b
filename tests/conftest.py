"""Real servers once for each pytest process, a database of its own for each test, and nothing left behind."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis import Redis
from uuid_utils.compat import uuid7

from supervisor.embedded import running
from supervisor.environment import PLAIN_NAMES
from supervisor.servers import Servers
from tests import databases, leftovers
from tests.homes import open_directory
from tests.nodes import Node, node
from workers.client import Client
from workers.runtime import Runtime
from workers.settings import Settings

hypothesis_settings.register_profile(
    "interlock",
    deadline=None,  # a database on a shared machine has no deadline worth failing for
    database=None,  # nothing is left behind; the blob printed with a failure repeats it
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("interlock")


structlog.configure(  # plain lines: a failing test shows what the engine said, not every variable it had
    processors=[
        structlog.stdlib.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(),
    ]
)


def pytest_configure(config: pytest.Config) -> None:
    """Forget the caller's own servers: tests must never touch them."""
    if not hasattr(config, "workerinput"):  # xdist's processes find it in their environment
        leftovers.begin(config)
    # apprise still imports it for mail; Python 3.11 warns of its end in 3.13.
    config.addinivalue_line("filterwarnings", "ignore:'imghdr' is deprecated:DeprecationWarning")
    for name in list(os.environ):
        if name.upper().startswith("INTERLOCK_") or name.upper() in PLAIN_NAMES:
            del os.environ[name]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing is left behind, and a test that would leave something fails the session."""
    if not hasattr(session.config, "workerinput"):
        leftovers.finish(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was left all the same."""
    leftovers.report(config, terminalreporter.write)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The embedded PostgreSQL and Valkey of this process."""
    with open_directory() as directory, running(Settings(home=directory / "home")) as addresses:
        yield addresses


@pytest.fixture(scope="session")
def template(servers: Servers) -> str:
    """The name of a migrated database, to be copied."""
    return databases.make_template(servers.database_url)


@pytest.fixture
def database_url(servers: Servers, template: str) -> Iterator[str]:
    """A migrated database of this test's own."""
    with databases.copy_of(servers.database_url, template) as url:
        yield url


@pytest.fixture
def broker_url(servers: Servers) -> str:
    """An empty Valkey."""
    with Redis.from_url(servers.broker_url) as broker:
        broker.flushall()
    return servers.broker_url


@pytest.fixture
def settings(tmp_path: Path, database_url: str, broker_url: str) -> Settings:
    """This test's settings."""
    return Settings(home=tmp_path / "home", database_url=database_url, broker_url=broker_url)


@pytest.fixture
def make_runtime(settings: Settings) -> Iterator[Callable[..., Runtime]]:
    """Makes runtimes with settings changed as told."""
    with ExitStack() as opened:

        def make(**changed: Any) -> Runtime:
            runtime = Runtime(settings.model_copy(update=changed))
            opened.callback(runtime.close)
            return runtime

        yield make


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """What a worker process would have."""
    return make_runtime()


@pytest.fixture
def client(runtime: Runtime) -> Client:
    """What an agent would have."""
    return Client(runtime)


@pytest.fixture
def project() -> UUID:
    """A project nobody else has."""
    return uuid7()


@pytest.fixture
def dba(database_url: str) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
    """Raw SQL, each statement its own commit."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def valkey(broker_url: str) -> Iterator["Redis"]:
    """The broker, as redis-cli would see it."""
    with Redis.from_url(broker_url, decode_responses=True) as connection:
        yield connection


@pytest.fixture
def celery_worker(settings: Settings, tmp_path: Path) -> Iterator[Node]:
    """A real Celery worker on every queue, ready to consume."""
    with node(settings, tmp_path, "worker", "-Q", "triggers,sweeps,effects", "-c", "2", "-E") as started:
        yield started
