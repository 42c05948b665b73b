"""`interlock limit` at a terminal, and what makes no budget either."""

import pytest

from tests.cli.terminal import Terminal

WHY = ("--by", "ann", "--reason", "few servers")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        *(
            ((*words, rate), why)
            for words in (("limit", "set", "key", "a", "--rate"), ("budget", "set", "--actor", "a", "--triggers"))
            for rate, why in (("many", "is no number and period"), ("10/soon", words[-1]))
        ),
        (("limit", "set", "key", "a"), "how much may run at once"),
        (("limit", "set", "key", "a", "--rate", "10"), "is no number and period"),
        (("limit", "set", "key", "a", "--rate", "0/1h"), "starts must be"),
        (("limit", "set", "project", "another", "--at-once", "1"), "give --project another"),
        (("limit", "set", "tool", "--at-once", "1"), "tool"),
        (("budget", "set", "--actor", "a"), "--triggers, --claims, --tokens or --usd"),
        (("budget", "set", "--actor", "a", "--triggers", "0.5/1h"), "counted whole"),
        (("budget", "set", "--actor", "a", "--usd", "0/1h"), "most must be"),
        (("budget", "set", "--actor", "a", "--run", "r", "--usd", "1"), "not for both"),
        (("budget", "set", "--run", "no-such", "--usd", "1"), "no-such"),
    ],
)
def test_what_makes_no_limit_or_budget_is_refused(
    terminal: Terminal, project: str, words: tuple[str, ...], why: str
) -> None:
    refused = terminal.run(*words, *WHY)
    assert refused.code == 2
    assert why in refused.said
    assert terminal.ok(words[0], "list", "--project", project) == []


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
