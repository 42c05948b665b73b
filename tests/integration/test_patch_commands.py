"""`interlock patch`: what operators see of the ledger, and what they may do to it."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.supervisor.environment import environment
from interlock.workers.runtime import Runtime
from tests.cli.terminal import forked
from tests.driving import state
from tests.landscape import Landscape
from tests.repositories import FILES, everything

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
WHY = ("--by", "ann", "--reason", "regression")


def begin(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    """`begun`: a patch is committed."""
    land = Landscape(runtime, dba, root)
    land.committed_patch()
    return land


def interlock(land: Landscape, *words: str, code: int = 0) -> str:
    """Run a command in a process of its own; what it printed."""
    done = forked(("patch", *words), environment(land.runtime.settings))
    assert done.code == code, done.said
    return done.said


def answer(land: Landscape, *words: str, code: int = 0) -> Any:
    return json.loads(interlock(land, *words, "--json", code=code))


def test_entries_are_listed_by_run_and_state_and_shown_with_their_way(land: Landscape) -> None:
    bad, good = land.patch("no diff", "bad"), land.committed_patch(name="good")
    assert {each["ledger_id"] for each in answer(land, "list", "--run", "demo")} == {str(bad), str(good)}
    (listed,) = answer(land, "list", "--state", "committed")
    assert (listed["entity_id"], listed["ledger_id"]) == ("demo/w/good^1", str(good))
    (set_aside,) = answer(land, "quarantined")
    assert "cannot read it as a diff" in set_aside["quarantine_reason"]
    shown = answer(land, "show", "demo/w/good^1")
    assert [each["to_state"] for each in shown["state_history"]][-1] == "committed"
    words = interlock(land, "show", str(good))
    assert "format, scope, constraints, tests" in words
    assert "-one\n+1" in words
    assert "demo/w/bad^1" in interlock(land, "quarantined")
    for alias, command in (("patch quarantined", "quarantine list"), ("patch plan", "compensation plan")):
        assert f"`interlock {command}`" in interlock(land, alias.split()[1], "--help")


@pytest.mark.parametrize("words", [("list", "--state", "gone"), ("list", "--run", "none"), ("show", "none")])
def test_what_is_not_there_is_refused(land: Landscape, words: tuple[str, ...]) -> None:
    assert answer(land, *words, code=2)["exit_code"] == 2


def test_a_patch_is_rolled_back_by_the_plan_that_was_printed(begun: Landscape, tmp_path: Path) -> None:
    entry = begun.only_patch()
    file = tmp_path / "plan.json"
    file.write_text(interlock(begun, "plan", "demo/w/t^1"))
    done = answer(begun, "roll-back", "demo/w/t^1", "--plan", str(file), *WHY)
    assert done["compensation"]["plan"]["actions"][0]["action"] == "git_revert"
    assert (done["by"], done["reason"]) == ("ann", "regression")
    assert state(begun.client, entry) == "rolled_back"
    assert (begun.place.path / "app.py").read_text() == FILES["app.py"]
    again = answer(begun, "roll-back", str(entry), *WHY)
    assert again == done | {"moves": []}, "asked again, it does nothing"


def test_a_roll_back_that_fails_says_why_and_changes_nothing(begun: Landscape, tmp_path: Path) -> None:
    entry = begun.only_patch()
    plan = json.loads(interlock(begun, "plan", str(entry))) | {"validation": {"required_gates": ["SECURITY"]}}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    before = everything(begun.checkout)
    failed = answer(begun, "roll-back", str(entry), "--plan", str(file), *WHY, code=1)
    assert "no gate of type SECURITY" in failed["message"]
    assert (everything(begun.checkout), state(begun.client, entry)) == (before, "committed")


def test_plans_that_will_not_do_are_refused(begun: Landscape, tmp_path: Path) -> None:
    entry, refused = begun.only_patch(), {}
    for plan in ("[]", "{", '{"compensation_type": "magic"}', '{"compensation_type": "git_revert"}'):
        (tmp_path / "plan.json").write_text(plan)
        refused[plan] = answer(begun, "roll-back", str(entry), "--plan", str(tmp_path / "plan.json"), *WHY, code=2)
    assert {plan: each["error"] for plan, each in refused.items()} == dict.fromkeys(refused, "BadInput")
    assert state(begun.client, entry) == "committed"


def test_what_is_quarantined_is_dropped_and_nothing_else(land: Landscape) -> None:
    bad, good = land.patch("no diff", "bad"), land.committed_patch(name="good")
    assert "committed" in answer(land, "drop", str(good), *WHY, code=2)["message"]
    interlock(land, "drop", str(bad), *WHY)
    assert state(land.client, bad) == "dropped"
    assert land.said(bad)["authorized_by"] == "ann"
