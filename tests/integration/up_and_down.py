"""The commands `up`, `down` and `status` alone, without migrations, which are another test's subject."""

import sys

import typer

from interlock.cli.server import up_down
from interlock.workflows.errors import InterlockError


def main() -> None:
    """Run the command of `sys.argv`."""
    up_down.PREPARE = (sys.executable, "-c", "print('prepared')")
    app = typer.Typer()
    for command in (up_down.up, up_down.down, up_down.status):
        app.command()(command)
    try:
        app()
    except InterlockError as fault:
        sys.stderr.write(f"{type(fault).__name__}: {fault}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
