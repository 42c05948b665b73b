"""Every command there is, and words it could be said with."""

from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

from interlock.cli.index import MODULES, loaded

NOBODY = "no-such-thing"
PROJECT = "7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11"
KINDS = {UUID: PROJECT, int: "1", float: "1"}
Words = tuple[str, ...]
READERS: set[Words] = {  # they change nothing
    ("status",), ("show",), ("history",), ("list",), ("watch",), ("runs",), ("doctor",), ("stuck",), ("dead",),
    ("completion",), ("api", "document"), ("mcp", "install"),
    *(("definitions", each) for each in ("diff", "deprecated", "narrowed", "list", "show", "schema")),
    *(("definitions", each) for each in ("check", "graph")),
    *(("run", each) for each in ("check", "watch", "show", "logs")),
    *(("worker", each) for each in ("list", "show")),
    *(("patch", each) for each in ("list", "quarantined", "show")),
    *(("quarantine", each) for each in ("list", "show")),
    ("phase", "list"), ("budget", "list"),
    *((name, each) for name in ("schedule", "limit", "subscription", "effect", "brake") for each in ("list", "show")),
    *(("breaker", each) for each in ("list", "show")),
    *(("supervise", "worker", each) for each in ("list", "show")),
    *(("job", each) for each in ("list", "show", "tree")),
    *(("playbook", each) for each in ("list", "show")),
    ("override", "list"), ("operator", "list"), ("token", "list"), ("metrics", "show"), ("backup", "list"),
    *(("audit", each) for each in ("verify", "validate", "verify-report", "checkpoint")),
    *(("archive", each) for each in ("list", "show")),
}  # fmt: skip
LASTING: set[Words] = {("up",), ("down",), ("metrics", "serve"), ("api", "serve"), ("definitions", "lock")}
"""What starts, stops, serves or writes."""


@cache
def every_command() -> tuple[tuple[Words, Any], ...]:
    """(its words, itself) of every command that is no group. Making them takes 0.2 s, and five modules need them."""
    return tuple(each for name in MODULES for each in _below((name,), loaded(name)))


def _below(words: Words, command: Any) -> Iterator[tuple[Words, Any]]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _below((*words, name), each)
    else:
        yield words, command


def options(command: Any) -> set[str]:
    """The names of all its options."""
    return {name for each in command.params for name in each.opts}


def said(words: Words, command: Any, file: Path) -> Words:
    """A whole command line: what it cannot do without, and of that nothing exists; `file` where it reads one."""
    needed = [each for each in command.params if each.required or each.param_type_name == "argument"]
    arguments = [_value(each, file) for each in needed if each.param_type_name == "argument"]
    flags = [
        word for each in needed if each.param_type_name != "argument" for word in (each.opts[0], _value(each, file))
    ]
    return (*words, *flags, *arguments)


def _value(parameter: Any, file: Path) -> str:
    wanted = parameter.type_descriptor.annotation
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return str(next(iter(wanted)).value)
    if get_origin(wanted) is Literal:
        return str(get_args(wanted)[0])
    return str(file) if wanted in (Path, list[Path]) else KINDS.get(wanted, NOBODY)
