"""The console in process, for a module's tests."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from interlock.console.pages import instances
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from tests.browsing import chromium
from tests.visiting import Visits, visits


@pytest.fixture
def visit(settings: Settings, client: Client, ann: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visits]:
    """Visits of the console. No worker runs, so nobody waits for one."""
    monkeypatch.setattr(instances, "WAIT_SECONDS", 0.0)
    with visits(settings, client.runtime) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for a module that makes no call in process: Playwright has an event loop of its own in this thread."""
    with chromium() as started:
        yield started
