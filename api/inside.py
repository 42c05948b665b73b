"""The bridge from the event loop to code that was written for threads."""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from sqlalchemy.util import greenlet_spawn

P = ParamSpec("P")
T = TypeVar("T")


async def inside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a greenlet, on the connections of an `AsyncRuntime`; it yields to the loop wherever it waits."""
    return await greenlet_spawn(partial(work, *args, **kwargs))
