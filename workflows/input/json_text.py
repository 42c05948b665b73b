"""Read and print untrusted JSON of any depth without recursion, to verify hashes.

Numbers keep all their digits, so that a hashed value is printed exactly as PostgreSQL printed it.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined] # undocumented, but as old as the module, and in C
from typing import Any

MOST_DIGITS = 131_072  # digits before the decimal point in PostgreSQL's numeric
MOST_DEEP = 100_000  # far more than PostgreSQL's own stack allows
PYTHONS_DIGITS = 4_000  # longer integers are read as Decimal; Python's int limit is 4,300 digits

BLANKS = re.compile(r"[ \t\n\r]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
WORDS: Mapping[str, Any] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


def read(text: str | bytes) -> Any:
    """Parse a text with its numbers unchanged. Any invalid text raises `ValueError`."""
    try:
        return json.loads(text, parse_float=_number, parse_int=_integer)
    except RecursionError:
        return _Reader(text.decode() if isinstance(text, bytes) else text).value()
    except MemoryError:
        raise ValueError("too large to read") from None


def printed(value: Any) -> str:
    """A value as PostgreSQL prints jsonb: keys sorted by length, then by bytes; one space after `:` and `,`."""
    done: list[str] = []
    waiting: list[tuple[bool, Any]] = [(False, value)]  # a stack: (already text, part)
    while waiting:
        is_text, each = waiting.pop()
        if is_text:
            done.append(each)
        elif isinstance(each, Mapping):
            keys = sorted(each, key=lambda key: (len(key.encode()), key.encode()))
            parts = [((True, f"{_scalar(key)}: "), (False, each[key])) for key in keys]
            waiting += _stacked("{", parts, "}")
        elif isinstance(each, list):
            waiting += _stacked("[", [((False, part),) for part in each], "]")
        else:
            done.append(_scalar(each))
    return "".join(done)


def _stacked(first: str, parts: list[Any], last: str) -> list[tuple[bool, Any]]:
    stack: list[tuple[bool, Any]] = [(True, last)]
    for number in range(len(parts) - 1, -1, -1):
        stack += reversed(parts[number])
        if number:
            stack.append((True, ", "))
    return [*stack, (True, first)]


def _scalar(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < PYTHONS_DIGITS else _number(digits)


def _number(digits: str) -> Decimal:
    """A number that PostgreSQL's jsonb can hold; numbers are printed in full, so a huge exponent would fill memory."""
    try:
        number = Decimal(digits)
    except ArithmeticError:
        raise ValueError(f"not a number: {digits[:40]}") from None
    if abs(number.adjusted()) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS:,} digits: {digits[:40]}")
    return number


class _Reader:
    """Reads JSON that is nested too deeply for Python's own parser."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._open: list[tuple[Any, str | None]] = []  # open collections, each with the key whose value comes next

    def value(self) -> Any:
        """The value of the whole text."""
        while True:
            found = self._begin()
            while found is not None:
                (value,) = found
                if not self._open:
                    self._end()
                    return value
                found = self._put(value)

    def _begin(self) -> tuple[Any] | None:
        """Read the next value; None for a collection with elements, which is now open."""
        match self._next():
            case "[":
                return self._collection([], "]")
            case "{":
                return self._collection({}, "}")
            case '"':
                return (self._string(),)
            case letter if letter in WORDS and self._text.startswith(WORDS[letter][0], self._at - 1):
                word, value = WORDS[letter]
                self._at += len(word) - 1
                return (value,)
            case _:
                number = NUMBER.match(self._text, self._at - 1)
                if number is None:
                    raise self._wrong("a value")
                self._at = number.end()
                return (_number(number[0]) if number[1] or number[2] else _integer(number[0]),)

    def _collection(self, value: Any, closing: str) -> tuple[Any] | None:
        if self._peek() == closing:
            self._next()
            return (value,)
        if len(self._open) == MOST_DEEP:
            raise ValueError(f"nested more than {MOST_DEEP:,} deep")
        self._open.append((value, self._key() if closing == "}" else None))
        return None

    def _put(self, value: Any) -> tuple[Any] | None:
        """Add a value to the innermost open collection; returns the collection if it ends here, else None."""
        collection, key = self._open.pop()
        if key is None:
            collection.append(value)
        else:
            collection[key] = value
        match self._next():
            case ",":
                self._open.append((collection, None if key is None else self._key()))
                return None
            case closing if closing == ("]" if key is None else "}"):
                return (collection,)
        raise self._wrong("a comma or the end of what was begun")

    def _key(self) -> str:
        if self._next() != '"':
            raise self._wrong("a key")
        key = self._string()
        if self._next() != ":":
            raise self._wrong("a colon")
        return key

    def _string(self) -> str:
        text: str
        text, self._at = scanstring(self._text, self._at, True)
        return text

    def _end(self) -> None:
        if self._peek():
            raise self._wrong("the end")

    def _peek(self) -> str:
        self._at = BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr] # always matches, if only the empty string
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        found = self._peek()
        self._at += 1
        return found

    def _wrong(self, expected: str) -> ValueError:
        return ValueError(f"expected {expected} at character {self._at}")
