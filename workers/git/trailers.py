"""Trailers: metadata in a commit message, by which a retry finds the commit instead of making it twice."""

import re
from collections.abc import Mapping

from interlock.workers.git.command import Git
from interlock.workflows.errors import BadInput

PATCH = "Interlock-Patch"
WORKSTREAM = "Interlock-Workstream"
REVERT = "Interlock-Revert"

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*\Z")


def message(words: str, trailers: Mapping[str, str]) -> bytes:
    """A commit message that ends with its trailers, in a paragraph of their own: the text above cannot fake one.

    Raises:
        BadInput: a trailer that is not a single line, or a message with a NUL.
    """
    lines = []
    for key, value in trailers.items():
        if not KEY.match(key) or not value.strip() or not value.isprintable():
            raise BadInput(f"trailer {key!r}: {value!r} is not one line of the form 'Key: value'")
        lines.append(f"{key}: {value.strip()}")
    if "\0" in words:
        raise BadInput("a commit message cannot hold a NUL")
    return f"{words.strip() or 'No message'}\n\n{chr(10).join(lines)}\n".encode(errors="surrogateescape")


def find(git: Git, key: str, value: str, *revisions: str) -> str | None:
    """The sha of the newest commit in `revisions` (as `git log` takes them) that has this trailer, or None."""
    answer = git.line(
        "log",
        f"--format=%H %(trailers:key={key},valueonly,separator=%x2C)",
        "--fixed-strings",
        f"--grep={key}: {value}",
        *revisions,
        "--",
    )
    for line in answer.splitlines():
        sha, _, carried = line.partition(" ")
        if carried == value:
            return sha
    return None
