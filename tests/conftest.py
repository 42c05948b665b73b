"""Fixtures: real servers, once per pytest process; a database of its own for each test; nothing left behind."""

# ruff: noqa: E402 - what is imported below makes 400,000 objects and no garbage, and is not to be searched for it
import gc

gc.set_threshold(100_000)

import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis import Redis
from xdist.remote import Producer
from xdist.scheduler import WorkStealingScheduling

from interlock.supervisor.embedded import running
from interlock.supervisor.environment import PLAIN_NAMES
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system.users import Account, commands_account
from interlock.workflows.input.names import DEFAULT_PROJECT
from tests import databases, huge_pages, leftovers
from tests.homes import open_directory, share
from tests.kept_databases import KeptDatabase, KeptDatabases
from tests.nodes import Node, node
from tests.order import arranged
from tests.rights import operate

ROOT = Path(__file__).parents[1]

hypothesis_settings.register_profile(
    "interlock",
    max_examples=60,
    deadline=None,  # the time of a database on a shared machine varies too much
    database=None,  # leave no files; a failure prints a blob with which to repeat it
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("interlock")


structlog.configure(  # plain lines, so that a failing test shows log messages without all local variables
    processors=[
        structlog.stdlib.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(),
    ]
)


def pytest_configure(config: pytest.Config) -> None:
    """Forget the caller's own servers, never to be touched; hear signals also where `nohup` or `&` had them ignored."""
    sys.dont_write_bytecode = False  # or hundreds of processes would compile the same modules, and rewrite our asserts
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for each in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
        if signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, lambda *_: None)  # ignored here as before; what tests start has the default
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # xdist's processes find it in their environment
        leftovers.begin(config)
    # apprise still imports it for mail; Python 3.11 warns of its removal in 3.13.
    config.addinivalue_line("filterwarnings", "ignore:'imghdr' is deprecated:DeprecationWarning")
    for name in list(os.environ):
        if name.upper().startswith("INTERLOCK_") or name.upper() in PLAIN_NAMES:
            del os.environ[name]
    # Tests' own connections find our tables by their names alone; our engines set `options` of their own.
    os.environ["PGOPTIONS"] = "-c search_path=interlock"
    os.environ["PYTHONPATH"] = str(ROOT)  # lets processes that tests start import `tests.machines`


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in the order that `pytest_xdist_make_scheduler` is made for."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[_group(item)].append(item)
    items[:] = arranged(groups, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkStealingScheduling:
    """Whatever `--dist` says, because the order of the tests is made for this one."""
    return WorkStealingScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Collect each module in one process at a time: the first compiles it, and the others read what that wrote."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as module:
        flock(module, LOCK_EX)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: all that is made stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of garbage collection, and into huge pages: it stays until the end.

    So does what garbage there is, a third of the objects: to find it takes half a second, in each process.
    """
    gc.freeze()
    huge_pages.collapse()


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else item.nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End and delete what tests left behind, and fail the session if there was anything."""
    if not hasattr(session.config, "workerinput"):
        leftovers.finish(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report what was left behind."""
    leftovers.report(config, terminalreporter.write)


@pytest.fixture(scope="session")
def commands_user() -> Account | None:
    """The user that commands of plans run as, if root runs the tests."""
    return commands_account(Settings())


@pytest.fixture
def tmp_path(tmp_path: Path, commands_user: Account | None) -> Path:
    """pytest's `tmp_path`; if root runs the tests, the commands' user can work there too."""
    if commands_user is not None:
        share(tmp_path, commands_user)
    return tmp_path


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The embedded PostgreSQL and Valkey of this process."""
    with open_directory() as directory, running(Settings(home=directory / "home")) as addresses:
        databases.hasten(addresses)
        with databases.administered(addresses):
            yield addresses


@pytest.fixture(scope="session")
def template(servers: Servers) -> str:
    """The name of a migrated database, which tests copy."""
    return databases.make_template(servers)


@pytest.fixture(scope="session")
def template_with_ann(servers: Servers, template: str) -> Iterator[str]:
    """The name of a copy of it in which `ann` is an operator, which hundreds of tests need."""
    with databases.written(servers, template, lambda client: operate(client.runtime, "ann")) as (name, _):
        yield name


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, template: str) -> str:
    """The name of the database that this test's is a copy of. Modules whose tests begin alike have one of their own."""
    return str(request.getfixturevalue("template_with_ann")) if "ann" in request.fixturenames else template


@pytest.fixture(scope="session")
def kept_databases(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptDatabases]:
    """What tests of this process use one after another."""
    with closing(KeptDatabases(servers, tmp_path_factory.mktemp("kept") / "home")) as kept:
        yield kept


@pytest.fixture
def kept_database(kept_databases: KeptDatabases, database_to_copy: str) -> Iterator[KeptDatabase]:
    """A migrated database for this test, with connections."""
    with kept_databases.lent(database_to_copy) as database:
        yield database


@pytest.fixture
def database_url(kept_database: KeptDatabase) -> str:
    """A migrated database for this test alone."""
    return kept_database.url


@pytest.fixture(scope="session")
def session_valkey(servers: Servers) -> Iterator[Redis]:
    """A connection to Valkey that empties it before each test: a new one would take 3 ms."""
    with Redis.from_url(servers.broker_url) as connection:
        yield connection


@pytest.fixture
def broker_url(servers: Servers, session_valkey: Redis) -> str:
    """An empty Valkey."""
    session_valkey.flushall()
    return servers.broker_url


@pytest.fixture(scope="session")
def default_settings() -> Settings:
    """The settings of nobody who set any; reading the environment takes 4 ms."""
    return Settings()


@pytest.fixture
def settings(
    tmp_path: Path, servers: Servers, database_url: str, broker_url: str, default_settings: Settings, project: str
) -> Settings:
    """This test's settings. If root runs the tests, the commands' user can pass through the home."""
    for each in tmp_path.parents if os.geteuid() == 0 else ():
        if each.is_relative_to(tempfile.gettempdir()) and each != Path(tempfile.gettempdir()):
            each.chmod(each.stat().st_mode | 0o011)
    tmp_path.chmod(tmp_path.stat().st_mode | 0o011)
    owner_url = databases.as_owner(servers, database_url)
    own = {"home": tmp_path / "home", "database_url": database_url, "owner_url": owner_url, "broker_url": broker_url}
    own["project"] = project
    return default_settings.model_copy(update=own)


@pytest.fixture
def make_runtime(settings: Settings, kept_database: KeptDatabase) -> Iterator[Callable[..., Runtime]]:
    """Makes runtimes with changed settings. They retry nothing by themselves: a test says when something is due."""
    with ExitStack() as opened:

        def make(**changed: Any) -> Runtime:
            by_hand = {"backoff_base_seconds": 1e9, "backoff_cap_seconds": 1e9}
            runtime = Runtime(settings.model_copy(update=by_hand | changed))
            opened.callback(runtime.close)
            opened.enter_context(kept_database.lent(runtime))
            return runtime

        yield make


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime, as a worker process has it."""
    return make_runtime()


@pytest.fixture
def client(runtime: Runtime) -> Client:
    """A client, as an agent has it."""
    return Client(runtime)


@pytest.fixture
def ann(database_url: str) -> None:
    """`ann` is an operator (see `database_url`): for modules in which she acts."""


@pytest.fixture
def project() -> str:
    """The project of whoever names none."""
    return DEFAULT_PROJECT


@pytest.fixture
def dba(servers: Servers, kept_database: KeptDatabase) -> "psycopg.Connection[tuple[Any, ...]]":
    """A superuser's connection for raw SQL, with autocommit."""
    return kept_database.session(databases.as_superuser(servers, kept_database.url))


@pytest.fixture
def valkey(broker_url: str) -> Iterator["Redis"]:
    """A connection to the broker, with decoded responses."""
    with Redis.from_url(broker_url, decode_responses=True) as connection:
        yield connection


@pytest.fixture
def celery_worker(settings: Settings, tmp_path: Path) -> Iterator[Node]:
    """A real Celery worker on every queue, ready to consume."""
    with node(settings, tmp_path, "worker", "-Q", "triggers,sweeps,effects", "-c", "2", "-E") as started:
        yield started
