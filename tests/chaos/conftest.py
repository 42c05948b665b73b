"""One whole installation for all chaos tests that run one after another."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.installation import Installation, installed
from tests.chaos.promises import settle
from tests.chaos.receiver import receiving
from tests.sharing import shared_in_directory

TIMEOUT_SECONDS = 240
INSTALLED = pytest.StashKey[Installation]()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Mark the modules of this directory: begun in one process under xdist, and never hanging for long."""
    if isinstance(collector, pytest.Module):
        collector.add_marker(pytest.mark.chaos)
        collector.add_marker(pytest.mark.xdist_group("chaos"))
        collector.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="module")
def installation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """All parts supervised, in a directory that only its owner may enter."""
    return shared_in_directory(request, INSTALLED, partial(_installed, tmp_path_factory.mktemp("chaos")))


@pytest.fixture(autouse=True)
def _settled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Each test ends with nothing at work: afterwards its repositories are deleted, and effects on them would fail."""
    shared = request.getfixturevalue("installation") if "installation" in request.fixturenames else None
    yield
    if shared is not None:
        settle(shared)


@contextmanager
def _installed(directory: Path) -> Iterator[Installation]:
    assert directory.stat().st_mode & 0o777 == 0o700
    with receiving() as receiver, installed(directory, receiver) as made:
        yield made
