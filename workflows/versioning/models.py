"""Checks of the models that a definition names for its context and for triggers' data (TYPED-8)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, RootModel

from interlock.workflows import typed
from interlock.workflows.definition import Definition
from interlock.workflows.effects import SHIPPED, declared
from interlock.workflows.errors import BadInput
from interlock.workflows.faults import Fault
from interlock.workflows.input import limits
from interlock.workflows.spelling import meant

LIMIT_BYTES = 65_536  # of a model's JSON Schema, which PostgreSQL stores with its definition
NUMBERS = frozenset({"number", "integer", "null"})


def unusable(definition: Definition) -> Iterator[str]:
    """Why what a definition names as its models is none that can be used, one phrase each."""
    if definition.context is not None:
        yield from _unusable("context", definition.context)
    for trigger, model in definition.data.items():
        yield from _unusable(f"data of {trigger!r}", model)


def faults(definition: Definition) -> Iterator[str | Fault]:
    """What is wrong with a definition's models, which are usable: one phrase each."""
    if definition.context is not None:
        yield from _context(definition, definition.context)
    yield from _data(definition)


def follow_up_faults(definitions: Iterable[Definition]) -> Iterator[str]:
    """The follow-ups that would be refused for want of data: what they fire has a model that takes no empty object."""
    typed_ones = [each for each in definitions if each.data]
    for each in definitions if typed_ones else ():
        for follow_up in (one for move in each.transitions for one in move.then):
            types = {link.type for link in each.links if link.role == follow_up.role}
            types |= {each.type for link in each.links if link.type == each.type and link.inverse == follow_up.role}
            for other in typed_ones:
                model = other.data.get(follow_up.trigger)
                if other.type in types and model and (why := _refuses_nothing(model)):
                    yield (
                        f"{each.type} {each.version} follows up with {follow_up.trigger!r} of {other.type} "
                        f"{other.version}, without data, but {why}"
                    )


def _unusable(what: str, model: Any) -> Iterator[str]:
    if not isinstance(model, type) or not issubclass(model, BaseModel) or issubclass(model, RootModel):
        yield f"{what} must be a class derived from pydantic.BaseModel, not {model!r}"
        return
    try:
        schema = typed.schema(model)
        limits.checked("its JSON Schema", typed.recorded_schema(model), LIMIT_BYTES)
    except BadInput as error:
        yield f"{what}: {model.__name__} is too large or too deep: {error}"
    except Exception as error:  # whatever pydantic and the model's own hooks raise
        yield f"{what}: {model.__name__} has no JSON Schema, use types that JSON has: {error}"
    else:
        for name in dict.fromkeys(_lax(schema, model.__name__)):
            yield f'{what}: {name} would ignore misspelt keys: declare it `class {name}(BaseModel, extra="forbid")`'


def _lax(schema: Any, name: str) -> Iterator[str]:
    """The names of the models that neither forbid nor allow keys which they do not know."""
    if isinstance(schema, list):
        for each in schema:
            yield from _lax(each, name)
    if not isinstance(schema, dict):
        return
    if "properties" in schema and "additionalProperties" not in schema:
        yield str(schema.get("title", name))
    for key, each in schema.items():
        if key in typed.NAMED:
            for own, one in each.items():
                yield from _lax(one, own if key == "$defs" else name)
        elif key not in typed.VALUES:
            yield from _lax(each, name)


def _context(definition: Definition, model: typed.Model) -> Iterator[str | Fault]:
    """What Interlock itself reads of a context, it reads from the stored JSON, which has no default values in it."""
    if definition.fields:
        yield "it has both context and fields: put the fields into the model"
    known, required = typed.properties(model), typed.schema(model).get("required", ())
    for link in definition.links:
        if link.context_key not in known:
            yield f"the link {link.role!r} is named by {link.context_key!r}, which is no field of {model.__name__}"
        elif known[link.context_key].get("default"):
            yield f"the link {link.role!r}: a default value of {link.context_key!r} would not be followed; use None"
    for state, deadline in definition.deadlines.items():
        if (key := deadline.context_key) in known and deadline.growth is None:
            yield from _seconds(state, str(key), known[str(key)])
    for effect in definition.effects:
        if effect.exclusive in known and effect.exclusive not in required:
            yield f"effect {effect.name!r} is exclusive by {effect.exclusive!r}: make that field a required one"
    yield from _limit_keys(definition, model)


def _limit_keys(definition: Definition, model: typed.Model) -> Iterator[Fault]:
    """Fields that declarations of effects name as limit keys, and that the context cannot have."""
    known = typed.properties(model)
    if typed.schema(model).get("additionalProperties"):  # it allows keys that it does not name
        return
    for name in dict.fromkeys(effect.name for effect in definition.effects):
        if (own := declared().get(name)) and isinstance(own.key, str) and own.key not in known:
            near = meant(own.key, known)
            cure = f"did you mean {near!r}?" if near else f"it has {', '.join(sorted(known)) or 'none'}"
            message = f"key={own.key!r} of the effect {name!r} is no field of {model.__name__}, the context of "
            yield Fault(f"{message}{definition.type} {definition.version}; {cure}", own.place)


def _seconds(state: str, key: str, schema: Mapping[str, Any]) -> Iterator[str]:
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if not kinds or any(each.get("type") not in NUMBERS or not _positive(each) for each in kinds):
        yield f"the deadline of {state!r} comes from {key!r}: let it be a number of seconds, `float = Field(gt=0)`"
    if schema.get("default") is not None:
        yield f"the deadline of {state!r} would not use the default value of {key!r}: let it be None"


def _positive(schema: Mapping[str, Any]) -> bool:
    return float(schema.get("exclusiveMinimum", -1)) >= 0 or float(schema.get("minimum", -1)) > 0


def _data(definition: Definition) -> Iterator[str]:
    timers = {deadline.trigger: state for state, deadline in definition.deadlines.items()}
    own = {each.failed for each in definition.effects}
    own |= {each.done for each in definition.effects if each.name in SHIPPED}
    for move in definition.transitions:
        model = definition.data.get(move.trigger)
        if model and move.relink and move.relink.data_key and move.relink.data_key not in typed.properties(model):
            yield f"data of {move.trigger!r}: {move.relink.data_key!r}, which names what it links, is no field of it"
    for trigger, model in definition.data.items():
        if trigger not in definition.triggers:
            yield f"data names a model for {trigger!r}, which is none of its triggers"
        for key in sorted({*typed.OVERRIDES, *typed.WRITTEN} & typed.properties(model).keys()):
            yield f"data of {trigger!r}: no caller can give {key!r}, which Interlock writes; use another name"
        if trigger in own:
            yield f"data of {trigger!r}: an effect fires it, with data of Interlock's own; it can have no model"
        if trigger in timers and (why := _refuses_nothing(model)):
            yield f"data of {trigger!r}: the deadline of {timers[trigger]!r} fires it without data, but {why}"


def _refuses_nothing(model: typed.Model) -> str:
    """Why a model does not take an empty object; empty if it does."""
    try:
        typed.read(model, {})
    except typed.Misfit as misfit:
        return str(misfit)
    return ""
