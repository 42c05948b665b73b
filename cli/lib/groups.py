"""Groups of commands: their default command (`interlock run FILE` means `run start FILE`), and options of their own."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup


class DefaultCommand(TyperGroup):
    """A group that runs its command `start` if the first argument is neither a command nor an option of the group."""

    default = "start"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command if the arguments name none."""
        own = {name for option in self.get_params(ctx) for name in option.opts}
        if args and args[0] not in self.commands and args[0] not in own:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def instead(name: str, show: Callable[[], None], message: str) -> Any:
    """An option of a group that prints something instead of running a command."""

    def shown(wanted: bool) -> None:
        if wanted:
            show()
            raise typer.Exit

    return typer.Option(name, is_eager=True, callback=shown, help=message)
