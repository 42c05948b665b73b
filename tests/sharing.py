"""What the tests of one directory share. pytest's own scope for that, `package`, asks for `__init__.py`."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import pytest

T = TypeVar("T")


def shared_in_directory(
    request: pytest.FixtureRequest, key: "pytest.StashKey[T]", make: Callable[[], AbstractContextManager[T]]
) -> T:
    """Make something for the first test of a directory, and end it once a test of another directory is next.

    What lives until the end of the session instead (scope `session`) takes CPU time from all later tests.

    Args:
        request: of a fixture of scope `module` or `function`, in the `conftest.py` of the directory.
        key: where the directory keeps it.
        make: makes it, and ends it.
    """
    directory = request.node.getparent(pytest.Directory)
    if key not in directory.stash:
        with ExitStack() as opened:
            directory.stash[key] = opened.enter_context(make())
            ending = opened.pop_all()

        def end() -> None:
            del directory.stash[key]
            ending.close()

        directory.addfinalizer(end)
    shared: T = directory.stash[key]
    return shared
