"""The part of PromQL that our rules use, read into a tree; anything else is refused by name.

Numbers, selectors with matchers, `increase(selector[range])`, `sum` with `by`, `round`, + - * /, comparisons,
parentheses.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![smhd\w]))|(?P<span>\d+[smhd])|(?P<name>[A-Za-z_:][\w:]*)"
    r'|(?P<text>"[^"]*")|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/<>=(){}\[\],]))'
)
COMPARISONS = ("==", "!=", ">=", "<=", ">", "<")


class NotOurs(Exception):
    """Something that this reader does not know. Add it here, with a case that promtool agrees on."""


@dataclass(frozen=True)
class Number:
    """A literal."""

    value: float


@dataclass(frozen=True)
class Selector:
    """Series of a name whose labels match; with a range, their samples of so many seconds."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    range_seconds: float | None = None


@dataclass(frozen=True)
class Increase:
    """How much counters grew over a range, extrapolated to its edges."""

    of: Selector


@dataclass(frozen=True)
class Sum:
    """Added up over all labels but these."""

    by: tuple[str, ...]
    of: "Node"


@dataclass(frozen=True)
class Round:
    """To whole numbers, halves upwards."""

    of: "Node"


@dataclass(frozen=True)
class Binary:
    """Two sides, matched by their labels."""

    sign: str
    left: "Node"
    right: "Node"


Node = Number | Selector | Increase | Sum | Round | Binary


def parse(text: str) -> Node:
    """Read an expression. Raises `NotOurs` at the first thing it does not know."""
    reader = _Reader(text)
    tree = reader.comparison()
    if reader.token[0] != "end":
        raise NotOurs(f"{reader.token[1]!r} in {text!r}")
    return tree


def names(text: str) -> set[str]:
    """The metrics that an expression asks for, whatever functions it uses around them."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left)\s*\([^)]*\)', " ", text)
    called = set(re.findall(r"([A-Za-z_]\w*)\s*\(", bare))
    return set(re.findall(r"[A-Za-z_:][\w:]*", bare)) - called - {"by", "and", "or", "unless", "on", "bool"}


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.token = next(self.tokens)

    def _tokens(self) -> Iterator[tuple[str, str]]:
        at = 0
        while at < len(self.text.rstrip()):
            found = TOKEN.match(self.text, at)
            if found is None:
                raise NotOurs(f"{self.text[at : at + 20]!r} in {self.text!r}")
            at = found.end()
            kind = str(found.lastgroup)
            yield kind, found[kind]
        yield "end", ""

    def _take(self, *wanted: str) -> str:
        kind, word = self.token
        if wanted and word not in wanted and kind not in wanted:
            raise NotOurs(f"{word!r} where {' or '.join(wanted)} should be, in {self.text!r}")
        if kind != "end":
            self.token = next(self.tokens)
        return word

    def comparison(self) -> Node:
        left = self._sum()
        if self.token[1] in COMPARISONS:
            return Binary(self._take(), left, self._sum())
        return left

    def _sum(self) -> Node:
        left = self._product()
        while self.token[1] in ("+", "-"):
            left = Binary(self._take(), left, self._product())
        return left

    def _product(self) -> Node:
        left = self._atom()
        while self.token[1] in ("*", "/"):
            left = Binary(self._take(), left, self._atom())
        return left

    def _atom(self) -> Node:
        kind, word = self.token
        if kind == "number":
            return Number(float(self._take()))
        if word == "(":
            return self._inside()
        name = self._take("name")
        if name == "sum":
            return self._aggregation()
        if name == "round":
            return Round(self._inside())
        if name == "increase":
            inside = self._inside()
            if not isinstance(inside, Selector) or inside.range_seconds is None:
                raise NotOurs(f"increase of what has no range, in {self.text!r}")
            return Increase(inside)
        if self.token[1] == "(":
            raise NotOurs(f"the function {name!r}")
        return self._selector(name)

    def _aggregation(self) -> Sum:
        by: tuple[str, ...] = ()
        if self.token[1] == "by":
            self._take()
            by = tuple(self._listed("(", ")"))
        return Sum(by, self._inside())

    def _inside(self) -> Node:
        self._take("(")
        inside = self.comparison()
        self._take(")")
        return inside

    def _listed(self, opens: str, closes: str) -> Iterator[str]:
        self._take(opens)
        while self.token[1] != closes:
            yield self._take("name")
            if self.token[1] == ",":
                self._take()
        self._take(closes)

    def _selector(self, name: str) -> Selector:
        matchers = []
        if self.token[1] == "{":
            self._take()
            while self.token[1] != "}":
                label, sign = self._take("name"), self._take("=", "!=", "=~", "!~")
                matchers.append((label, sign, self._take("text").strip('"')))
                if self.token[1] == ",":
                    self._take()
            self._take("}")
        span = None
        if self.token[1] == "[":
            self._take()
            word = self._take("span")
            span = float(word[:-1]) * UNIT_SECONDS[word[-1]]
            self._take("]")
        return Selector(name, tuple(matchers), span)
