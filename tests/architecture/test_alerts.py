"""The alert rules: each fires on what provokes it and is silent otherwise, as promtool says."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from interlock.cli.main import app
from interlock.workers.operations.metrics import METRICS
from tests.architecture.test_documents import anchors
from tests.promtool import FORMAT, Rule, names, needs_promtool, promtool, rules_of

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops" / "prometheus"
RULES = OPS / "interlock.rules.yml"
TESTS = OPS / "interlock.rules.test.yml"
SPEC = {  # METRIC-4, METRIC-5: each of their alerts, and what in our rule carries its number
    "InterlockHighFailureRate": ("critical", "[5m]", "> 0.10"),
    "InterlockManualOverrideSpike": ("critical", "[10m]", "> 5"),
    "InterlockStuckEntities": ("critical", "overrun", "> 2"),
    "InterlockCircuitBreakerOpen": ("critical", 'to_state="OPEN"', "> 0"),
    "InterlockRollbackExecuted": ("critical", 'to_state="rolled_back"', "> 0"),
    "InterlockRetryIncrease": ("warning", 'to_state="retrying"', "> 0.20"),
    "InterlockWorkerUnresponsive": ("warning", 'to_state="unresponsive"', "> 0"),
    "InterlockValidationFailures": ("warning", "[1h]", "> 3"),
    "InterlockBlockedTasks": ("warning", 'state="blocked"', "> 5"),
}
EVERY = rules_of(RULES)
LABELS = {each.name: {*each.labels, "le"} for each in METRICS} | {"up": {"job", "instance"}}


def by_name(rule: Rule) -> str:
    return rule.alert


def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    asked = [each for test in yaml.safe_load(TESTS.read_text())["tests"] for each in test["alert_rule_test"]]
    fires = {each["alertname"] for each in asked if each.get("exp_alerts")}
    silent = {each["alertname"] for each in asked if not each.get("exp_alerts")}
    assert fires == silent == {rule.alert for rule in EVERY}


@pytest.mark.parametrize("alert", SPEC)
def test_the_specs_alerts_have_its_numbers(alert: str) -> None:
    (rule,) = [each for each in EVERY if each.alert == alert]
    severity, *parts = SPEC[alert]
    assert rule.labels["severity"] == severity
    assert all(part in rule.text for part in parts), rule.text


@pytest.mark.parametrize("rule", EVERY, ids=by_name)
def test_a_rule_asks_only_for_metrics_and_labels_that_there_are(rule: Rule) -> None:
    asked = names(rule.text)
    assert asked
    assert asked <= set(LABELS)
    for name in asked:
        for inside in re.findall(rf"{name}\{{([^}}]*)\}}", rule.text):
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)) <= LABELS[name]


@pytest.mark.parametrize("rule", EVERY, ids=by_name)
def test_a_rule_says_what_is_wrong_and_what_helps(rule: Rule) -> None:
    assert set(rule.annotations) == {"summary", "description", "command", "runbook_url"}
    assert rule.labels["severity"] in ("critical", "warning")
    path, _, anchor = rule.annotations["runbook_url"].partition("#")
    assert (ROOT / path).is_file()
    assert not anchor or anchor in anchors(ROOT / path)
    for text in rule.annotations.values():
        assert "{{" not in FORMAT.sub("", text), "a template that this test does not know"


@pytest.mark.parametrize("rule", EVERY, ids=by_name)
def test_the_command_that_helps_exists(rule: Rule) -> None:
    command: Any = get_command(app)
    context = command.context_class(command)
    for word in shlex.split(FORMAT.sub("X", rule.annotations["command"]))[1:]:
        if word.startswith("-"):
            assert word in {option for parameter in command.params for option in parameter.opts}, word
        elif hasattr(command, "commands"):
            _, command, _ = command.resolve_command(context, [word])  # refuses what there is not


@needs_promtool
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    checked = promtool("check", "rules", RULES.name, where=OPS)
    assert checked.returncode == 0, checked.stderr
    tried = promtool("test", "rules", TESTS.name, where=OPS)
    assert tried.returncode == 0, tried.stderr


@needs_promtool
@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (r"> 0\.10", "> 0.99"),
        (r"> [0-9.]+$", "> 1000000"),
        (r"> [0-9.]+$", "> 0.0001"),
        (r"\[\d+m\]", "[1m]"),
        (r"== 0", "== 1"),
        (r"for: \w+", "for: 20m"),
        (r'to_state="\w+"', 'to_state=~"o.*"'),
    ],
)
def test_rules_that_are_wrong_do_not_pass_their_tests(tmp_path: Path, was: str, becomes: str) -> None:
    """Only the tests of the first rules that are wrong are run: all of them take promtool three seconds, each time."""
    wrong = re.sub(was, becomes, RULES.read_text(), flags=re.MULTILINE)
    right = _rules(RULES.read_text())
    changed = [rule["alert"] for rule in _rules(wrong) if rule not in right][:3]
    assert changed
    whole = yaml.safe_load(TESTS.read_text())
    whole["tests"] = [
        test for test in whole["tests"] if {asked["alertname"] for asked in test["alert_rule_test"]} & {*changed}
    ]
    (tmp_path / RULES.name).write_text(wrong)
    (tmp_path / TESTS.name).write_text(json.dumps(whole))
    assert promtool("check", "rules", RULES.name, where=tmp_path).returncode == 0
    assert promtool("test", "rules", TESTS.name, where=tmp_path).returncode != 0


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
