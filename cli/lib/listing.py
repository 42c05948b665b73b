"""Commands that list rows of the database: each says what it reads and shows, what they share is said once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from sqlalchemy import Connection

from interlock.cli.lib.options import sharing
from interlock.cli.lib.output import AsJson, Limit, print_json
from interlock.cli.lib.projects import OnlyProject, print_list
from interlock.db.connection import transaction
from interlock.db.core.portions import Portion
from interlock.workers.client.client import Client
from interlock.workflows.output.counts import number_of

Row = Mapping[Any, Any]
Asked = tuple[str | None, int, bool]  # the project, how many rows, and whether as JSON


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list is read with: of which project (None: of all), and how many rows at most."""

    client: Client
    connection: Connection
    project: str | None
    limit: int

    @property
    def portion(self) -> Portion:
        """The same, for queries that take several projects."""
        return Portion(None if self.project is None else [self.project], self.limit)


def lists(
    noun: str,
    columns: Sequence[str],
    *,
    plural: str = "",
    limit: int = 0,
    lines: Callable[[Row], Iterable[Row]] = lambda row: [row],
) -> Callable[[Callable[..., Iterable[Row]]], Callable[..., None]]:
    """Turn a function that reads rows into a command with `--project`, `--limit` and `--json`.

    The function gets a `Listing` as `asked`, and the values of its own options.

    Args:
        noun: what one of them is called; `plural`: several.
        columns: of the table.
        limit: the default of `--limit`; 0: there is no such option.
        lines: a row's lines in the table.
    """

    def some(project: OnlyProject = None, limit: Limit = limit, as_json: AsJson = False) -> Asked:
        return project, limit, as_json

    def every(project: OnlyProject = None, as_json: AsJson = False) -> Asked:
        return project, 0, as_json

    def run(read: Callable[..., Iterable[Row]], asked: Asked, own: dict[str, Any]) -> None:
        project, most, as_json = asked
        with Client() as client, transaction(client.runtime.database) as connection:
            found = [dict(row) for row in read(Listing(client, connection, project, most), **own)]
        if not print_json(found, as_json):
            shown = [line for row in found for line in lines(row)]
            print_list(number_of(len(found), noun, plural), shown, columns, project)

    return sharing(some if limit else every, run, given="asked")


def lists_all(
    app: typer.Typer,
    noun: str,
    message: str,
    read: Callable[..., Iterable[Row]],
    columns: Sequence[str],
    *,
    lines: Callable[[Row], Iterable[Row]] = lambda row: [row],
) -> None:
    """Add the command `list` that prints all there are of one project or of all.

    Args:
        app: the group, `interlock NOUN`.
        message: its help text.
        read: gets a connection and, by name, `project`; returns the rows.
        noun, columns, lines: as for `lists`.
    """

    @app.command("list", help=f"{message}\n\n\b\nExample:\n  interlock {noun} list")
    @lists(noun, columns, lines=lines)
    def list_(asked: Listing) -> Iterable[Row]:
        return read(asked.connection, project=asked.project)
