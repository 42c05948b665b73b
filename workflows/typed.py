"""Typed contexts and data: JSON read as a definition's pydantic models (docs/spec/typed.md).

A model is data: its validators are pure, as guards are. JSON is taken strictly, as its JSON Schema says: `"3"` is no
integer. What is stored is the JSON as it came; it is read as a model whenever something is decided by it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_json

from interlock.workflows.guard_context import Case
from interlock.workflows.output.escaping import shown
from interlock.workflows.output.schema_messages import schema_message
from interlock.workflows.spelling import meant

Model = type[BaseModel]

OVERRIDES = ("operator", "override")  # keys of a trigger's data that only overrides may set
# By Interlock, into the events of approvals, of grants, of what they release, and of moves that change a link.
WRITTEN = ("approval", "relinked", "terms", "votes")
# What Interlock adds to data, and a model need not have: an effect's name, the event that a follow-up follows.
BESIDE = frozenset({*OVERRIDES, *WRITTEN, "effect", "caused_by"})
MOST_NAMED = 10  # of the faults of one value
MOST_CHARACTERS = 300  # of what a model's own validator says
PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
TEXTS = frozenset(
    {"title", "description", "examples", "deprecated"}
)  # of a JSON Schema; they accept and refuse nothing
NAMED = frozenset({"properties", "patternProperties", "$defs"})  # their keys are names, not words of JSON Schema
VALUES = frozenset({"default", "const", "enum", "mapping"})  # what they hold is no schema


class Misfit(Exception):
    """A value does not fit its model.

    Attributes:
        faults: what is wrong, one phrase a field, ten at most.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def read(model: Model, value: Mapping[str, Any]) -> BaseModel:
    """A JSON object as a model.

    Raises:
        Misfit: it does not fit; so if a validator of the model fails in any other way, since it would fail again.
    """
    try:
        return model.model_validate_json(to_json(value), strict=True)
    except ValidationError as error:
        raise Misfit(_phrases(model, error)) from None
    except Exception as error:
        why = shown(f"{type(error).__name__}: {error}")[:MOST_CHARACTERS]
        raise Misfit((f"{model.__name__} cannot read it: {why}",)) from error


def as_json(model: Model | None, given: Mapping[str, Any] | BaseModel) -> Mapping[str, Any]:
    """The JSON object that is stored of what a caller gives: all that an instance of the model holds (TYPED-9).

    Args:
        model: that the definition names; None: it names none.
        given: a JSON object, which is returned as it is, or an instance of the model.

    Raises:
        Misfit: it is an instance of another class, or has no JSON.
    """
    if not isinstance(given, BaseModel):
        return given
    if model is None or not isinstance(given, model):
        wanted = (
            f"a {model.__name__} or a JSON object" if model else "a JSON object, since its definition names no model"
        )
        raise Misfit((f"it must be {wanted}, not a {type(given).__name__}",))
    try:
        return given.model_dump(mode="json", by_alias=True, round_trip=True, warnings="none")
    except Exception as error:
        why = shown(f"{type(error).__name__}: {error}")[:MOST_CHARACTERS]
        raise Misfit((f"{type(given).__name__} cannot be written as JSON: {why}",)) from error


def read_data(model: Model | None, data: Mapping[str, Any]) -> Any:
    """A trigger's data as its model, without what Interlock has added; as it is if the trigger has no model.

    Raises:
        Misfit: it does not fit.
    """
    if model is None:
        return data
    beside = _beside(model)
    bare = data if beside.isdisjoint(data) else {key: each for key, each in data.items() if key not in beside}
    return read(model, bare)


@cache
def _beside(model: Model) -> frozenset[str]:
    return BESIDE - properties(model).keys()


def read_context(model: Model | None, context: Mapping[str, Any]) -> Any:
    """A context as its model; as it is if there is none. Raises `Misfit` as `read`."""
    return context if model is None else read(model, context)


def read_case(case: Case, context_model: Model | None, data_model: Model | None) -> Case[Any, Any]:
    """A case as guards get it.

    Raises:
        Misfit: the context or the data does not fit; its faults say which.
    """
    try:
        context = read_context(context_model, case.context)
    except Misfit as misfit:
        raise Misfit(tuple(f"context: {each}" for each in misfit.faults)) from misfit
    try:
        data = read_data(data_model, case.metadata)
    except Misfit as misfit:
        raise Misfit(tuple(f"data of {case.trigger!r}: {each}" for each in misfit.faults)) from misfit
    return replace(case, context=context, metadata=data)


@cache
def schema(model: Model) -> dict[str, Any]:
    """The JSON Schema of what a model accepts, with its titles and descriptions. Raises what pydantic raises."""
    return model.model_json_schema()


def recorded_schema(model: Model) -> dict[str, Any]:
    """The JSON Schema without its texts: equal if the same JSON is accepted, validators' own code aside."""
    bare: dict[str, Any] = _bare(schema(model))
    return bare


def properties(model: Model) -> Mapping[str, Mapping[str, Any]]:
    """Key -> JSON Schema of each field of a model; keys are aliases where fields have some."""
    found: Mapping[str, Mapping[str, Any]] = schema(model).get("properties", {})
    return found


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, each in value.items():
        if key in NAMED:
            found[key] = {name: _bare(one) for name, one in each.items()}
        elif key == "required" or (
            key == "default" and isinstance(each, list) and '"uniqueItems"' in json.dumps(value)
        ):
            found[key] = sorted(each, key=json.dumps)  # a set: its order differs from process to process
        elif key not in TEXTS:
            found[key] = each if key in VALUES else _bare(each)
    return found


def _phrases(model: Model, error: ValidationError) -> tuple[str, ...]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    more = (f"and {len(found) - MOST_NAMED} more",) if len(found) > MOST_NAMED else ()
    return (*(_phrase(model, each) for each in found[:MOST_NAMED]), *more)


def _phrase(model: Model, fault: ErrorDetails) -> str:
    where = _path(fault["loc"])
    if fault["type"] == "missing":
        return f"{where} is missing"
    if fault["type"] == "extra_forbidden":
        near = meant(str(fault["loc"][-1])[:100], properties(model)) if len(fault["loc"]) == 1 else None
        return f"{where} is no field" + (f" (did you mean {near}?)" if near else "")
    message = shown(schema_message(fault))[:MOST_CHARACTERS]
    return f"{where}: {message}" if where else message


def _path(keys: tuple[int | str, ...]) -> str:
    return "".join(_parts(keys)).removeprefix(".")


def _parts(keys: tuple[int | str, ...]) -> Iterator[str]:
    for each in keys:
        if isinstance(each, int):
            yield f"[{each}]"
        else:
            yield f".{each}" if PLAIN_KEY.fullmatch(each) else f".{each[:60]!a}"
