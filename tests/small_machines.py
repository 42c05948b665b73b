"""Makes the small machines of tests: each gives its name, its states and its moves, and only what else it is about."""

from typing import Any

from interlock.workflows.definition import Definition, Effect, T, Transition


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


def tells(effect: str, move: str, done: str, failed: str) -> tuple[Transition, ...]:
    """A move with an effect, given as `source trigger dest`, and the moves of its outcomes, as `trigger dest`."""
    source, trigger, telling = move.split()
    (told, heard), (not_told, unheard) = done.split(), failed.split()
    return (
        T(trigger, source, telling, effects=(Effect(effect, told, not_told),)),
        T(told, telling, heard, by="effect"),
        T(not_told, telling, unheard, by="effect", severity="error"),
    )
