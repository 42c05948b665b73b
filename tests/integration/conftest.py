"""What many tests of the integration tier begin with; a module that needs more says so with a fixture of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.system.users import Account
from interlock.workers.telemetry import tracing
from interlock.workflows.catalogue import catalogue
from tests.collector import Collector, collector
from tests.crewing import Site
from tests.driving import drain_all, swept
from tests.homes import open_directory
from tests.kept_databases import KeptDatabase
from tests.kept_landscapes import KeptLandscape, kept_landscape
from tests.landscape import Landscape
from tests.running import Stage
from tests.webhooks import Webhook, webhook
from tests.wheels import built, installed

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(client: Client, project: str) -> Site:
    """A run's tasks, for workers to take."""
    return Site(client, project)


@pytest.fixture
def sweep(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Callable[[], int | None]:
    """Looks for silent workers, whether or not somebody did so in this period, and applies what follows."""

    def run() -> int | None:
        dba.execute("DELETE FROM sweeps")
        found = swept(runtime, "heartbeats")
        drain_all(runtime)
        return found

    return run


@pytest.fixture
def stage(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Stage:
    """A run to be submitted, played by hand."""
    return Stage(runtime, dba)


@pytest.fixture
def land(runtime: Runtime, dba: "psycopg.Connection[Any]", tmp_path: Path) -> Landscape:
    """A run with a workstream on a real repository."""
    return Landscape(runtime, dba, tmp_path)


@pytest.fixture(scope="module")
def kept(
    request: pytest.FixtureRequest, servers: Servers, template_with_ann: str, commands_user: Account | None
) -> Iterator[KeptLandscape]:
    """What a module's `begin` makes, once for all of its tests."""
    with kept_landscape(servers, template_with_ann, commands_user, request.module.begin) as made:
        yield made


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, database_to_copy: str) -> str:
    """Tests that have `begun` begin with its database."""
    return request.getfixturevalue("kept").database if "begun" in request.fixturenames else database_to_copy


@pytest.fixture
def begun(
    request: pytest.FixtureRequest,
    make_runtime: Callable[..., Runtime],
    dba: "psycopg.Connection[Any]",
    kept: KeptLandscape,
) -> Any:
    """For this test, what the module's `begin` made; with the module's `SETTINGS`."""
    return kept.again(make_runtime(home=kept.home, **getattr(request.module, "SETTINGS", {})), dba)


@pytest.fixture
def world() -> Iterator[Webhook]:
    """A web server that notices are sent to."""
    with webhook() as told:
        yield told


@pytest.fixture
def place() -> Iterator[Path]:
    """Room for homes and backups, which servers of another user may enter."""
    with open_directory() as directory:
        yield directory


@pytest.fixture
def knowing(make_runtime: Callable[..., Runtime]) -> Callable[..., Runtime]:
    """Makes a runtime that knows the definitions of these modules too, as PostgreSQL does; with settings of its own."""

    def make(*modules: str, **chosen: Any) -> Runtime:
        runtime = make_runtime(definitions=modules, **chosen)
        with transaction(runtime.owned) as connection:
            definitions.record(connection, catalogue(modules))
        return runtime

    return make


@pytest.fixture
def story(client: Client, project: str) -> UUID:
    """A story."""
    made: UUID = client.create("story", "S-1", project=project)["id"]
    return made


@pytest.fixture
def stories(client: Client, project: str) -> list[UUID]:
    """Five stories."""
    births = [client.birth("story", f"S-{number}", project=project) for number in range(5)]
    client.create_many(births)
    return [birth.id for birth in births]


@pytest.fixture
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that this process's spans, and those of the nodes it starts, are sent to."""
    with collector() as kept:
        for name, value in kept.environment.items():
            monkeypatch.setenv(name, value)
        tracing.forget()
        yield kept
        tracing.end()
        tracing.forget()


@pytest.fixture
def engine(kept_database: KeptDatabase) -> psycopg.Connection[Any]:
    """Raw SQL with the login of workers and commands, which is no superuser and owns nothing."""
    may = "SELECT rolsuper OR pg_has_role(oid, 'interlock_owner', 'MEMBER') FROM pg_roles WHERE rolname = session_user"
    session = kept_database.session(kept_database.url)
    assert session.execute(may).fetchone() == (False,)
    return session


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree."""
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel_site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed once, as pip installs it; its dependencies are this environment's."""
    return installed(wheel, tmp_path_factory.mktemp("site"))
