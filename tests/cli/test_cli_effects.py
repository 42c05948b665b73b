"""`interlock effect`: what people see of effects, and how an operator tries a dead one again."""

from tests.cli.terminal import Terminal
from tests.waiting import eventually


def test_effects_are_listed_shown_and_not_retried_unless_dead(terminal: Terminal, story: str, project: str) -> None:
    terminal.ok("fire", story, "block", "--by", "ann", "--wait")
    listed = lambda: terminal.ok("effect", "list", "--project", project, "--name", "notice")  # noqa: E731
    eventually(lambda: [row["status"] for row in listed()] == ["done"])
    ((row,), other) = listed(), terminal.ok("effect", "list", "--project", project, "--status", "dead")
    assert (row["entity_id"], row["result"], other) == (story, {"sent": 0}, [])
    shown = terminal.run("effect", "show", row["id"])
    assert shown.code == 0
    assert f"notice of story/{story} is done" in shown.out
    assert "asked for by block of ann" in shown.out
    assert "tells no outcome; 1 attempt, token 1" in shown.out
    again = terminal.run("effect", "retry", row["id"], "--by", "ann", "--reason", "why not")
    assert (again.code, "is done; only a dead one can be tried again" in again.said) == (2, True)


def test_an_unknown_effect_is_refused(terminal: Terminal) -> None:
    said = terminal.run("effect", "show", "S-1")
    assert (said.code, "'S-1' is no id of an effect; `interlock effect list` shows them" in said.said) == (2, True)
