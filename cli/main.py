"""`interlock`: run a command, and turn what goes wrong into one line and an exit code.

0: done. 1: failed (the database is down, a server did not start). 2: refused (illegal, unknown, malformed).
"""

# ruff: noqa: PLC0415 - `interlock --help` answers at once: what commands and faults need is imported where it is used
import os
import sys
from typing import Annotated

import typer

from cli.commands import Contents
from cli.output import FAILED, REFUSED, fail
from workflows.errors import InterlockError

HELP = """Durable state machines for software agents, on Celery and PostgreSQL.

No illegal move, no lost trigger, no rewritten history. Start with `interlock up --detach`.
"""

app = typer.Typer(
    cls=Contents,
    name="interlock",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"interlock {version('interlock')}")
        raise typer.Exit


@app.callback()
def begin(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """What every command begins with."""
    import logging

    from workers import logs

    logs.configure(logging.WARNING)  # to standard error: standard output is for answers


def main() -> None:
    """Run the command line."""
    sys.exit(run())


def run() -> int:
    """Run the command line; its exit code."""
    try:
        code = _answered()
        sys.stdout.flush()  # here, where a full disk can still be told
        return code
    except KeyboardInterrupt:
        return 130  # as shells report SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads any more: `| head -1`
        return FAILED
    except Exception as error:
        from cli import faults

        if (found := faults.told(error)) is None:
            raise
        refused = isinstance(error, InterlockError) and error.refused
        return fail(*found, REFUSED if refused else FAILED, as_json="--json" in sys.argv)


def _answered() -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


if __name__ == "__main__":
    main()
