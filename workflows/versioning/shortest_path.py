"""The shortest way that a machine has from one state to another: what an override walks, a legal move at a time."""

from collections import deque

from workflows.definition import Definition, Transition


def route(definition: Definition, state: str, to: str) -> tuple[Transition, ...] | None:
    """The moves from a state to another, guards aside; of ways equally short the one declared first.

    Never through a terminal state, and never by an exceptional move (SSOT 8.2.3): these are asked for by name.

    Args:
        definition: whose moves.
        state: where to begin.
        to: where to end.

    Returns:
        The moves in order, none where it is there already; None where no way leads there.
    """
    came_by: dict[str, tuple[Transition, ...]] = {state: ()}
    waiting = deque([state])
    while waiting and to not in came_by:
        here = waiting.popleft()
        for move in definition.transitions:
            if here in move.sources and not move.exceptional and move.dest not in came_by:
                came_by[move.dest] = (*came_by[here], move)
                if move.dest not in definition.terminal:
                    waiting.append(move.dest)
    return came_by.get(to)
