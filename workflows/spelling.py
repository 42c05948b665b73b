"""Finds what a misspelt name most likely means."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(written: object, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like what was written; None: none is.

    Args:
        written: whatever somebody gave as a name.
        known: the names that there are.
        cutoff: how alike they must be, from 0 to 1 (difflib, `SequenceMatcher.ratio`).
    """
    return next(iter(get_close_matches(str(written), list(known), n=1, cutoff=cutoff)), None)
