"""Finds what a misspelt name most likely means."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(written: object, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like what was written; None: none is.

    Args:
        written: whatever somebody gave as a name.
        known: the names that there are.
        cutoff: how alike they must be, more than 0, at most 1 (difflib, `SequenceMatcher.ratio`).
    """
    text = str(written)
    letters = set(text)
    possible = [each for each in known if not letters.isdisjoint(each)]  # others are not alike at all: their ratio is 0
    return next(iter(get_close_matches(text, possible, n=1, cutoff=cutoff)), None) if possible else None
