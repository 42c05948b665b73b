"""`interlock subscription` at a terminal."""

import pytest

from tests.cli.terminal import Terminal

WHY = ("--by", "ann", "--reason", "others want to know")
URL = ("--url", "https://a.example/", "--secret", "file:own")


def test_a_subscription_from_its_beginning_to_its_end(terminal: Terminal, name: str) -> None:
    made = terminal.ok("subscription", "add", name, *URL, "--type", "story", "--state", "done", *WHY)
    assert (made["current_state"], made["context"]["states"]) == ("active", ["done"])
    assert name in [each["name"] for each in terminal.ok("subscription", "list")]
    for command, state in (("pause", "paused"), ("resume", "active")):
        assert terminal.ok("subscription", command, name, *WHY)["current_state"] == state
    shown = terminal.run("subscription", "show", name)
    for words in ("types story; states done", "https://a.example/", "file:own", "resume by ann", "0 delivered"):
        assert words in shown.said
    assert terminal.run("subscription", "list").out.splitlines()[0].strip() == "1 subscription"
    assert terminal.ok("subscription", "remove", name, *WHY)["current_state"] == "removed"
    assert name not in [each["name"] for each in terminal.ok("subscription", "list")]
    assert name in [each["name"] for each in terminal.ok("subscription", "list", "--removed")]
    assert terminal.run("subscription", "add", name, *URL, *WHY).code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "x", *URL, "--type", "stroy", *WHY), "did you mean story"),
        (("add", "x", "--url", "http://a.example/", "--secret", "file:own", *WHY), "INTERLOCK_SUBSCRIPTION_HOSTS"),
        (("add", "x", "--url", "https://a.example/", "--secret", "whsec_c2VjcmV0", *WHY), "secrets"),
        (("add", "x", *URL, "--by", "mallory", "--reason", "mine"), "mallory"),
        (("pause", "nobody", *WHY), "nobody"),
        (("replay", "nobody", "--from", "soon", *WHY), "--from"),
        (("skip", "nobody", *WHY), "nobody"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(terminal: Terminal, words: tuple[str, ...], why: str) -> None:
    refused = terminal.run("subscription", *words)
    assert refused.code == 2
    assert why in refused.said


def test_a_replay_says_how_many_events_come_again_and_waits_for_them(terminal: Terminal, name: str) -> None:
    terminal.ok("subscription", "add", name, *URL, *WHY)
    going = terminal.ok("subscription", "replay", name, "--from", "1d", *WHY)
    assert (going["events"] > 0, going["done"]) == (True, 0)
    late = terminal.run("subscription", "replay", name, "--from", "1d", "--wait", "--timeout", "0", *WHY)
    assert late.code != 0
    terminal.ok("subscription", "remove", name, *WHY)
    assert terminal.run("subscription", "skip", name, *WHY).code == 2
