"""One whole installation for all chaos tests of a pytest process."""

from collections.abc import Iterator

import pytest

from tests.chaos.installation import Installation, installed
from tests.chaos.receiver import receiving

TIMEOUT_SECONDS = 240


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Mark the modules of this directory: begun in one process under xdist, and never hanging for long."""
    if isinstance(collector, pytest.Module):
        collector.add_marker(pytest.mark.chaos)
        collector.add_marker(pytest.mark.xdist_group("chaos"))
        collector.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """All parts supervised, in a directory that only its owner may enter."""
    directory = tmp_path_factory.mktemp("chaos")
    assert directory.stat().st_mode & 0o777 == 0o700
    with receiving() as receiver, installed(directory, receiver) as made:
        yield made
