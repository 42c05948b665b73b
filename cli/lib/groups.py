"""A group of commands with a default command: `interlock run FILE` means `run start FILE`."""

from typing import Any

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
