"""Counted things in words, as people read them: `1 limit`, `2 limits`."""


def number_of(count: int, one: str, several: str = "") -> str:
    """A number and what is counted.

    Args:
        count: how many.
        one: what one of them is called.
        several: what any other number is called; default: `one` with an `s`.
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
