"""Rules files and promtool's test files: read, evaluated, and compared with what is expected."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.promql.evaluate import Labels, Storage, evaluate
from tests.promql.language import UNIT_SECONDS, Node, NotOurs, parse

SERIES = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>[^}]*)\})?")
VALUE = re.compile(r"(?P<from>-?[\d.]+|_)(?:(?P<step>[+-][\d.]+))?(?:x(?P<times>\d+))?")
FORMAT = re.compile(r'\{\{\s*(?:\$labels\.(?P<label>\w+)|printf "(?P<format>%\.\d+f)" \$value)\s*\}\}')


@dataclass(frozen=True)
class Rule:
    """An alerting rule."""

    alert: str
    expr: Node
    text: str
    for_seconds: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Alert:
    """A rule that fires for a set of labels."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass
class Watch:
    """Evaluates rules again and again, as Prometheus does, and remembers since when each holds."""

    rules: list[Rule]
    storage: Storage
    since: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def look(self, at: float) -> list[Alert]:
        """The alerts that fire at an instant, at which the rules are evaluated."""
        firing, holding = [], set()
        for rule in self.rules:
            found = evaluate(self.storage, rule.expr, at)
            assert isinstance(found, dict), rule.alert
            for labels, value in found.items():
                key = (rule.alert, labels)
                holding.add(key)
                if at - self.since.setdefault(key, at) >= rule.for_seconds:
                    firing.append(_alert(rule, dict(labels), value))
        self.since = {key: begun for key, begun in self.since.items() if key in holding}
        return firing


def rules_of(path: Path) -> list[Rule]:
    """The alerting rules of a rules file."""
    return [
        Rule(
            alert=each["alert"],
            expr=parse(each["expr"]),
            text=each["expr"],
            for_seconds=seconds(each.get("for", "0s")),
            labels=each.get("labels", {}),
            annotations=each.get("annotations", {}),
        )
        for group in yaml.safe_load(path.read_text())["groups"]
        for each in group["rules"]
    ]


def seconds(span: str) -> float:
    """`90s`, `1m30s` or `2h` in seconds."""
    return float(sum(int(number) * UNIT_SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhd])", span)))


def verdicts(path: Path, *, left_open: bool = False) -> Iterator[tuple[str, str, list[Alert], list[Alert]]]:
    """(test, alert's name and time, what is expected, what fires) of each `alert_rule_test` of a test file."""
    tests = yaml.safe_load(path.read_text())
    rules = [rule for name in tests["rule_files"] for rule in rules_of(path.parent / name)]
    every = seconds(tests.get("evaluation_interval", "1m"))
    for test in tests["tests"]:
        storage = Storage(left_open=left_open)
        for series in test["input_series"]:
            _fill(storage, series, seconds(test["interval"]))
        watch, at, fired = Watch(rules, storage), 0.0, {}
        asked = test["alert_rule_test"]
        last = max(seconds(each["eval_time"]) for each in asked)
        while at <= last:
            fired[at] = watch.look(at)
            at += every
        for each in asked:
            name = each["alertname"]
            expected = [_expected(name, one) for one in each.get("exp_alerts") or []]
            found = [alert for alert in fired[seconds(each["eval_time"])] if alert.name == name]
            yield test["name"], f"{name} at {each['eval_time']}", expected, found


def _expected(name: str, one: Mapping[str, Any]) -> Alert:
    return Alert(name, one.get("exp_labels", {}), one.get("exp_annotations", {}))


def _alert(rule: Rule, labels: Mapping[str, str], value: float) -> Alert:
    def filled(text: str) -> str:
        return FORMAT.sub(lambda m: labels.get(m["label"], "") if m["label"] else m["format"] % value, text)

    said = {name: filled(text) for name, text in rule.annotations.items()}
    return Alert(rule.alert, {**labels, **rule.labels}, said)


def _fill(storage: Storage, series: Mapping[str, str], every: float) -> None:
    found = SERIES.fullmatch(series["series"])
    if found is None:
        raise NotOurs(series["series"])
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"] or ""))
    for number, value in enumerate(_values(series["values"])):
        if value is not None:
            storage.add(found["name"], labels, number * every, value)


def _values(text: str) -> Iterator[float | None]:
    for word in text.split():
        found = VALUE.fullmatch(word)
        if found is None:
            raise NotOurs(word)
        times = int(found["times"] or 0)
        if found["from"] == "_":
            yield from [None] * max(times, 1)
            continue
        for number in range(times + 1):
            yield float(found["from"]) + number * float(found["step"] or 0)
