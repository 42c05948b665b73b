"""Who may fire a trigger, in words (docs/spec/authority.md). PostgreSQL checks it, in `authority.sql`."""

from collections.abc import Collection, Iterable, Mapping

WHO: Mapping[str, str] = {
    "anyone": "anyone",
    "holder": "who holds the task, by the token of its claim, or the worker itself, by the secret of its registration",
    "effect": "the effect that acts for it, by the token of its lease",
    "machinery": "Interlock itself",
    "decider": "its deciders (anybody, if it names none), and to approve, not its author: `interlock show` names them",
    "operator": "an operator, with a reason (`data.reason`)",
}

IN_SHORT: Mapping[str, str] = {
    "holder": "the holder of its claim or secret",
    "effect": "its effect",
    "machinery": "Interlock itself",
    "decider": "its deciders",
    "operator": "operators",
}


def narrowed(open_to: Iterable[str], left: Collection[str] | None) -> list[str]:
    """Who may fire a trigger in a project: as `interlock.narrowed` in PostgreSQL, which decides by it (NARROWING-3).

    Args:
        open_to: the authorities that its definition names.
        left: those that the project's narrowing leaves; None: it has none.
    """
    named = list(open_to)
    if left is None:
        return named
    return list(left) if "anyone" in named else [each for each in named if each in left]


def refusal(what: str, allowed: Iterable[str]) -> str:
    """The message of `NotYours`.

    Args:
        what: what was refused, to whom, and why, as a sentence without its full stop.
        allowed: the authorities that may fire it.

    Returns:
        `what`, who may, and that an operator may override.
    """
    return f"{what}. Who may: {'; '.join(WHO[each] for each in allowed)}. (`interlock override --help`: by hand)"
