"""`interlock completion`: the script by which a shell completes commands, options, names and triggers."""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from interlock.cli import COMPLETING
from interlock.cli.lib.output import stream

NAME = "interlock"


class Shell(StrEnum):
    """The shells whose script typer has."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]) -> None:
    """Print a script that makes SHELL complete `interlock` on the Tab key.

    Commands, options, types, names of instances and limits, and legal triggers are completed. Names come from the
    installation that INTERLOCK_HOME or DATABASE_URL names at that moment; where none answers, they are not, nor from a
    home that is another user's or that others can write to. A name with blanks, or characters that mean something to a
    shell, is not offered: write it in quotes.

    \b
    Examples:
      source <(interlock completion bash)          in ~/.bashrc
      source <(interlock completion zsh)           in ~/.zshrc, after compinit
      interlock completion fish > ~/.config/fish/completions/interlock.fish
    """
    stream(get_completion_script(prog_name=NAME, complete_var=COMPLETING, shell=shell.value) + "\n")
