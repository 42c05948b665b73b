"""A group of commands, one of which is meant where none is named: `interlock run FILE` means `run start FILE`."""

from typing import Any

from typer.core import TyperGroup


class DefaultCommand(TyperGroup):
    """A group whose command `start` is meant by whatever is neither a command nor an option of the group itself."""

    default = "start"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default command where the words do not."""
        own = {name for option in self.get_params(ctx) for name in option.opts}
        if args and args[0] not in self.commands and args[0] not in own:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
