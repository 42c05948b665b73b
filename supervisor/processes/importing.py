"""Importing, when a process starts: it makes many objects and hardly any garbage."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """While the block imports, look for no garbage, which takes a third of its time; nor in what it imported, later.

    A collection would look at all of that again, and in a fork so copy its memory. A thousand objects stay uncollected,
    of a quarter of a million.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
