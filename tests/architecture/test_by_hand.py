"""Whoever acts by hand says who and why: each command that changes something takes `--by` and `--reason`.

A new command belongs to one of these lists; `tests/cli/test_cli_readers.py` lets those that only read try.
"""

import pytest

from tests.cli.walking import READERS, Words, every_command, options

EVERY = dict(every_command())
BOTH = {"--by", "--reason"}
# Why commands that change something do not take both.
WITHOUT_BOTH = {
    "starts or stops processes of this machine; changes no instance": ("up", "down", "metrics serve", "api serve"),
    "upgrades the schema, for which its own table and the definitions' keep when; changes no instance": ("migrate",),
    "`--by` is kept as `created_by`; what is made is nobody else's yet": (
        *("create", "supervise worker create", "job submit", "schedule create"),
    ),
    "`--by` is kept with the run; the plan says what it is for": ("run start", "run resume"),
    "takes `--by`; why is in `--data`, where the guards of a definition ask for it": ("fire",),
    "its token says who": ("mcp serve",),
    "the worker itself acts, under its own name or the token of its claim": (
        *("worker register", "worker heartbeat", "worker claim", "worker finish", "supervise worker heartbeat"),
    ),
    "does what a sweep does by itself, at once": ("archive run", "audit anchor", "audit export"),
    "works in a scratch schema, which it drops": ("audit rebuild",),
    "works in a worktree of its own, which it removes": ("regression find",),
    "restores into a temporary installation, which it removes": ("backup drill",),
    "fills an empty home, where nothing is that it could change": ("restore",),
    "writes a file, after an anchor as the sweep makes it": ("audit report",),
    "`--new` makes a key file, if there is none": ("audit key",),
    "writes files, and nothing in the database": (
        *("definitions lock", "definitions new", "definitions export"),
        *("compensation plan", "patch plan", "backup take"),
    ),
}
EXCEPTED = {tuple(command.split()) for commands in WITHOUT_BOTH.values() for command in commands}
TELLS = "tells what is so; a reason is welcome"
# Commands that take both, and need no reason: why not.
REASON_OPTIONAL = {
    ("worker", "shutdown"): "a worker itself may leave without a reason; an operator must give one",
    ("open",): "it is for whoever looks; a reason is welcome",
    ("token", "create"): "its role, projects and name say what for; a reason is welcome",
    **{("supervise", "worker", each): TELLS for each in ("start", "complete", "fail")},
    **{("job", each): TELLS for each in ("validate", "allocate", "succeed", "fail")},
}


def takes_both(words: Words) -> bool:
    return options(EVERY[words]) >= BOTH


def test_every_command_that_changes_something_takes_who_and_why_or_says_here_why_not() -> None:
    silent = {words for words in EVERY if not takes_both(words)} - READERS
    assert silent == EXCEPTED, "give it --by and --reason; a command that only reads belongs to READERS"


def test_no_command_is_on_two_lists_and_none_is_listed_that_is_gone() -> None:
    both = {words for words in EVERY if takes_both(words)}
    assert not READERS & EXCEPTED
    assert not (READERS | EXCEPTED) & both
    assert READERS | EXCEPTED | both == set(EVERY)


@pytest.mark.parametrize("words", sorted(words for words in EVERY if takes_both(words)), ids=" ".join)
def test_a_command_that_takes_both_needs_a_reason_and_has_an_example_with_one(words: Words) -> None:
    command = EVERY[words]
    (reason,) = (each for each in command.params if "--reason" in each.opts)
    assert reason.required is (words not in REASON_OPTIONAL)
    assert not reason.required or "--reason" in (command.help or "").partition("Example")[2]
