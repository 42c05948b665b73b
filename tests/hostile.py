"""Hostile values, named by what is wrong with them, and databases that already contain such values."""

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import psycopg

from interlock.workflows.input.limits import DEPTH

FAR = 2_000  # deeper than Python's stack, but not too deep for PostgreSQL
MARK = "\x7fhere"


def arrays(depth: int, inside: Any = 1) -> Any:
    """Arrays nested `depth` deep."""
    for _ in range(depth):
        inside = [inside]
    return inside


def objects(depth: int, inside: Any = 1) -> Any:
    """Objects nested `depth` deep."""
    for _ in range(depth):
        inside = {"a": inside}
    return inside


def alternating(depth: int, inside: Any = 1) -> Any:
    """Arrays and objects nested alternately, `depth` deep."""
    for level in range(depth):
        inside = [inside] if level % 2 else {"a": inside}
    return inside


def _laughs() -> Any:
    value: Any = "ha"
    for _ in range(40):
        value = [value] * 10
    return value


def _circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@cache
def _many_keys() -> dict[str, int]:
    """Made once: it takes as long as refusing it, at each of hundreds of places."""
    return {str(number): number for number in range(60_000)}


HOSTILE: dict[str, Callable[[], Any]] = {  # made anew for each test, because some cannot even be compared
    "arrays just too deep": lambda: arrays(DEPTH),
    "objects just too deep": lambda: objects(DEPTH),
    "alternating just too deep": lambda: alternating(DEPTH),
    "arrays at the stack's end": lambda: arrays(950),
    "arrays beyond the stack": lambda: arrays(FAR),
    "objects beyond the stack": lambda: objects(FAR),
    "alternating beyond the stack": lambda: alternating(FAR),
    "a circle": _circle,
    "ten to the fortieth": _laughs,
    "a long string": lambda: "x" * 2**20,
    "a long string of wide characters": lambda: "😀" * 2**17,
    "many keys": _many_keys,
    "many numbers": lambda: [7] * 200_000,
    "numbers that print long": lambda: [1e308] * 2_000,
    "numbers that print small": lambda: [5e-324] * 2_000,
    "NUL": lambda: "a\0b",
    "NUL in a key": lambda: {"a\0b": 1},
    "half a character": lambda: "\ud800",
    "half a character in a key": lambda: {"\udfff": 1},
    "an integer of 5,000 digits": lambda: 10**5_000,
    "an integer beyond double precision": lambda: 2**1_024,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "what is no JSON": lambda: {1, 2},
}

JSON: dict[str, str] = {  # what Python cannot read, or not to the end, and PostgreSQL keeps
    "just too deep": "[" * 70 + "]" * 70,
    "at the stack's end": '{"a":' * 950 + "1" + "}" * 950,
    "beyond the stack": "[" * FAR + "]" * FAR,
    "an integer of 5,000 digits": "9" * 5_000,
    "a number of 130,000 digits": "1e130000",
}

TEXT: dict[str, str] = JSON | {  # what a file may hold in a value's place
    "alternating beyond the stack": '[{"a":' * FAR + "1" + "}]" * FAR,
    "a long string": json.dumps("x" * 2**17),
    "many keys": json.dumps({str(number): number for number in range(2_000)}),
    "NUL": '"a\\u0000b"',
    "NUL in a key": '{"a\\u0000b": 1}',
    "half a character": '"\\ud800"',
    "half a character in a key": '{"\\udfff": 1}',
    "NaN": "NaN",
    "infinity": "-Infinity",
    "an unfinished object": '{"a":',
    "nothing": "",
}


def texts(sound: Any) -> Iterator[tuple[str, bytes]]:
    """(where and what, JSON) of a sound document with each hostile text in each of its places."""
    for where, document in _pierced(sound):
        before, after = json.dumps(document).split(json.dumps(MARK))
        for kind, text in TEXT.items():
            yield f"{where or 'all of it'}: {kind}", f"{before}{text}{after}".encode()


def _pierced(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The document with a mark in the place of each of its values, in turn."""
    yield where, MARK
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from ((name, value | {key: one}) for name, one in _pierced(inside, f"{where}.{key}"))
    elif isinstance(value, list):
        for place, inside in enumerate(value):
            for name, one in _pierced(inside, f"{where}[{place}]"):
                yield name, [*value[:place], one, *value[place + 1 :]]


@contextlib.contextmanager
def unbound(dba: "psycopg.Connection[Any]") -> Iterator[None]:
    """Make a database what it was before JSON had bounds and contexts were fixed; then what a migration makes of it."""
    rows = dba.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger"
        " WHERE tgname LIKE 'bounded\\_%' OR tgname = 'context_fixed'"
    ).fetchall()

    def alter(how: str) -> None:
        for table, trigger in rows:
            dba.execute(f"ALTER TABLE {table} {how} TRIGGER {trigger}")  # type: ignore[call-overload]

    alter("DISABLE")
    yield
    alter("ENABLE ALWAYS")


KINDS: dict[str, Callable[[], Any]] = {  # what is of no kind that anything expects
    "an object": object,
    "bytes": lambda: b"\xff\x00",
    "a class": lambda: dict,
    "a list of lists": lambda: [[], [[]]],
    "an object of objects": lambda: {"a": {"b": None}},
}
