"""The API in process, for a module's tests: an agent's token for the project `default`, unless a call names another."""

from collections.abc import Iterator

import pytest

from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.calling import Calls, calls, token


@pytest.fixture
def call(settings: Settings, client: Client, ann: None) -> Iterator[Calls]:
    """Calls of the API, with a token of `agent-7`."""
    with calls(settings) as made:
        made.token = token(client.runtime, "agent-7")
        yield made
