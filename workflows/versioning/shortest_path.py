"""The shortest path in a machine from one state to another, which an override follows by legal moves."""

from collections import deque

from interlock.workflows.definition import Definition, Transition


def route(definition: Definition, state: str, to: str) -> tuple[Transition, ...] | None:
    """The moves from one state to another, regardless of guards; of equally short paths, the first declared.

    The path never passes through a terminal state or an exceptional move (POLICY-6); such moves must be requested by
    name.

    Args:
        definition: the machine.
        state: the first state.
        to: the last state.

    Returns:
        The moves in order, empty if `state` is `to`; None if there is no path.
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
