"""What many tests of the integration tier begin with; a module that needs more says so with a fixture of its own."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.crewing import Site
from tests.running import Stage
from workers.client import Client
from workers.runtime import Runtime


@pytest.fixture
def site(client: Client, project: UUID) -> Site:
    """A run's tasks, for workers to take."""
    return Site(client, project)


@pytest.fixture
def stage(runtime: Runtime, dba: "psycopg.Connection[Any]") -> Stage:
    """A run to be submitted, played by hand."""
    return Stage(runtime, dba)


@pytest.fixture
def stories(client: Client, project: UUID) -> list[UUID]:
    """Five stories."""
    births = [client.birth("story", f"S-{number}", project_id=project) for number in range(5)]
    client.create_many(births)
    return [birth.id for birth in births]
