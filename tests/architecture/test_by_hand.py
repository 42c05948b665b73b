"""Whoever acts by hand says who and why: each command that changes something takes `--by` and `--reason`.

A new command belongs to one of these lists; `tests/cli/test_cli_readers.py` lets those that only read try.
"""

import pytest

from tests.cli.walking import READERS, Words, every_command, options

EVERY = dict(every_command())
BOTH = {"--by", "--reason"}
BIRTH = "`--by` is kept as `created_by`; what is made is nobody else's yet"
SUBMISSION = "`--by` is kept with the run; the plan says what it is for"
MACHINE = "starts or stops processes of this machine; changes no instance"
ITSELF = "the worker itself acts, under its own name or the token of its claim"
SWEEP = "does what a sweep does by itself, at once"
FILE = "writes files, and nothing in the database"
# Commands that change something and do not take both: why not.
WITHOUT_BOTH = {
    ("up",): MACHINE,
    ("down",): MACHINE,
    ("metrics", "serve"): MACHINE,
    ("api", "serve"): MACHINE,
    ("migrate",): "upgrades the schema, for which its own table and the definitions' keep when; changes no instance",
    ("create",): BIRTH,
    ("supervise", "worker", "create"): BIRTH,
    ("job", "submit"): BIRTH,
    ("schedule", "create"): BIRTH,
    ("run", "start"): SUBMISSION,
    ("run", "resume"): SUBMISSION,
    ("fire",): "takes `--by`; why is in `--data`, where the guards of a definition ask for it",
    ("worker", "register"): ITSELF,
    ("mcp", "serve"): "its token says who",
    ("worker", "heartbeat"): ITSELF,
    ("supervise", "worker", "heartbeat"): ITSELF,
    ("worker", "claim"): ITSELF,
    ("worker", "finish"): ITSELF,
    ("archive", "run"): SWEEP,
    ("audit", "anchor"): SWEEP,
    ("audit", "export"): SWEEP,
    ("audit", "rebuild"): "works in a scratch schema, which it drops",
    ("audit", "report"): "writes a file, after an anchor as the sweep makes it",
    ("audit", "key"): "`--new` makes a key file, if there is none",
    ("definitions", "lock"): FILE,
    ("definitions", "new"): FILE,
    ("definitions", "export"): FILE,
    ("compensation", "plan"): FILE,
    ("patch", "plan"): FILE,
    ("regression", "find"): "works in a worktree of its own, which it removes",
    ("backup", "take"): FILE,
    ("backup", "drill"): "restores into a temporary installation, which it removes",
    ("restore",): "fills an empty home, where nothing is that it could change",
}
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
    assert silent == set(WITHOUT_BOTH), "give it --by and --reason; a command that only reads belongs to READERS"


def test_no_command_is_on_two_lists_and_none_is_listed_that_is_gone() -> None:
    both = {words for words in EVERY if takes_both(words)}
    assert READERS & set(WITHOUT_BOTH) == set()
    assert (READERS | set(WITHOUT_BOTH)) & both == set()
    assert READERS | set(WITHOUT_BOTH) | both == set(EVERY)


@pytest.mark.parametrize("words", sorted(words for words in EVERY if takes_both(words)), ids=" ".join)
def test_a_command_that_takes_both_needs_a_reason_and_has_an_example_with_one(words: Words) -> None:
    command = EVERY[words]
    (reason,) = (each for each in command.params if "--reason" in each.opts)
    assert reason.required is (words not in REASON_OPTIONAL)
    assert not reason.required or "--reason" in (command.help or "").partition("Example")[2]
