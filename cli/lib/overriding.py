"""What all overrides have in common: options, a confirmation at a terminal, and how the result is shown."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.options import By, IfVersion, Reason, sharing
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.workers.client.client import Client
from interlock.workers.overrides.transaction import Done, OverrideOrder
from interlock.workers.runtime import Runtime

Ref = Annotated[
    str,
    typer.Argument(metavar="REF", help="The instance: NAME, TYPE/NAME or UUID.", autocompletion=completing.named()),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

Act = Callable[[Runtime, OverrideOrder], Done]


@dataclass(frozen=True)
class OverrideOptions:
    """The options that every override has."""

    by: By
    reason: Reason
    dry_run: DryRun = False
    if_version: IfVersion = None
    yes: Yes = False
    as_json: AsJson = False

    def order(self, *, dry_run: bool) -> OverrideOrder:
        """Who wants it, why, and at which version."""
        return OverrideOrder(self.by, self.reason, dry_run, self.if_version)


def carried_out(make: Callable[..., Act], wanted: OverrideOptions, arguments: dict[str, Any]) -> None:
    """Carry out an override and print it; at a terminal, first show what would happen and ask for confirmation."""
    act = make(**arguments)
    with Client() as client:
        if sys.stdin.isatty() and not (wanted.dry_run or wanted.yes or wanted.as_json):
            _print_result(act(client.runtime, wanted.order(dry_run=True)))
            typer.confirm("Do it?", abort=True)
        done = act(client.runtime, wanted.order(dry_run=wanted.dry_run))
    if not print_json(asdict(done) | {"by": wanted.by, "reason": wanted.reason}, wanted.as_json):
        _print_result(done)


overriding = sharing(OverrideOptions, carried_out)


def _print_result(done: Done) -> None:
    verb = ("would move", "yellow") if done.dry_run else ("moved", "green")
    for move in done.moves:
        over = f", passing over {', '.join(move.passed_over)}" if move.passed_over else ""
        way = f" {move.instance}: {move.from_state} → "
        say(verb, way, (move.to_state, "bold"), f" ({move.trigger}){over}")
    for line in done.notes:
        say(f"  {line}")
    if done.follows:
        say("consequences:")
    for line in done.follows:
        say(f"  {line}")
    if done.dry_run:
        say(("dry run", "yellow"), ": nothing was changed")
    elif not (done.moves or done.notes):
        say("nothing to do")
