"""What a person's triggers on an instance lack, as far as its linked instances decide that."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from interlock.workflows.definition import BY_NAME, Definition, Guard
from interlock.workflows.guard_context import Case, Linked
from interlock.workflows.typed import Misfit, read_context

LINKED = frozenset({"linked"})


def missing(
    definition: Definition, instance: Mapping[str, Any], linked: Mapping[str, tuple[Linked, ...]]
) -> dict[str, str]:
    """Trigger -> what is missing, of the triggers that a person may fire and that would be refused now for its links.

    Guards that read anything beside context and links are left out: they depend on who fires it, and with what data.

    Args:
        definition: of the instance.
        instance: its row: its state, version and context.
        linked: role -> the instances linked in that role.
    """
    found, state = {}, instance["current_state"]
    try:
        context = read_context(definition.context, instance["context"])
    except Misfit:
        return {}
    for trigger in definition.legal(state):
        if BY_NAME.isdisjoint(definition.authorities[trigger]):
            continue
        case = Case(state, instance["version"], context, trigger, by="", linked=linked)
        refused = [[*_false(move.when, case)] for move in definition.moves[trigger, state]]
        if least := min(refused, key=len):
            found[trigger] = "; ".join(guard.explanation(case) for guard in least)
    return found


def _false(guards: tuple[Guard, ...], case: Case) -> Iterator[Guard]:
    for guard in guards:
        if guard.needs == LINKED:
            with suppress(AttributeError, KeyError, TypeError, ValueError):  # it reads data of the trigger, too
                if not guard.holds(case):
                    yield guard
