"""What is wrong with a definition, each with the file and the line to correct."""

import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from interlock.workflows.spelling import meant

OWN = ("interlock.workflows.definition", "interlock.workflows.faults", "dataclasses")  # modules that make parts
MISSING = re.compile(r"(?P<called>[\w.]+)\(\) missing \d+ required [a-z -]*arguments?: (?P<names>.+)")
UNEXPECTED = re.compile(r"(?P<called>[\w.]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        message: what it is, and what to do about it.
        place: `FILE:LINE`; empty: not known.
    """

    message: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


def made_at() -> str:
    """`FILE:LINE` of whoever is making a part of a definition."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__") in OWN:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def of_import(error: BaseException) -> Fault:
    """What is wrong in a module that cannot be imported: the line of the user's own that raised it, and why."""
    said = [line.strip() for line in traceback.TracebackException.from_exception(error).format_exception_only()]
    message = said[-1]
    if isinstance(error, ModuleNotFoundError):
        message = f"{message}: install it, or put the folder that it is in on PYTHONPATH"
    if isinstance(error, SyntaxError):
        return Fault(f"{message}: Python cannot read this line", f"{error.filename}:{error.lineno}")
    found, known = "", dict[str, object]()
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_users(str(frame.f_globals.get("__name__")), frame.f_code.co_filename):
            found, known = f"{frame.f_code.co_filename}:{line}", frame.f_globals
    if isinstance(error, TypeError) and (unknown := UNEXPECTED.fullmatch(str(error))):
        return Fault(_unexpected(unknown["called"], unknown["name"], known), found)
    if isinstance(error, TypeError) and (missing := MISSING.fullmatch(str(error))):
        return Fault(f"{missing['called'].removesuffix('.__init__')} needs the argument {missing['names']}", found)
    if isinstance(error, NameError) and (near := meant(error.name, known)):
        message = f"{message.partition('. Did you mean')[0]}; did you mean {near!r}?"
    return Fault(f"{message} (raised by this line when the file is imported)", found)


def _unexpected(called: str, name: str, known: Mapping[str, object]) -> str:
    """That a part has no argument of that name, and which one is probably meant."""
    part = called.removesuffix(".__init__")
    message = f"{part} has no argument {name!r}"
    try:
        arguments = inspect.signature(known[part]).parameters  # type: ignore[arg-type]  # what is not callable raises
    except (KeyError, TypeError, ValueError):  # by another name, or of a module
        return message
    near = meant(name, arguments)
    return f"{message}; did you mean {near!r}?" if near else f"{message}; it has {', '.join(arguments)}"


def _is_users(module: str, file: str) -> bool:
    """Whether a frame is neither of Interlock, of an installed package, nor of Python itself."""
    top = module.partition(".")[0]
    return not (top == "interlock" or top in sys.stdlib_module_names or file.startswith("<") or "site-packages" in file)
