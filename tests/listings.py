"""The listings of a page: files that it writes, and commands that it types into a shell, with what they print."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class File:
    """A listing with a title: a file of that name."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A line after `$`, and the lines that it is to print; `…` stands for anything."""

    line: str
    printed: str

    def is_printed_by(self, output: str) -> bool:
        """Whether an output is as the page says."""
        lines = [f"(?:{_pattern(line)}\n)" if line != "…" else "(?:.*\n)*" for line in self.printed.splitlines()]
        return re.fullmatch("".join(lines), output) is not None


def listings(page: str) -> Iterator[File | Command]:
    """A page's files and commands, in order. Listings of other kinds, and files without a name, are only shown."""
    for language, title, text in FENCE.findall(page):
        if title:
            yield File(title, text)
        elif language == "console":
            for command in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                yield Command(*command)


def _pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…")))
