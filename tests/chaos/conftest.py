"""One whole installation for all chaos tests of a pytest process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.installation import Installation, installed
from tests.chaos.receiver import receiving

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 240


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here: begun in one process under xdist, and never hanging for long."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            item.add_marker(pytest.mark.xdist_group("chaos"))
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """All parts supervised, in a directory that only its owner may enter."""
    directory = tmp_path_factory.mktemp("chaos")
    assert directory.stat().st_mode & 0o777 == 0o700
    with receiving() as receiver, installed(directory, receiver) as made:
        yield made
