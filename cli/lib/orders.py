"""Commands that carry out an operator's order: its options, and how what came of it is shown, are said once."""

from collections.abc import Callable, Mapping
from typing import Any

from interlock.cli.lib.options import By, Reason, sharing
from interlock.cli.lib.output import AsJson, print_json
from interlock.workers.client.client import Client
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime

Row = Mapping[str, Any]
Order = Callable[[Runtime], Row]


def ordered(say_done: Callable[[Row], None]) -> Callable[[Callable[..., Order]], Callable[..., None]]:
    """Make a command of a function that takes an `OverrideOrder` and its own arguments, and returns what to do.

    The command has --by, --reason and --json, too.

    Args:
        say_done: tells people of the row that came of it; --json prints that row.
    """

    def options(by: By, reason: Reason, as_json: AsJson = False) -> tuple[OverrideOrder, bool]:
        return OverrideOrder(by, reason), as_json

    def run(order_of: Callable[..., Order], chosen: tuple[OverrideOrder, bool], own: dict[str, Any]) -> None:
        order, as_json = chosen
        with Client() as client:
            row = order_of(order, **own)(client.runtime)
        if not print_json(dict(row), as_json):
            say_done(row)

    return sharing(options, run)
