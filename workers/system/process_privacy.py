"""Hides processes that hold passwords and keys (memory, environment) from others of the same user (Linux).

The environment then cannot show which home such a process belongs to, so its command line does, which stays readable.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from interlock.workers.settings import Settings
from interlock.workers.system import process_tree

SUPERVISED = "INTERLOCK_SUPERVISED"  # in the environment of every part: the home it belongs to
# Python ignores a -X that it does not know.
_OPTION, PART, SUPERVISOR = "-X", "interlock=", "interlock-supervisor="


def hide(settings: Settings) -> None:
    """Let no process of the same user read this process's memory or environment, or trace it; likewise its forks.

    root still can. It lasts until another program is executed.
    """
    if not settings.dumpable:
        process_tree.set_dumpable(False)


def marked(home: Path | str, as_what: str = PART) -> tuple[str, str]:
    """Options for Python that put into the command line which home its process belongs to, or supervises."""
    return _OPTION, f"{as_what}{home}"


def marked_home(words: Sequence[str], as_what: str = PART) -> str | None:
    """The home that a command line names; None if it names none."""
    named = (word for option, word in pairwise(words) if option == _OPTION and word.startswith(as_what))
    return next((word.removeprefix(as_what) for word in named), None)
