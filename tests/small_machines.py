"""Makes the small machines of tests: each gives its name, its states and its moves, and only what else it is about."""

from typing import Any

from interlock.workflows.definition import Definition, Transition


def small_machine(type_: str, summary: str, states: str, *moves: Transition, **rest: Any) -> Definition:
    """A machine of version 1.0.0. Its states are given as `begun going_on | ended`: it begins in the first."""
    unended, ended = (part.split() for part in states.split("|"))
    return Definition(
        type=type_,
        version="1.0.0",
        summary=summary,
        states=(*unended, *ended),
        initial=unended[0],
        terminal=frozenset(ended),
        transitions=moves,
        **rest,
    )
