"""Spares processes what libraries would do in each of them, or for each connection, with the same result.

billiard 4.3 calls prctl(2) by way of cffi where that is installed, as it is with cryptography: each pool process parses
the call's declaration anew (15 ms, 2 MB, and 3 MB for the parser). redis-py 8 reads its own version from the package's
metadata for each connection (3 ms, 1 MB).
"""

from functools import cache

from celery import platforms
from redis import utils

from interlock.workers.system import process_tree

_version = cache(utils.get_lib_version)


def install() -> None:
    """Install both patches. Calling this again has no effect."""
    platforms._set_pdeathsig = _set_death_signal
    utils.get_lib_version = _version
    _version()  # here, where forks inherit it


def _set_death_signal(number: int) -> None:
    """Have the kernel send this process a signal once its node has ended."""
    process_tree.control(process_tree.PR_SET_PDEATHSIG, number)
