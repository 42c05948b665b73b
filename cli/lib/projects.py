"""`--project`: the project in which a command looks up names, or that a list is limited to."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from shlex import quote
from typing import Annotated, Any

import typer
from typer._click.globals import get_current_context
from typer.main import get_command

from interlock.cli.lib.output import print_table
from interlock.workers.settings import settings
from interlock.workflows.errors import BadInput
from interlock.workflows.input import names

# The parameters that make a command one on a project's instances.
NAMING = {"ref", "entity_id", "tool", "based_on", "only", "gate", "priority", "workspace", "description", "limited"}
NAMING |= {"actor", "brake"}  # of `budget` and `brake`
# In click's context: the project without `--project`, and the one that it names.
USUAL, NAMED = "interlock.project", "interlock.project.named"


def _checked(value: str | None) -> str | None:
    return None if value is None else names.project(value, "--project")


def _use(context: typer.Context, value: str | None) -> None:
    """Set the project in this process's settings."""
    if (project := _checked(value)) is not None:
        with suppress(BadInput):  # what the environment says does not matter then
            context.meta[USUAL] = settings().project
        os.environ["INTERLOCK_PROJECT"] = context.meta[NAMED] = project
        settings.cache_clear()


def use_none() -> None:
    """Drop the project from this process's settings, for a command on the whole installation.

    An INTERLOCK_PROJECT that is not valid does not matter to it then.
    """
    os.environ.pop("INTERLOCK_PROJECT", None)
    settings.cache_clear()


OnlyProject = Annotated[str | None, typer.Option("--project", callback=_checked, help="Only this project.")]
_HELP = "The project to look names up in and to create in. [INTERLOCK_PROJECT, else default]"
_Used = Annotated[str | None, typer.Option("--project", callback=_use, is_eager=True, expose_value=False, help=_HELP)]


def add_project(command: Any) -> Any:
    """Give `--project` to a command that names instances, or to those of a group; returns the command or group."""
    for each in getattr(command, "commands", {}).values():
        add_project(each)
    if NAMING & {each.name for each in command.params}:
        command.params.insert(len(command.params) - 1, _option())  # before --json
    return command


def _option() -> Any:
    app = typer.Typer()

    @app.command()
    def _(project: _Used = None) -> None: ...

    return get_command(app).params[0]


def named() -> str | None:
    """The project that `--project` names; None without it."""
    context = get_current_context(silent=True)
    return context.meta.get(NAMED) if context else None


def require_same(project: str | None, what: str) -> None:
    """Refuse a `--project` other than the project that is written in a file.

    Args:
        project: the file's; None: it names none.
        what: the file, for the message.

    Raises:
        BadInput: they differ.
    """
    if project is not None and (other := named()) not in (None, project):
        raise BadInput(
            f"{what} is of project {quote(project)}, not {quote(str(other))}: leave --project out, or change its "
            "`project:`"
        )


def print_list(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], project: str | None) -> None:
    """Print a list as a table.

    Args:
        title: what is listed; `in project …` is added to it.
        rows: the list; each with its project.
        columns: of them; `project` comes before them if a row is not of the project in use.
        project: the only project that was asked for; None: all were.
    """
    elsewhere = any(row["project"] != settings().project for row in rows)
    print_table(f"{title}{where_asked(project, rows)}", rows, ("project", *columns) if elsewhere else columns)


def where_asked(project: str | None, rows: Collection[object]) -> str:
    """Words after what is listed: the project that was asked for; or, if there is nothing, that all were."""
    if project is not None:
        return f" in project {quote(project)}"
    return "" if rows else " in any project"


def unusual(project: str) -> str | None:
    """The value of `--project` for a suggested command; None if the command uses that project by default."""
    context = get_current_context(silent=True)
    usual = context.meta.get(USUAL) if context else None
    return None if project == (usual or settings().project) else project
