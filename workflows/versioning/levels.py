"""Monotonic progress (POLICY-1): states are in levels, and a move to an earlier level must declare why.

`retry`: another, bounded attempt. `blocked`: back until a dependency is met. `rework`: people send it back.
"""

from collections.abc import Collection, Iterator

from interlock.workflows.definition import Definition, Transition
from interlock.workflows.faults import Fault

RETRIES = 3  # POLICY-3: the default for tasks, and fixed for applying a patch


def levels(definition: Definition) -> dict[str, int]:
    """State -> its level, from 0; states that may alternate have the same level."""
    return {state: level for level, states in enumerate(definition.order) for state in states}


def backward(definition: Definition) -> list[tuple[Transition, str]]:
    """The moves that lead to an earlier level, each with its source state."""
    known = levels(definition)
    return [
        (move, source)
        for move in definition.transitions
        for source in move.sources
        if known.get(move.dest, 0) < known.get(source, 0)
    ]


def faults(definition: Definition) -> Iterator[str | Fault]:
    """Violations of the policy, one phrase each; none if no order is declared (see `doubts`)."""
    if not definition.order:
        return
    listed = [state for states in definition.order for state in states]
    for state in sorted(set(definition.states) ^ set(listed)):
        yield f"its order and its states do not agree on {state!r}"
    if len(set(listed)) < len(listed):
        yield "its order has a state twice: remove one"
    back = backward(definition)
    for move, source in back:
        if move.back is None:
            why = "does not say why: add back='rework', 'blocked' or 'retry' (POLICY-2)"
            yield Fault(f"{move.trigger!r} goes back from {source!r} to {move.dest!r} and {why}", move.place)
        elif move.back == "retry" and not _bounded(definition, move, source):
            message = (
                f"{move.trigger!r} tries again from {source!r}, and no guard bounds how often: add one with bounds=True"
            )
            yield Fault(message, move.place)
    for move in definition.transitions:
        if move.back and all(each is not move for each, _ in back):
            yield Fault(f"{move.trigger!r} says that it goes back, and goes on: remove back=", move.place)


def _bounded(definition: Definition, move: Transition, source: str) -> bool:
    """Whether every cycle through this move contains a guard that bounds the number of rounds."""
    unbounded = [each for each in definition.transitions if not _bounds(each)]
    return _bounds(move) or source not in reached(unbounded, [move.dest])


def _bounds(move: Transition) -> bool:
    return any(guard.bounds for guard in move.when)


def reached(moves: Collection[Transition], states: Collection[str]) -> set[str]:
    """The states that some moves lead to from these states, directly or indirectly; these included."""
    found, frontier = set(states), list(states)
    while frontier:
        state = frontier.pop()
        onward = {move.dest for move in moves if state in move.sources} - found
        found |= onward
        frontier += onward
    return found


def doubts(definition: Definition) -> Iterator[str]:
    """A warning if the machine has a cycle but declares no order."""
    if definition.order:
        return
    for state in definition.states:
        onward = [move.dest for move in definition.transitions if state in move.sources]
        if state in reached(definition.transitions, onward):
            yield f"it can come back to {state!r}, and declares no order of its states: nothing holds it to progress"
            return
