"""The alert rules: each fires on what provokes it and is silent otherwise, as promtool sees it and as we do."""

import random
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from cli.main import app
from tests.architecture.test_documents import anchors
from tests.promql.evaluate import Storage, evaluate
from tests.promql.language import NotOurs, names, parse
from tests.promql.rules import FORMAT, Rule, rules_of, verdicts
from workers.metrics import METRICS

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops" / "prometheus"
RULES = OPS / "interlock.rules.yml"
TESTS = OPS / "interlock.rules.test.yml"
SSOT = {  # 7.3.3: each of its alerts, and what in our rule carries its number
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
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed here")


def by_name(rule: Rule) -> str:
    return rule.alert


@pytest.mark.parametrize("left_open", [False, True], ids=["prometheus 2", "prometheus 3"])
def test_each_alert_fires_where_it_should_and_nowhere_else(left_open: bool) -> None:
    told = list(verdicts(TESTS, left_open=left_open))
    assert [(test, found) for test, _, expected, found in told if found != expected] == []
    fires = {found[0].name for _, _, _, found in told if found}
    silent = {what.split()[0] for _, what, expected, _ in told if not expected}
    assert fires == silent == {rule.alert for rule in EVERY}


@pytest.mark.parametrize("alert", SSOT)
def test_the_ssots_alerts_have_its_numbers(alert: str) -> None:
    (rule,) = [each for each in EVERY if each.alert == alert]
    severity, *parts = SSOT[alert]
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


def test_what_the_reader_does_not_know_it_refuses() -> None:
    for text in ("rate(x[5m]) > 1", "x offset 5m", "x and y", "increase(x)", "max(x)"):
        with pytest.raises(NotOurs):
            parse(text)


# promtool itself, where it is at hand: our evaluation is only worth something if it is the same ----------------------


def promtool(*arguments: str, where: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *arguments], cwd=where, capture_output=True, text=True, check=False)


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
def test_of_rules_that_are_wrong_promtool_and_we_say_the_same(tmp_path: Path, was: str, becomes: str) -> None:
    wrong, count = re.subn(was, becomes, RULES.read_text(), flags=re.MULTILINE)
    assert count
    (tmp_path / RULES.name).write_text(wrong)
    (tmp_path / TESTS.name).write_text(TESTS.read_text())
    ours = {(what) for _, what, expected, found in verdicts(tmp_path / TESTS.name) if found != expected}
    told = promtool("test", "rules", TESTS.name, where=tmp_path)
    theirs = set(re.findall(r"alertname: (\w+), time: (\w+)", told.stderr + told.stdout))
    assert {tuple(what.split(" at ")) for what in ours} == theirs
    assert ours


@needs_promtool
def test_increases_of_any_counter_are_promtools(tmp_path: Path) -> None:
    chance, series, expected = random.Random(7), [], []
    storage = Storage()
    for number in range(60):
        value, words = 0, []
        for at in range(0, 600, 15):
            value = 0 if chance.random() < 0.03 else value + chance.choice((0, 0, 1, 3, 50))
            words.append("_" if chance.random() < 0.15 else str(value))
            if words[-1] != "_":
                storage.add("c", {"n": str(number)}, float(at), float(value))
        series.append({"series": f'c{{n="{number}"}}', "values": " ".join(words)})
    for at, span in ((585, "5m"), (300, "2m"), (47, "1m"), (590, "30s")):
        found = evaluate(storage, parse(f"increase(c[{span}])"), float(at))
        assert isinstance(found, dict)
        assert found
        samples = [{"labels": f'{{n="{dict(labels)["n"]}"}}', "value": value} for labels, value in found.items()]
        expected.append({"expr": f"increase(c[{span}])", "eval_time": f"{at}s", "exp_samples": samples})
    test = {"interval": "15s", "input_series": series, "promql_expr_test": expected}
    whole = {"rule_files": [], "evaluation_interval": "5s", "tests": [test]}  # samples are loaded in these steps
    (tmp_path / "test.yml").write_text(yaml.safe_dump(whole))
    told = promtool("test", "rules", "test.yml", where=tmp_path)
    assert told.returncode == 0, told.stderr[:3000]
