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

BLANKS = r"[ \t\n\r]*"
SKIPPED = re.compile(BLANKS)
BEGUN = re.compile(  # a value: a collection, which may also end here, a string's quote, a word, or a number
    rf"{BLANKS}(?:([\[]{BLANKS}\]?|[{{]{BLANKS}\}}?)"
    r'|(")|(true|false|null)|(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?)'
)
KEY = re.compile(rf'{BLANKS}"([^"\\\x00-\x1f]*)"{BLANKS}:')  # one without escapes
MARK = re.compile(rf'{BLANKS}([,:"}}\]])')
WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
COLLECTIONS = (dict, list, Mapping)  # the first two are found sooner than by asking whether it is a Mapping
_encode = json.JSONEncoder(ensure_ascii=False).encode


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
    waiting = [_part(value)]  # a stack: texts, and collections that are still to be printed
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            done.append(each)
        else:
            waiting += reversed(_elements(each) if isinstance(each, list) else _members(each))
    return "".join(done)


def _elements(values: list[Any]) -> list[Any]:
    parts: list[Any] = []
    before = "["
    for value in values:
        parts += (before, _part(value))
        before = ", "
    return [*parts, "]" if values else "[]"]


def _members(values: Mapping[str, Any]) -> list[Any]:
    parts: list[Any] = []
    before = "{"
    for _, _, key in sorted((len(name := key.encode()), name, key) for key in values):
        parts += (f"{before}{_encode(key)}: ", _part(values[key]))
        before = ", "
    return [*parts, "}" if values else "{}"]


def _part(value: Any) -> Any:
    """A scalar's text, or the collection."""
    if isinstance(value, str):
        return _encode(value)
    if isinstance(value, COLLECTIONS):
        return value
    return format(value, "f") if isinstance(value, Decimal) else _encode(value)


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
        begun = BEGUN.match(self._text, self._at)
        if begun is None:
            raise self._wrong("a value")
        self._at = begun.end()
        match begun.lastindex:
            case 1:
                return self._collection(begun[1])
            case 2:
                return (self._string(),)
            case 3:
                return (WORDS[begun[3]],)
            case 4:
                return (_integer(begun[4]),)
        return (_number(self._text[begun.start(4) : begun.end()]),)

    def _collection(self, begun: str) -> tuple[Any] | None:
        value: Any = [] if begun[0] == "[" else {}
        if begun[-1] in "]}":
            return (value,)
        if len(self._open) == MOST_DEEP:
            raise ValueError(f"nested more than {MOST_DEEP:,} deep")
        self._open.append((value, None if begun[0] == "[" else self._key()))
        return None

    def _put(self, value: Any) -> tuple[Any] | None:
        """Add a value to the innermost open collection; returns the collection if it ends here, else None."""
        collection, key = self._open.pop()
        if key is None:
            collection.append(value)
        else:
            collection[key] = value
        if self._mark("a comma or the end of what was begun", ",]" if key is None else ",}") != ",":
            return (collection,)
        self._open.append((collection, None if key is None else self._key()))
        return None

    def _key(self) -> str:
        if plain := KEY.match(self._text, self._at):
            self._at = plain.end()
            return plain[1]
        self._mark("a key", '"')
        key = self._string()
        self._mark("a colon", ":")
        return key

    def _string(self) -> str:
        text: str
        text, self._at = scanstring(self._text, self._at, True)
        return text

    def _mark(self, expected: str, marks: str) -> str:
        """Read the next mark, one of `marks`."""
        found = MARK.match(self._text, self._at)
        if found is None or found[1] not in marks:
            raise self._wrong(expected)
        self._at = found.end()
        return found[1]

    def _end(self) -> None:
        if self._skipped() != len(self._text):
            raise self._wrong("the end")

    def _skipped(self) -> int:
        return SKIPPED.match(self._text, self._at).end()  # type: ignore[union-attr] # matches the empty string too

    def _wrong(self, expected: str) -> ValueError:
        return ValueError(f"expected {expected} at character {self._skipped() + 1}")
