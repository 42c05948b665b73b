"""Limits on depth, size and content of JSON from callers, and the handling of stored JSON that cannot be read.

Every door and PostgreSQL (`interlock.bounded`) apply the same rule. Nothing here recurses, so that a value nested
deeper than Python's stack is refused like any other. If such a value is in the database nevertheless, it is read as an
`Unreadable`, which fails only the row it belongs to.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any

from pydantic_core import from_json, to_json

from interlock.workflows.errors import BadInput

DEPTH = 50  # nesting of objects and arrays in callers' values
KEPT_DEPTH = 60  # nesting of stored values: a caller's value may be nested in an effect's payload or a result
KEPT_BYTES = 2 * 2**20  # size of a stored value, as PostgreSQL prints it
LIMIT_BYTES = KEPT_BYTES // 2  # size of a caller's value; settings cannot raise it
PLAN_BYTES = 64 * 2**20  # size of a plan as JSON, with all defaults
PRIORITIES = range(-1_000, 1_001)  # of runs
RESULT_BYTES = 65_536  # size of a task's result as JSON
INTEGER_BITS = 1_024  # keeps integers within double precision; Python refuses to read or print integers of 4,300 digits
WHOLE = (1e-5, 1e16)  # outside this range Python writes a float with an exponent
SCALARS = (str, int, float, NoneType)
EXPANDED = 64  # a float of a few characters, as 1e308, becomes at most so many times as long without its exponent
PLAIN = (dict, list, tuple, bool, NoneType)  # measured without another look
_TOO_LONG = re.compile(r"value has (\d+) digits")  # from Python's message about too long an integer


class Unreadable(dict[str, Any]):
    """Replaces stored JSON that cannot be read; as a dict, it contains only the reason."""

    def __init__(self, why: str) -> None:
        super().__init__(unreadable=why)

    @property
    def why(self) -> str:
        """Why it cannot be read."""
        return str(self["unreadable"])


def loads(text: str | bytes) -> Any:
    """Read stored JSON; returns an `Unreadable` if Python cannot read it or it is nested more than KEPT_DEPTH deep."""
    try:
        value = from_json(text)
    except ValueError:
        try:
            value = read(text)
        except ValueError as error:
            return Unreadable(str(error))
    opened = text.count("{") + text.count("[") if isinstance(text, str) else text.count(b"{") + text.count(b"[")
    if opened > KEPT_DEPTH and deeper(value, KEPT_DEPTH):
        return Unreadable(f"nested more than {KEPT_DEPTH} deep")
    return value


def read(text: str | bytes, **chosen: Any) -> Any:
    """Read untrusted JSON.

    Args:
        text: the JSON; bytes are UTF-8.
        chosen: options of `json.loads`.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or contains a value that Python cannot read.
    """
    try:
        return json.loads(text, **chosen)
    except ValueError as error:
        if too_long := _TOO_LONG.search(str(error)):
            most = sys.get_int_max_str_digits()
            raise ValueError(f"a number of {int(too_long[1]):,} digits; {most:,} is the most") from None
        raise
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except MemoryError:
        raise ValueError("too large") from None


def deeper(value: object, depth: int) -> bool:
    """Whether a parsed JSON value nests objects and arrays more than `depth` deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        if not level:
            return False
        level = [
            each
            for one in level
            for each in (one.values() if isinstance(one, dict) else one)
            if not isinstance(each, SCALARS)  # so it is an object or an array
        ]
    return bool(level)


def checked(what: str, value: object, limit_bytes: int) -> None:
    """Check that a value can be written as JSON, stored by PostgreSQL, and read by every JSON parser.

    Args:
        what: its name for messages: "data", "context".
        value: the caller's value.
        limit_bytes: its maximum size as JSON.

    Raises:
        BadInput: it is nested too deeply or too large, or contains a value that JSON or PostgreSQL cannot represent:
            NUL, a lone surrogate, NaN, a number beyond double precision, a type that JSON lacks.
    """
    least = _measured(what, value, limit_bytes)
    try:
        size = len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as error:
        raise BadInput(f"{what} cannot be written as JSON: {error}") from error
    if max(size, least) > limit_bytes:
        raise _too_large(what, limit_bytes)


def surely_fits(value: object, limit_bytes: int) -> bool:
    """Whether a value is surely no larger than a limit, in a tenth of the time that `checked` takes.

    Args:
        value: made of parts of a value that was checked.
        limit_bytes: its maximum size as JSON.
    """
    return EXPANDED * len(to_json(value)) <= limit_bytes


def _measured(what: str, value: object, limit_bytes: int) -> int:
    """A lower bound of a value's size in bytes. Stops at the limit, even if parts repeat often. Raises as `checked`."""
    size, inside = -2, [iter((value,))]  # each part has two bytes beside its own: a separator, or its container's ends
    while inside:
        for each in inside[-1]:
            kind = type(each)
            if type(each) is str and each.isascii() and "\0" not in each:  # as nearly all parts are
                size += 4 + len(each)
            elif type(each) is int and each.bit_length() <= INTEGER_BITS:
                size += 3
            else:
                size += 2 if kind in PLAIN else 2 + _size(what, each)
            if size > limit_bytes:
                raise _too_large(what, limit_bytes)
            if kind not in SCALARS and not isinstance(each, SCALARS):  # so it is a container: nothing else has a size
                if len(inside) > DEPTH:
                    raise BadInput(
                        f"{what} is nested more than {DEPTH} deep, in objects and arrays inside each other."
                        " Store deeper data in a file, and give its name"
                    )
                inside.append(_parts(each))  # type: ignore[arg-type]
                break
        else:
            inside.pop()
    return size


def _too_large(what: str, limit_bytes: int) -> BadInput:
    setting = "" if limit_bytes in (PLAN_BYTES, RESULT_BYTES) else " (INTERLOCK_CONTEXT_LIMIT_BYTES)"
    return BadInput(f"{what} is larger than {limit_bytes:,} bytes as JSON, the limit{setting}")


def _parts(value: "Mapping[Any, Any] | list[Any] | tuple[Any, ...]") -> Iterator[Any]:
    """The direct elements of a value, keys included."""
    # Not whether it is a Mapping, which takes long to find out.
    return iter(value) if isinstance(value, list | tuple) else chain.from_iterable(value.items())


def _size(what: str, value: object) -> int:
    """A lower bound of the bytes of a value as PostgreSQL prints it, without its elements."""
    match value:
        case str():
            return 2 + _length(what, value)
        case int():
            if value.bit_length() > INTEGER_BITS:
                raise BadInput(f"{what} holds an integer beyond double precision (±1.8e308): write it as text")
        case float():
            if not isfinite(value):
                raise BadInput(f"{what} cannot be written as JSON: {value} is not a JSON number")
            if value and not WHOLE[0] < abs(value) < WHOLE[1]:
                return len(format(Decimal(repr(value)), "f"))  # PostgreSQL's jsonb prints no exponents
        case None | Mapping() | list() | tuple():
            return 0
        case _:
            raise BadInput(f"{what} cannot be written as JSON: {type(value).__name__} is not a JSON type")
    return 1


def _length(what: str, value: str) -> int:
    if "\0" in value:
        raise BadInput(f"{what} holds a NUL character, which PostgreSQL cannot store. Remove it")
    try:
        return len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        half = ord(value[error.start])
        raise BadInput(f"{what} holds U+{half:04X}, half of a surrogate pair, which is not a character") from None
