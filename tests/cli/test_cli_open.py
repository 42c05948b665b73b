"""`interlock open` at a terminal: a link that signs in, and who may have one."""

import re

import pytest

from interlock.workers.access.tokens import FORM
from tests.cli.terminal import Terminal

WHY = ("--by", "ann", "--reason", "a test")
AT = ("--url", "https://interlock.example.org/")


def test_a_link_is_printed_once_with_its_secret_behind_the_hash(terminal: Terminal) -> None:
    made = terminal.run("open", *AT, *WHY)
    assert made.code == 0
    address, _, secret = made.out.strip().partition("#")
    assert address == "https://interlock.example.org/sign-in"
    assert FORM.fullmatch(secret)
    assert secret.startswith("ill_")
    assert secret not in made.err
    assert "signs in ann once, within 5 min, for 12 h at most" in made.err
    listed = terminal.run("token", "list", "--all").out
    assert secret not in listed


def test_a_link_for_others_has_their_name_role_and_projects(terminal: Terminal) -> None:
    by_json = terminal.run("open", *AT, "--role", "read-only", "--in", "P", "--json", *WHY).json
    assert re.fullmatch(r"read-only-[0-9a-f]{6}", by_json["name"])
    (row,) = [each for each in terminal.run("token", "list", "--json").json if each["name"] == by_json["name"]]
    assert (row["role"], row["projects"], row["issued_by"]) == ("read-only", ["P"], "ann")
    assert row["expires_at"] == by_json["expires_at"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (("--by", "nobody"), "not an operator"),
        (("--by", "ann", "--name", "bob", "--role", "operator"), "not an operator"),
    ],
    ids=str,
)
def test_who_is_no_operator_gets_no_operators_link(terminal: Terminal, said: tuple[str, ...], why: str) -> None:
    refused = terminal.run("open", *AT, *said)
    assert (refused.code, refused.out) == (2, "")
    assert why in refused.err
