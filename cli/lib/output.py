"""The output of commands: JSON for programs, tables for people, one line and an exit code for an error.

All commands print through this module, so that no name or text from elsewhere can control the terminal. Nothing is
interpreted as markup, invisible and control characters are escaped, and a style is passed beside its text:
`say(("ann", "bold"), " is back")`.
"""

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from interlock.cli.lib.tables import drawn
from interlock.workflows.output.escaping import json_text, plain, shown, shown_lines

REFUSED, FAILED = 2, 1

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")]
NewestLimit = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows, the newest.")]
Words = str | tuple[object, str]  # a text, or a value with its style
PIPE_WIDTH = 120  # a pipe has no width; the default of 80 would wrap every table


class Screen(Console):
    """A console that interprets no markup and escapes control characters in everything it renders."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False, width: int | None = None) -> None:
        if width is None and not sys.stdout.isatty():
            width = PIPE_WIDTH
        super().__init__(stderr=stderr, quiet=quiet, width=width, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, with control characters of texts escaped; rich's own control segments stay."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(shown_lines(text), style)


console = Screen()
errors = Screen(stderr=True)


def begin() -> None:
    """Set both consoles up again, for the terminal and the environment that this process has now."""
    Screen.__init__(console)
    Screen.__init__(errors, stderr=True)


COLOURS = {
    "applied": "green",
    "ready": "green",
    "ok": "green",
    "rejected": "red",
    "dead": "bold red",
    "fail": "bold red",
    "waiting": "yellow",
    "scheduled": "yellow",
    "pending": "yellow",
    "warn": "yellow",
    "superseded": "dim",
}


def line(*words: Words) -> Text:
    """A text in one line; line breaks and control characters are escaped."""
    return Text.assemble(
        *((shown(each[0]), each[1]) if isinstance(each, tuple) else shown(each) for each in words if each)
    )


def say(*words: Words, to: Console = console) -> None:
    """Print one line, never wrapped."""
    to.print(line(*words), soft_wrap=True)


def block(text: object, *, to: Console = console) -> None:
    """Print a text of several lines, such as a diff or a command's output."""
    to.print(Text(shown_lines(text)), soft_wrap=True)


def stream(text: str) -> None:
    """Print a part of a long text, which may end within a line; whoever follows it sees it at once."""
    sys.stdout.write(shown_lines(text))
    sys.stdout.flush()


def picture(drawn: RenderableType, *, to: Console = console) -> None:
    """Print a tree or table that was built from `line`s."""
    to.print(drawn)


def print_json(value: object, as_json: bool = True, *, lines: bool = False) -> bool:
    """Print a value as JSON on standard output, if it is wanted; with `lines` on one line, for readers that follow.

    Returns:
        `as_json`, a command's `--json`: whether the command has printed all there is to print.
    """
    if as_json:
        sys.stdout.write(json_text(value, default=plain, indent=None if lines else 2) + "\n")
        if lines:
            sys.stdout.flush()
    return as_json


def print_table(title: str, rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """Print rows as a table with these columns; as lists of values where it is wider than the terminal."""
    names = list(columns)
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    made = drawn(line(title), [line(name.replace("_", " ")) for name in names], cells, console.width)
    console.print(made, soft_wrap=isinstance(made, Group))


def one_line(value: object) -> str:
    """A value as JSON in one line."""
    return json_text(value, default=plain)


def _cell(value: Any) -> Text:
    if value is None:
        return Text()
    if isinstance(value, datetime):
        return Text(value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3])
    if isinstance(value, Mapping):
        return line(str(value.get("message") or one_line(value)))
    return line((value, COLOURS.get(str(value), "")))


def fail(kind: str, message: str, code: int, *, as_json: bool) -> int:
    """Print an error, as JSON or as a line; returns the exit code."""
    if as_json:
        print_json({"error": kind, "message": message, "exit_code": code})
    else:
        began = ("refused:" if code == REFUSED else "failed:", "bold red")
        errors.print(Text.assemble(began, " ", shown_lines(message)), soft_wrap=True)
    return code
