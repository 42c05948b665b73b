"""`interlock limit` at a terminal, and what makes no budget either."""

import pytest

from tests.cli.terminal import Terminal

WHY = ("--by", "ann", "--reason", "few servers")


UNSOUND = {
    "limit": (
        (("key", "a"), "how much may run at once"),
        (("key", "a", "--rate", "10"), "is no number and period"),
        (("key", "a", "--rate", "10/soon"), "--rate"),
        (("key", "a", "--rate", "0/1h"), "starts must be"),
        (("project", "another", "--at-once", "1"), "give --project another"),
        (("tool", "--at-once", "1"), "tool"),
    ),
    "budget": (
        (("--actor", "a"), "--triggers, --claims, --tokens or --usd"),
        (("--actor", "a", "--triggers", "many"), "is no number and period"),
        (("--actor", "a", "--triggers", "10/soon"), "--triggers"),
        (("--actor", "a", "--triggers", "0.5/1h"), "counted whole"),
        (("--actor", "a", "--usd", "0/1h"), "most must be"),
        (("--actor", "a", "--run", "r", "--usd", "1"), "not for both"),
        (("--run", "no-such", "--usd", "1"), "no-such"),
    ),
}


@pytest.mark.parametrize(
    ("group", "words", "why"), [(group, *each) for group, several in UNSOUND.items() for each in several]
)
def test_what_makes_no_limit_or_budget_is_refused(
    terminal: Terminal, project: str, group: str, words: tuple[str, ...], why: str
) -> None:
    refused = terminal.run(group, "set", *words, *WHY)
    assert refused.code == 2
    assert why in refused.said
    assert terminal.ok(group, "list", "--project", project) == []


def test_only_operators_set_and_remove(terminal: Terminal) -> None:
    for words in (("set", "key", "a", "--at-once", "1"), ("remove", "key", "a")):
        refused = terminal.run("limit", *words, "--by", "mallory", "--reason", "mine")
        assert refused.code == 2
        assert "mallory" in refused.said


def test_a_rate_is_said_in_seconds_minutes_hours_or_days(terminal: Terminal) -> None:
    for rate, seconds in (("3/s", 1.0), ("3/m", 60.0), ("3/90s", 90.0), ("3/1d", 86_400.0)):
        made = terminal.ok("limit", "set", "project", "--rate", rate, *WHY)
        assert (made["context"]["starts"], made["context"]["per_seconds"]) == (3, seconds)
    assert "3 starts in 86400 s" in terminal.run("limit", "show", "project").said
    assert terminal.run("limit", "remove", "project", *WHY).code == 0
    gone = terminal.run("limit", "show", "project")
    assert gone.code == 2
    assert "no limit on project" in gone.said
