"""Prometheus' rules, and promtool to test them, if it is installed (Debian: `prometheus`)."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed here")
# Template expressions that rules may use in their texts.
FORMAT = re.compile(r'\{\{\s*(?:\$labels\.(?P<label>\w+)|printf "(?P<format>%\.\d+f)" \$value)\s*\}\}')
FIRING = re.compile(
    r"alertname: (\w+), time: (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?"
)  # in promtool's report of unexpected alerts
NOT_NAMES = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without|ignoring|group_left|group_right) *\([^)]*\)')
WORDS = {"and", "or", "unless", "bool", "offset", "by", "on"}
NAME = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?! *\()")

Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], Sequence[float | None]]
"""(metric, its labels) -> its value at each scrape; None where it had none."""


@dataclass(frozen=True)
class Rule:
    """An alerting rule."""

    alert: str
    text: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@cache
def rules_of(path: Path) -> Sequence[Rule]:
    """The alerting rules of a rules file."""
    return [
        Rule(each["alert"], each["expr"], each.get("labels", {}), each.get("annotations", {}))
        for group in yaml.safe_load(path.read_text())["groups"]
        for each in group["rules"]
    ]


def names(query: str) -> set[str]:
    """The metrics in a query."""
    return set(NAME.findall(NOT_NAMES.sub(" ", query))) - WORDS


def promtool(*arguments: str, where: Path) -> "subprocess.CompletedProcess[str]":
    """Run promtool in a directory."""
    return subprocess.run(["promtool", *arguments], cwd=where, capture_output=True, text=True, check=False)


def fired(rules: Path, series: Series, scrapes: Iterable[int], *, every_seconds: int, where: Path) -> dict[str, int]:
    """The alerts that fire at any of these scrapes, each with the first: promtool is told to expect none."""
    wanted = set().union(*(names(rule.text) for rule in rules_of(rules)))  # the others only take it time to load
    inputs = [
        {"series": f"{name}{{{_labels(labels)}}}", "values": " ".join(map(_value, values))}
        for (name, labels), values in series.items()
        if name in wanted
    ]
    asked = [
        {"eval_time": f"{scrape * every_seconds}s", "alertname": rule.alert, "exp_alerts": []}
        for scrape in scrapes
        for rule in rules_of(rules)
    ]
    test = {"interval": f"{every_seconds}s", "input_series": inputs, "alert_rule_test": asked}
    whole = {"rule_files": [str(rules)], "evaluation_interval": f"{every_seconds}s", "tests": [test]}
    (where / "fired.yml").write_text(json.dumps(whole))
    done = promtool("test", "rules", "fired.yml", where=where)
    found: dict[str, int] = {}
    for alert, *parts in FIRING.findall(done.stdout + done.stderr):
        hours, minutes, seconds = (int(part or 0) for part in parts)
        scrape = (hours * 3600 + minutes * 60 + seconds) // every_seconds
        found[alert] = min(scrape, found.get(alert, scrape))
    assert found or done.returncode == 0, done.stderr
    return found


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}={json.dumps(value)}" for name, value in labels)


def _value(value: float | None) -> str:
    return "_" if value is None else repr(value)
