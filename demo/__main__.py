"""`python -m demo [replay FILE]`: see it all once, or drive a file of pull requests through an installation."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from demo import tour
from demo.progress_bars import with_bars
from demo.replay import REVIEWER
from interlock.cli import main as command_line
from interlock.cli.lib.output import AsJson, print_json, print_table
from interlock.workers.client.client import Client
from interlock.workers.telemetry import logs

SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "pull_requests.jsonl"

HELP = """Start everything in a directory of its own, drive 40 real pull requests through, show what happened, stop.

\b
Examples:
  python -m demo
  python -m demo replay examples/pull_requests.jsonl
"""
REPLAY_HELP = """Turn real pull requests into stories and reviews, and drive them through Celery to done and merged.

FILE has one JSON object a line: number, title, merged_by, merged_at, commits (author, at). What DATABASE_URL names
must be up. Interrupted, it resumes when run again; a second replay changes nothing.

\b
Examples:
  python -m demo replay examples/pull_requests.jsonl
  python -m demo replay pull_requests.jsonl --json
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.callback(invoke_without_command=True, help=HELP)
def show(
    ctx: typer.Context,
    file: Annotated[Path, typer.Option(help="JSON lines, one pull request each.")] = SAMPLE,
) -> None:
    """Show everything, where no command is named."""
    logs.configure(logging.WARNING)
    if ctx.invoked_subcommand is None:
        tour.show(file)


@app.command("replay", help=REPLAY_HELP)
def replay(
    file: Annotated[Path, typer.Argument(help="JSON lines, one pull request each.")],
    reviewer: Annotated[str, typer.Option(help="Who approves what its author merged.")] = REVIEWER,
    patience: Annotated[float, typer.Option(help="Give up when nothing moved for so many seconds.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Replay a file."""
    with Client() as client:
        done = with_bars(client, file, reviewer=reviewer, patience_seconds=patience, quiet=as_json)
    if as_json:
        print_json(done)
    else:
        print_table("replayed", [asdict(done)], asdict(done))


def main() -> None:
    """Run it, with the exit codes and the one-line errors of `interlock`."""
    command_line.main(app, "python -m demo")


if __name__ == "__main__":
    main()
