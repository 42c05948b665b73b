"""Doors: public functions whose arguments are validated against their signature before the call.

A type is declared once, in the signature: `by: str` accepts only text, `data: Mapping[str, Any]` a JSON object within
`workflows.input.limits`, `ref: str | UUID` a text or a UUID. A parameter whose type is not known here (a runtime, a
session, a parsed plan) carries no untrusted data and is passed on unchecked. A `record` is validated field by field.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from enum import Enum
from functools import cache, partial, wraps
from inspect import signature
from itertools import islice
from math import isfinite
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import BaseModel

from interlock.workflows.errors import BadInput
from interlock.workflows.input import limits
from interlock.workflows.input.names import UNKEPT, WORDS_LIMIT, point

MOST = 100_000  # elements of a list
INTEGER_BITS = 63  # PostgreSQL's bigint

FREE = "free"
# Not validated here, only its type: the code that stores it validates it, or truncates it and replaces invalid parts.
FreeText = Annotated[str, FREE]
FreeObject = Annotated[Mapping[str, Any], FREE]
FreeModel = Annotated[Mapping[str, Any] | BaseModel, FREE]  # a JSON object, or the model that its definition names

P = ParamSpec("P")
T = TypeVar("T")
Judge = Callable[[str, Any], Any]  # (name for messages, value) -> the value to use


def door(function: Callable[P, T]) -> Callable[P, T]:
    """Validate a function's arguments before each call; raises `BadInput` without calling it if one is invalid."""
    names = tuple(signature(function).parameters)

    @wraps(function)
    def judged(*args: P.args, **kwargs: P.kwargs) -> T:
        judges = judges_of(function)

        def judge(name: str, value: Any) -> Any:
            return judges[name](name, value) if name in judges else value

        positional: Any = [judge(name, value) for name, value in zip(names, args, strict=False)]
        positional += args[len(names) :]  # too many or missing arguments: left to Python's own error
        keywords: Any = {name: judge(name, value) for name, value in kwargs.items()}
        return function(*positional, **keywords)

    judged.is_door = True  # type: ignore[attr-defined]
    return judged


def record(kind: type[T]) -> type[T]:
    """Mark a dataclass that callers fill: a door validates each of its fields."""
    kind.is_record = True  # type: ignore[attr-defined]
    return kind


@cache
def judges_of(function: Callable[..., object]) -> Mapping[str, Judge]:
    """The validator of each parameter that carries data."""
    hints = get_type_hints(function, include_extras=True)
    found = {name: _judge(hints[name]) for name in signature(function).parameters if name in hints}
    return {name: judge for name, judge in found.items() if judge is not None}


def _judge(annotation: Any) -> Judge | None:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _either([each for each in parts if each is not NoneType], optional=NoneType in parts)
    if origin is Annotated:
        return _FREE[parts[0]] if FREE in parts else _judge(parts[0])
    if origin in (Sequence, Iterable, list, tuple):
        return partial(_several, _judge(parts[0]), tuple if origin is tuple else list)
    return _mapping if origin is Mapping else _of_class(annotation)


def _of_class(annotation: Any) -> Judge | None:
    if annotation in PLAIN or not isinstance(annotation, type):
        return PLAIN.get(annotation)
    if issubclass(annotation, Enum):
        return partial(_choice, annotation)
    return partial(_record, annotation) if hasattr(annotation, "is_record") else None


def _either(kinds: Sequence[Any], *, optional: bool) -> Judge | None:
    judges = [(kind, _judge(kind)) for kind in kinds]
    if any(judge is None for _, judge in judges):
        return None
    # Text last: its error message is the clearest.
    *_, (_, last) = judges = sorted(judges, key=lambda each: each[0] is str)

    def judge(what: str, value: Any) -> Any:
        if value is None and optional:
            return None
        for kind, one in judges[:-1]:
            if isinstance(kind, type) and isinstance(value, kind):
                return one and one(what, value)
        return last and last(what, value)

    return judge


def _text(what: str, value: Any) -> str:
    _require(what, value, str, "text")
    if len(value) > WORDS_LIMIT:
        raise BadInput(f"{what} must be at most {WORDS_LIMIT:,} characters; got {len(value):,}")
    if found := UNKEPT.search(value):
        message = f"holds {point(found[0])} as character {found.start() + 1} of {value[:60]!a}"
        raise BadInput(f"{what} {message}, which PostgreSQL cannot store. Remove it")
    return str(value)


def _uuid(what: str, value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(_text(what, value))
    except ValueError:
        raise BadInput(f"{what} must be a UUID; got {value[:60]!a}") from None


def _integer(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{what} must be a whole number, not {type(value).__name__}")
    if value.bit_length() > INTEGER_BITS:
        raise BadInput(f"{what} must be a number within ±2^{INTEGER_BITS}")
    return value


def _number(what: str, value: Any) -> Any:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise BadInput(f"{what} must be a number, not {type(value).__name__}")
    if isinstance(value, int):
        return _integer(what, value)
    if not isfinite(value):
        raise BadInput(f"{what} must be a finite number; got {value}")
    return value


def _mapping(what: str, value: Any) -> Any:
    _require(what, value, Mapping, "a JSON object")
    if value:
        limits.checked(what, value, limits.LIMIT_BYTES)
    return value


def _several(judge: Judge | None, kind: type, what: str, value: Any) -> Any:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise BadInput(f"{what} must be a list, not {type(value).__name__}")
    found = list(islice(value, MOST + 1))
    if len(found) > MOST:
        raise BadInput(f"{what} has more than {MOST:,} elements; send fewer at once")
    return kind(judge(f"{what}[{place}]", each) for place, each in enumerate(found)) if judge else kind(found)


def _path(what: str, value: Any) -> Path:
    _require(what, value, Path, "a path")
    _text(what, str(value))
    return Path(value)


def _choice(kind: type[Enum], what: str, value: Any) -> Enum:
    if isinstance(value, kind):
        return value
    text = _text(what, value)
    try:
        return kind(text)
    except ValueError:
        raise BadInput(f"{what} must be one of {', '.join(str(each.value) for each in kind)}") from None


def _record(kind: type, what: str, value: Any) -> Any:
    _require(what, value, kind, f"a {kind.__name__}")
    for name, judge in _judges_of_fields(kind).items():
        judge(f"{what}.{name}", getattr(value, name))
    return value


@cache
def _judges_of_fields(kind: type) -> Mapping[str, Judge]:
    hints = get_type_hints(kind, include_extras=True)
    found = {each.name: _judge(hints[each.name]) for each in fields(kind)}
    return {name: judge for name, judge in found.items() if judge is not None}


def _require(what: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise BadInput(f"{what} must be {expected}, not {type(value).__name__}")


def _instance(kind: type | tuple[type, ...], expected: str) -> Judge:
    def judge(what: str, value: Any) -> Any:
        _require(what, value, kind, expected)
        return value

    return judge


PLAIN: dict[Any, Judge] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _instance(bool, "true or false"),
    UUID: _uuid,
    datetime: _instance(datetime, "a time"),
    timedelta: _instance(timedelta, "a time from now"),
    Path: _path,
}
_FREE: dict[Any, Judge] = {
    str: _instance(str, "text"),
    Mapping[str, Any]: _instance(Mapping, "a JSON object"),
    Mapping[str, Any] | BaseModel: _instance((Mapping, BaseModel), "a JSON object"),
}
