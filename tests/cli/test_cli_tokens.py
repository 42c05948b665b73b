"""`interlock token` at a terminal."""

import re

import pytest

from interlock.workers.access.tokens import FORM
from tests.cli.terminal import Terminal

WHY = ("--by", "ann", "--reason", "a test")


def test_a_token_is_printed_once_on_standard_output(terminal: Terminal, project: str) -> None:
    made = terminal.run("token", "create", "--role", "agent", "--name", "bot", "--project", "P", "--project", "Q", *WHY)
    assert made.code == 0
    assert FORM.fullmatch(made.out.strip())
    assert made.out.strip() not in made.err
    named = re.match(r"(bot#\d+): agent in P, Q, until ", made.err)
    assert named
    by_json = terminal.run("token", "create", "--role", "read-only", "--expires", "never", "--json", "--by", "ann").json
    assert FORM.fullmatch(by_json["token"])
    assert (by_json["projects"], by_json["expires_at"], by_json["reason"]) == ([project], None, "for a program")
    assert by_json["name"].startswith("read-only-")
    listed = terminal.run("token", "list", "--all")
    shown = terminal.run("history", f"api_token/{named[1]}", "--project", "interlock:governance")
    for each in (listed.said, shown.said):
        assert made.out.strip() not in each
        assert by_json["token"] not in each
    assert "P, Q" in listed.out
    (revoked,) = terminal.ok("token", "revoke", "bot", *WHY)["revoked"]
    assert (revoked["name"], revoked["state"]) == ("bot", "revoked")
    listed = [each["name"] for each in terminal.ok("token", "list", "--project", project) if each["projects"]]
    assert listed == [by_json["name"]]  # others' tokens are for all projects
    assert terminal.ok("token", "revoke", by_json["token_id"], *WHY)["revoked"][0]["role"] == "read-only"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--role", "agent", "--name", "ann"), "ann is an operator"),
        (("--role", "admin", "--name", "bob"), "bob is not an operator"),
        (("--role", "agent", "--project", "P", "--all-projects"), "not both"),
        (("--role", "agent", "--expires", "soon"), "--expires"),
        (("--role", "root"), "root"),
    ],
)
def test_what_is_no_token_is_refused(terminal: Terminal, words: tuple[str, ...], why: str) -> None:
    refused = terminal.run("token", "create", *words, *WHY)
    assert refused.code == 2
    assert why in refused.said


def test_revoking_what_is_not_there_is_refused(terminal: Terminal) -> None:
    refused = terminal.run("token", "revoke", "nobody", *WHY)
    assert (refused.code, "interlock token list" in refused.said) == (2, True)
