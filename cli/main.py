"""`interlock`: run a command, and turn an error into one line and an exit code.

0: done. 1: failed (the database is down, a server did not start). 2: refused (illegal, unknown, malformed).
"""

# ruff: noqa: PLC0415 - `interlock --help` answers at once: what commands and faults need is imported where it is used
import gc
import os
import sys
from typing import Annotated

import typer
from typer._click.exceptions import ClickException, NoArgsIsHelpError

from interlock.cli import COMPLETING
from interlock.cli.index import Contents
from interlock.cli.lib.groups import instead
from interlock.cli.lib.output import FAILED, REFUSED, block, errors, fail
from interlock.workflows.errors import InterlockError
from interlock.workflows.output.escaping import shown

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


def _version() -> None:
    from importlib.metadata import version

    typer.echo(f"interlock {version('interlock')}")


@app.callback()
def begin(
    version: Annotated[bool, instead("--version", _version, "Show the version and exit.")] = False,
) -> None:
    """Runs before every command."""
    import logging

    from interlock.workers.telemetry import logs

    logs.configure(logging.WARNING)  # to standard error: standard output is for answers


def main(commands: typer.Typer = app, called: str = "interlock") -> None:
    """Run the command line of `commands` under the name `called`. Files it creates are readable by its user only."""
    gc.set_threshold(300_000)  # imports make 150,000 to 230,000 objects and no garbage: looking for it took a tenth
    os.umask(0o077)
    if COMPLETING in os.environ:
        _begin_completing()
    code = run(commands, called)
    gc.freeze()  # or the interpreter, as it ends, would search all of them several times: 0.3 s
    sys.exit(code)


def _begin_completing() -> None:
    """Make typer know the shells; log nothing into a command line that somebody is typing."""
    import logging

    from typer._completion_classes import completion_init

    from interlock.workers.telemetry import logs

    completion_init()
    logs.configure(logging.CRITICAL)


def run(commands: typer.Typer = app, called: str = "interlock") -> int:
    """Run a command line; returns its exit code."""
    try:
        code = _answered(commands, called)
        sys.stdout.flush()  # here, where an error such as a full disk can still be reported
        return code
    except KeyboardInterrupt:
        return 130  # as shells report SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone: `| head -1`
        return FAILED
    except Exception as error:
        from interlock.cli.lib import errors as faults

        if (found := faults.describe(error)) is None:
            raise
        refused = isinstance(error, InterlockError) and error.refused
        return fail(*found, REFUSED if refused else FAILED, as_json="--json" in sys.argv)


def _answered(commands: typer.Typer, called: str) -> int:
    try:
        code = commands(prog_name=called, standalone_mode=False)  # typer would print the arguments unescaped
    except SystemExit as end:
        code = end.code
    except ClickException as wrong:
        return _misused(wrong)
    except typer.Abort:
        return fail("Aborted", "aborted; nothing was done", FAILED, as_json="--json" in sys.argv)
    return code if isinstance(code, int) else 0


def _misused(wrong: ClickException) -> int:
    """Print why the arguments are not a valid command; returns the exit code."""
    if isinstance(wrong, NoArgsIsHelpError):  # the help is printed already
        return wrong.exit_code
    said = wrong.format_message().replace(": Value error, ", ": ", 1)  # pydantic's words before typer's own
    if "--json" in sys.argv:
        return fail(type(wrong).__name__, said, wrong.exit_code, as_json=True)
    where, hint = getattr(wrong, "ctx", None), ""
    if where is not None:
        block(where.get_usage(), to=errors)
        hint = f" (`{where.command_path} --help`)"
    return fail("", shown(said + hint), wrong.exit_code, as_json=False)


if __name__ == "__main__":
    main()
