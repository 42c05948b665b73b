"""Commands suggested to people, ready to paste. All words are quoted, so that a shell runs nothing else."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType


class Verbatim(str):
    """A word that is not quoted, so that the shell expands it: `"$(id -un)"`. Never built from data."""

    __slots__ = ()


class OfferedCommand(str):
    """A command, and what it was made of, for whoever carries it out without a shell.

    Attributes:
        words: its own words, then its arguments.
        options: name -> value, without those that were left out.
    """

    words: tuple[str, ...] = ()
    options: Mapping[str, object] = MappingProxyType({})


ME = Verbatim('"$(id -un)"')  # $USER is empty in containers and under cron


def offered(*words: object, **options: object) -> OfferedCommand:
    """A command `interlock WORDS --OPTION VALUE` with each word quoted; words that begin with `-` are safe, too.

    Args:
        words: the command's own words, then its arguments.
        options: `by="ann"` gives `--by ann`, `now=True` gives `--now`, a list repeats the option; None and False are
            left out.
    """
    texts = [str(each) if not isinstance(each, Verbatim) else each for each in words]
    flags = [word for name, value in options.items() for word in _option(name.replace("_", "-"), value)]
    dashed = next((place for place, word in enumerate(texts) if word.startswith("-")), None)
    ordered = [*texts, *flags] if dashed is None else [*texts[:dashed], *flags, "--", *texts[dashed:]]
    made = OfferedCommand(" ".join(["interlock", *map(_shell_quoted, ordered)]))
    made.words, made.options = tuple(texts), {name: value for name, value in options.items() if value is not None}
    return made


def with_setting(name: str, value: object, command: str) -> str:
    """A command with an environment variable set for it: `INTERLOCK_HOME=/x interlock up`."""
    return f"{name}={shlex.quote(str(value))} {command}"


def _option(name: str, value: object) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, list):
        return [word for each in value for word in _option(name, each)]
    if isinstance(value, Verbatim):
        return [f"--{name}", value]
    return [f"--{name}={value}"] if str(value).startswith("-") else [f"--{name}", str(value)]


def _shell_quoted(word: str) -> str:
    return word if isinstance(word, Verbatim) else shlex.quote(word)
