"""Which trigger a person fires on an instance that nothing else moves: towards an end, never in a circle."""

from collections.abc import Mapping
from functools import cache
from math import inf

from interlock.workflows.definition import BY_NAME, Definition, Transition

# A way of more moves is better than one that goes wrong: an end by a warning or an error is the last resort.
PLAIN, TROUBLED, BAD_END = 1, 10, 100


def move_by_hand(definition: Definition, state: str) -> Transition | None:
    """The move by which a person leads an instance on from a state.

    Of the moves that a name is enough for, those that come nearer to a state where it may rest or end, or else to an
    end, and of these the one with the best way from there.

    Args:
        definition: its machine.
        state: where it is.

    Returns:
        The move; None if a person can fire nothing that leads to an end.
    """
    return _towards(definition, state, definition.terminal | definition.resting) or _towards(
        definition, state, definition.terminal
    )


def _towards(definition: Definition, state: str, ends: frozenset[str]) -> Transition | None:
    left = _distances(definition, ends)
    nearer = [
        move
        for move in definition.transitions
        if state in move.sources and not BY_NAME.isdisjoint(move.authorities) and left[move.dest] < left[state]
    ]
    return min(nearer, key=lambda move: _cost(definition, move) + left[move.dest], default=None)


@cache
def _distances(definition: Definition, ends: frozenset[str]) -> Mapping[str, float]:
    """State -> the cost of its best way to one of the ends, whoever makes the moves; infinite if there is no way."""
    left = {state: 0.0 if state in ends else inf for state in definition.states}
    for _ in definition.states:  # the longest way passes through each state once
        for move in definition.transitions:
            for source in set(move.sources) - ends:
                left[source] = min(left[source], _cost(definition, move) + left[move.dest])
    return left


def gives_up(definition: Definition, move: Transition) -> bool:
    """Whether a move calls its instance off or says that something went wrong, so that it harms what is well.

    An end that can be reached from several states, as `cancel` can, is no result of what happens in any of them.
    """
    return _cost(definition, move) > PLAIN


def _cost(definition: Definition, move: Transition) -> int:
    if move.dest in definition.terminal:
        ways = {
            state
            for each in definition.transitions
            if each.dest in definition.terminal and each.trigger == move.trigger
            for state in each.sources
        }
        return PLAIN if move.severity == "info" and len(ways) == 1 else BAD_END
    return PLAIN if move.severity == "info" else TROUBLED
