"""`interlock schedule`, as somebody at a terminal meets it: beat, nodes and PostgreSQL run."""

import itertools
import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.terminal import LOOK_SECONDS, Terminal
from tests.waiting import eventually

ANN = ("--by", "ann")
WHY = (*ANN, "--reason", "a test")
PLAN = "name: nightly\nworkstreams: [{id: build, tasks: [{id: compile, shell: 'true'}]}]\n"


@pytest.fixture
def story(terminal: Terminal, name: str) -> str:
    """A story of the test's own."""
    terminal.ok("create", "story", name)
    return name


def test_a_schedule_fires_by_itself_is_paused_resumed_and_deleted(terminal: Terminal, story: str, project: str) -> None:
    made = terminal.ok(
        *("schedule", "create", "each", "--every", "1s", "--fire", story, "design_complete", "--data", '{"x": 1}', *ANN)
    )
    assert (made["state"], made["name"], made["by"]) == ("active", "each", "ann")
    (event,) = eventually(lambda: terminal.ok("history", story), timeout=30, every=LOOK_SECONDS)
    assert (event["triggered_by"], event["metadata"], event["proof"]) == ("ann", {"x": 1}, f"schedule:{made['id']}")
    refused = terminal.run("schedule", "pause", "each", "--by", "bob", "--reason", "why")
    assert refused.code == 2
    assert "only who created the schedule may do that (--by NAME), or an operator may end it" in refused.out
    assert refused.out.strip().endswith("it was created by: ann")
    refused = terminal.run("schedule", "delete", "each", "--by", "bob", "--reason", "why")
    assert refused.code == 2
    refused.is_one_clear_line("bob is not an operator")
    for command, state in (("pause", "paused"), ("resume", "active"), ("delete", "ended")):
        done = terminal.run("schedule", command, "each", *WHY)
        assert (done.code, done.out.strip()) == (0, f"schedule each is {state}"), done.said
    shown = terminal.ok("schedule", "show", "each")
    assert shown["state"] == "ended"
    assert {each["status"] for each in shown["firings"]} <= {"applied", "rejected", "pending"}
    said = terminal.run("schedule", "show", "each").out
    assert re.search(
        r"fired: \w{3} 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC: design_complete (applied: analysis|rejected: story)", said
    )
    assert terminal.ok("schedule", "list", "--project", project) == []
    assert [each["name"] for each in terminal.ok("schedule", "list", "--ended", "--project", project)] == ["each"]


def test_the_next_five_times_are_shown_in_the_schedules_zone(terminal: Terminal, story: str) -> None:
    cron = ("--cron", "30 2 * * *", "--time-zone", "Europe/Berlin")
    made = terminal.ok("schedule", "create", "nightly", *cron, "--fire", story, "block", *ANN)
    times = [datetime.fromisoformat(each) for each in made["following"]]
    assert len(times) == 5
    assert {each.minute for each in times} <= {30, 0}
    assert all(later - earlier <= timedelta(hours=25) for earlier, later in itertools.pairwise(times))
    shown = terminal.run("schedule", "show", "nightly")
    assert shown.out.count("next: ") == 5
    assert "02:30:00 CE" in shown.out
    assert f"schedule nightly is active: 30 2 * * * (Europe/Berlin), fire block on story/{story}, by ann" in shown.out
    listed = terminal.run("schedule", "list")
    assert "30 2 * * * (Europe/Berlin)" in listed.out.replace("\n", " ") or "nightly" in listed.out
    terminal.ok("schedule", "delete", "nightly", *WHY)


def test_it_creates_instances_and_runs_plans(terminal: Terminal, tmp_path: Path, project: str) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    terminal.ok("schedule", "create", "stories", "--every", "1s", "--create", "story", "S-%due", *ANN)
    terminal.ok("schedule", "create", "plans", "--every", "2s", "--plan", str(tmp_path / "plan.yaml"), *ANN)
    (tmp_path / "plan.yaml").unlink()
    listed = ("list", "--project", project, "--type")
    eventually(lambda: terminal.ok(*listed, "story"), timeout=30, every=LOOK_SECONDS)
    run = eventually(lambda: terminal.ok(*listed, "run"), timeout=30, every=LOOK_SECONDS)[0]
    assert run["entity_id"].startswith("plans-20")
    assert f"run/{run['entity_id']}" in [each["what"] for each in terminal.ok("schedule", "show", "plans")["firings"]]
    story = terminal.ok("schedule", "show", "stories")["firings"][-1]
    assert (story["what"], story["status"]) == (f"story/S-{story['due']}", "analysis")
    for each in ("stories", "plans"):
        terminal.ok("schedule", "delete", each, *WHY)
    all_succeed(terminal, project)


def all_succeed(terminal: Terminal, project: str) -> None:
    """Wait until all runs of a project have; if one does not, say how each stands, and what is stuck."""

    def late() -> list[str]:
        runs = terminal.ok("list", "--type", "run", "--project", project)
        return [each["entity_id"] for each in runs if each["current_state"] != "succeeded"]

    try:
        eventually(lambda: not late(), timeout=60, every=LOOK_SECONDS)
    except AssertionError as never:
        words = [*(("run", "show", each) for each in late()), ("stuck", "--all", "--project", project)]
        raise AssertionError("\n".join(terminal.run(*each).said for each in words)) from never


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--every", "1s"), "give one of --fire, --create and --plan"),
        (("--create", "story", "S-%due"), "give --cron"),
        (("--every", "1s", "--cron", "* * * * *", "--create", "story", "S-%due"), "give --cron"),
        (("--every", "1.5s", "--create", "story", "S-%due"), "--every must be a duration of whole seconds"),
        (("--every", "1s", "--create", "story", "S"), "name must contain %due"),
        (("--cron", "0 3 * *", "--create", "story", "S-%due"), "cron must have five fields"),
        (("--cron", "0 3 * * *", "--time-zone", "Mars", "--create", "story", "S-%due"), "time_zone 'Mars' is unknown"),
        (("--every", "1s", "--catch-up", "some", "--create", "story", "S-%due"), "policy is one of skip, one, all"),
        (("--every", "1s", "--within", "1d", "--create", "story", "S-%due"), "unknown field 'within_seconds'"),
        (("--every", "1s", "--fire", "nobody", "block"), "nobody"),
    ],
    ids=" ".join,
)
def test_what_is_wrong_is_told_in_one_line(terminal: Terminal, words: tuple[str, ...], message: str) -> None:
    refused = terminal.run("schedule", "create", "odd", *words, *ANN)
    assert refused.code == 2
    refused.is_one_clear_line(message)


def test_an_operator_ends_what_somebody_else_created(terminal: Terminal) -> None:
    words = ("--every", "1h", "--create", "story", "S-%due", "--by", "carol")
    terminal.ok("schedule", "create", "hers", *words)
    done = terminal.run("schedule", "delete", "hers", *WHY)
    assert (done.code, done.out.strip()) == (0, "schedule hers is ended")
    (event,) = terminal.ok("history", "schedule/hers")
    assert (event["trigger"], event["authority"], event["triggered_by"]) == ("stop", "operator", "ann")


def test_a_schedule_that_is_there_already_is_refused(terminal: Terminal) -> None:
    words = ("schedule", "create", "twice", "--every", "1h", "--create", "story", "S-%due", *ANN)
    terminal.ok(*words)
    again = terminal.run(*words, "--json")
    assert (again.code, json.loads(again.out)["error"]) == (2, "AlreadyExists")
    terminal.ok("schedule", "delete", "twice", *WHY)
