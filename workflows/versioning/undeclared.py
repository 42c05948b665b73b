"""Contexts that nothing declares: a misspelt key of one is kept, and read by nobody (MACHINE-12)."""

from collections.abc import Iterator
from types import CodeType

from interlock.workflows.definition import Definition
from interlock.workflows.effects import declared

CONTEXT = "context"


def doubts(definition: Definition) -> Iterator[str]:
    """A warning if guards or effects read the context of a definition that declares no key of it."""
    if definition.declared_keys or definition.context is not None:
        return
    guards = {guard.name: (guard.holds, guard.missing) for move in definition.transitions for guard in move.when}
    readers = [f"guard {name!r}" for name, functions in guards.items() if any(map(_reads, functions))]
    own = {effect.name: declared().get(effect.name) for effect in definition.effects}
    readers += [f"effect {name!r}" for name, each in own.items() if each and _reads(each.act)]
    if readers:
        name = f"{definition.type} {definition.version}"
        yield (
            f"{name}: its context is read by {', '.join(readers)}, but nothing of it is declared: a misspelt key would "
            "be kept, and never read. Name a model of it, context=…, or its fields"
        )


def _reads(function: object) -> bool:
    """Whether the code of a function mentions an attribute `context`."""
    code = getattr(function, "__code__", None)
    return code is not None and _mentions(code)


def _mentions(code: CodeType) -> bool:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return CONTEXT in code.co_names or any(map(_mentions, inner))
