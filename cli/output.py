"""How answers look: JSON for programs, tables for people, one line for an error, and the exit code that tells why."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

REFUSED, FAILED = 2, 1

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]

WIDTH = None if sys.stdout.isatty() else 120  # a pipe has no width; 80 would fold every table

console = Console(width=WIDTH)
errors = Console(stderr=True, width=WIDTH)

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


def print_json(value: object, *, lines: bool = False) -> None:
    """Print a value as JSON on standard output; with `lines`, on one line, at once, for whoever follows."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False, indent=None if lines else 2) + "\n")
    if lines:
        sys.stdout.flush()


def print_table(title: str, rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
    """Print rows under the columns named."""
    table = Table(title=title, title_justify="left", header_style="bold")
    names = list(columns)
    for name in names:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in names))
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, Mapping):
        return escape(str(value.get("message") or json.dumps(value, default=_plain, ensure_ascii=False)))
    colour = COLOURS.get(str(value))
    return f"[{colour}]{value}[/]" if colour else escape(str(value))


def fail(kind: str, message: str, code: int, *, as_json: bool) -> int:
    """Print an error, for whoever reads; the exit code."""
    if as_json:
        print_json({"error": kind, "message": message, "exit_code": code})
    else:
        errors.print(
            f"[bold red]{'refused' if code == REFUSED else 'failed'}:[/] {escape(message)}",
            highlight=False,
            soft_wrap=True,
        )
    return code


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
