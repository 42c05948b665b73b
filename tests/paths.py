"""A machine's moves, written down again as paths through it."""


def moves(*paths: str) -> dict[tuple[str, str], str]:
    """Where each trigger leads from each state. A path is a state, a trigger, the state it leads to, and so on."""
    found: dict[tuple[str, str], str] = {}
    for path in paths:
        words = path.split()
        found |= zip(zip(words[:-2:2], words[1::2], strict=True), words[2::2], strict=True)
    return found
