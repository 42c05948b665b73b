"""What strangers can call is a door: it judges what it is given before it does anything, and is tried with HOSTILE."""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from interlock.workflows.input.arguments import judges_of
from tests.doors import found

ROOT = Path(__file__).parents[2]
REACHES = {"Runtime", "Client", "Engine"}  # what a function takes that reads or writes a database
INSIDE = {  # of those: what the command line gives nothing that anybody typed
    "first": "names of the settings, which it checks",
    "archive_ended": "a number of days, which its option bounds",
    "listening": "a port and a host of the settings",
    "survey": "thresholds of the settings",
    "copy_all": "directories and a command of the settings",
    "checkpoint": "a number, which its option bounds",
    "settle": "the id of a request that the command itself made",
    "make_report": "a REF, of which the lookup finds nothing if it is hostile, and numbers that options bound",
    "verify": "directories of the settings, and files that `tests/fuzz` tries",
    "read": "a file of pull requests, which `replay` reads too",
    "Watch": "the id of a run that was found",
    "lost": "lines of a journal or a stream, which may say anything: each is read by itself",
}


def offered() -> dict[str, Any]:
    """Name -> function or class of `workers`, of all that the command line imports from there or names in a module."""
    names: dict[str, Any] = {}
    for file in sorted((ROOT / "cli").rglob("*.py")):
        tree = ast.parse(file.read_text())
        said = {ast.unparse(node).partition(".")[::2] for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("interlock.workers"):
                module = importlib.import_module(str(node.module))
                for each in node.names:
                    one = getattr(module, each.name, None) or importlib.import_module(f"{node.module}.{each.name}")
                    inside = [name for alias, name in said if alias == (each.asname or each.name)]
                    found = {name: getattr(one, name, None) for name in inside} if inspect.ismodule(one) else {}
                    names |= found or {each.name: one}
    return {name: each for name, each in names.items() if callable(each)}


def takes_data(function: Any) -> bool:
    return bool(judges_of(inspect.unwrap(function)))


def reaches(function: Any) -> bool:
    said = {getattr(each.annotation, "__name__", "") for each in inspect.signature(function).parameters.values()}
    return bool(said & REACHES)


def test_what_the_command_line_offers_is_a_door() -> None:
    functions = {name: each for name, each in offered().items() if inspect.isfunction(each) and reaches(each)}
    assert len(functions) > 20
    closed = {
        name
        for name, each in functions.items()
        if takes_data(each) and not hasattr(each, "is_door") and name not in INSIDE
    }
    assert closed == set(), "write @door above it, and a sound call into tests/doors.py"


@pytest.mark.parametrize("kind", sorted({name.partition(".")[0] for name in found() if "." in name}))
def test_of_a_class_with_a_door_every_public_method_that_takes_data_is_one(kind: str) -> None:
    (owner,) = {
        getattr(importlib.import_module(door.__module__), kind)
        for name, door in found().items()
        if name.startswith(f"{kind}.")
    }
    public = {name: each for name, each in inspect.getmembers(owner, inspect.isroutine) if not name.startswith("_")}
    own = {name: each for name, each in public.items() if name in vars(owner) and takes_data(each)}
    assert {name for name, each in own.items() if not hasattr(each, "is_door")} == set()
