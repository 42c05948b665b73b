"""What many tests of the integration tier begin with; a module that needs more says so with a fixture of its own."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.telemetry import tracing
from interlock.workflows.catalogue import catalogue
from tests.collector import Collector, collector
from tests.crewing import Site
from tests.running import Stage


@pytest.fixture
def site(client: Client, project: UUID) -> Site:
    """A run's tasks, for workers to take."""
    return Site(client, project)


@pytest.fixture
def stage(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Stage:
    """A run to be submitted, played by hand."""
    return Stage(runtime, dba)


@pytest.fixture
def knowing(make_runtime: Callable[..., Runtime]) -> Callable[..., Runtime]:
    """Makes a runtime that knows the definitions of these modules too, as PostgreSQL does; with settings of its own."""

    def make(*modules: str, **chosen: Any) -> Runtime:
        runtime = make_runtime(definitions=modules, **chosen)
        with transaction(runtime.database) as connection:
            definitions.record(connection, catalogue(modules))
        return runtime

    return make


@pytest.fixture
def stories(client: Client, project: UUID) -> list[UUID]:
    """Five stories."""
    births = [client.birth("story", f"S-{number}", project_id=project) for number in range(5)]
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
