"""Evaluate what `language` reads, as Prometheus does: lookback of five minutes, and its extrapolation of `increase`."""

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.promql.language import Binary, Increase, Node, NotOurs, Number, Round, Selector, Sum

LOOKBACK_SECONDS = 300.0
THRESHOLD = 1.1  # of the average distance of samples: a series that begins or ends nearer to the edge is extended to it

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Point = tuple[float, float]

ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else (float("nan") if not one else float("inf") * one),
}
COMPARING: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


@dataclass
class Storage:
    """Series and their samples, (seconds, value), in order. `left_open`: ranges as Prometheus 3 takes them."""

    series: dict[tuple[str, Labels], list[Point]] = field(default_factory=lambda: defaultdict(list))
    left_open: bool = False

    def add(self, name: str, labels: Mapping[str, str], at: float, value: float) -> None:
        """One sample more."""
        self.series[name, frozenset(labels.items())].append((at, value))

    def select(self, wanted: Selector) -> Iterable[tuple[Labels, list[Point]]]:
        """The series that a selector means."""
        for (name, labels), points in self.series.items():
            if name == wanted.name and all(_matches(dict(labels), each) for each in wanted.matchers):
                yield labels, points


def evaluate(storage: Storage, node: Node, at: float) -> Vector | float:
    """The value of an expression at an instant."""
    match node:
        case Number(value):
            return value
        case Selector(range_seconds=None):
            return _newest(storage, node, at)
        case Increase(of):
            return _increase(storage, of, at)
        case Sum(by, of):
            return _sum(evaluate(storage, of, at), by)
        case Round(of):
            return _round(evaluate(storage, of, at))
        case Binary(sign, left, right):
            return _binary(sign, evaluate(storage, left, at), evaluate(storage, right, at))
    raise NotOurs(str(node))


def _matches(labels: Mapping[str, str], matcher: tuple[str, str, str]) -> bool:
    name, sign, wanted = matcher
    value = labels.get(name, "")
    found = bool(re.fullmatch(wanted, value)) if sign.endswith("~") else value == wanted
    return found != sign.startswith("!")


def _newest(storage: Storage, wanted: Selector, at: float) -> Vector:
    found: Vector = {}
    for labels, points in storage.select(wanted):
        recent = [value for when, value in points if at - LOOKBACK_SECONDS < when <= at]
        if recent:
            found[labels] = recent[-1]
    return found


def _increase(storage: Storage, wanted: Selector, at: float) -> Vector:
    begin = at - (wanted.range_seconds or 0.0)
    found: Vector = {}
    for labels, points in storage.select(wanted):
        inside = [(t, v) for t, v in points if begin <= t <= at and not (storage.left_open and t == begin)]
        if len(inside) > 1:
            found[labels] = _extrapolated(inside, begin, at)
    return found


def _extrapolated(points: list[Point], begin: float, end: float) -> float:
    """promql/functions.go, extrapolatedRate, for a counter's increase."""
    values = [value for _, value in points]
    grown = values[-1] - values[0] + sum(a for a, b in pairwise(values) if b < a)
    sampled = points[-1][0] - points[0][0]
    distance = sampled / (len(points) - 1)
    to_start, to_end = points[0][0] - begin, end - points[-1][0]
    if grown > 0 and values[0] >= 0:  # a counter cannot have been below zero
        to_start = min(to_start, sampled * (values[0] / grown))
    covered = sampled
    for edge in (to_start, to_end):
        covered += edge if edge < distance * THRESHOLD else distance / 2
    return grown * (covered / sampled)  # in this order, or the last digit differs


def _sum(vector: Vector | float, by: tuple[str, ...]) -> Vector:
    if not isinstance(vector, dict):
        raise NotOurs("a sum of a number")
    totals: Vector = {}
    for labels, value in vector.items():
        kept = frozenset((name, text) for name, text in labels if name in by)
        totals[kept] = totals.get(kept, 0.0) + value
    return totals


def _round(vector: Vector | float) -> Vector:
    if not isinstance(vector, dict):
        raise NotOurs("a number that is rounded")
    return {labels: float(math.floor(value + 0.5)) for labels, value in vector.items()}


def _binary(sign: str, left: Vector | float, right: Vector | float) -> Vector | float:
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = {labels: (left[labels], right[labels]) for labels in left.keys() & right.keys()}
    elif isinstance(left, dict) and isinstance(right, float):
        pairs = {labels: (value, right) for labels, value in left.items()}
    else:
        raise NotOurs("a number on the left")
    if sign in ARITHMETIC:
        return {labels: ARITHMETIC[sign](*pair) for labels, pair in pairs.items()}
    return {labels: pair[0] for labels, pair in pairs.items() if COMPARING[sign](*pair)}
