"""Definitions in a file that is being written: imported and checked without being registered anywhere."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from interlock.workers.definitions import places
from interlock.workflows import effects
from interlock.workflows.catalogue import SHIPPED, Catalogue, definitions_in, named_in, workflows_example
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput, InvalidDefinition, UnknownWorkflow
from interlock.workflows.faults import Fault, of_import
from interlock.workflows.versioning import validate


@dataclass(frozen=True, slots=True)
class Draft:
    """What a file has so far.

    Attributes:
        definitions: those in its `WORKFLOWS`; if it has none yet, those that it names.
        faults: what is wrong, with file and line.
        warnings: what is doubtful.
    """

    definitions: tuple[Definition, ...] = ()
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()

    def one(self, type_: str = "", version: str = "") -> Definition:
        """The definition to draw: the only one, or the newest that is named.

        Raises:
            InvalidDefinition: the file has none that can be drawn; `faults` says why.
            UnknownWorkflow: there are several, or not the one that is named.
        """
        if not self.definitions or any([*validate.misshapen(each)] for each in self.definitions):
            raise InvalidDefinition("; ".join(map(str, self.faults)), self.faults)
        named = [each for each in self.definitions if type_ in ("", each.type) and version in ("", each.version)]
        if len({each.type for each in named}) != 1:
            there = ", ".join(f"{each.type} {each.version}" for each in self.definitions)
            raise UnknownWorkflow(f"name one of those that the file has, with --type: {there}")
        return named[-1]


def read(path: Path, queues: Iterable[str] = ()) -> Draft:
    """Import a file and check its definitions.

    Args:
        path: of a Python file. It is run, as any program of yours; its folder can be imported from, too.
        queues: the effects' queues of this installation (INTERLOCK_EFFECT_QUEUES).

    Raises:
        BadInput: there is no such file.
    """
    if not path.is_file():
        raise BadInput(f"{path} is no file: give a Python file, like deploy.py")
    with _module(path) as (module, run):
        draft = _read(module, run, path, queues)
    return replace(draft, faults=places.exact(draft.faults))


def _read(module: ModuleType, run: Callable[[ModuleType], object], path: Path, queues: Iterable[str]) -> Draft:
    try:
        run(module)
    except InvalidDefinition as error:
        return Draft(faults=error.faults)
    except (Exception, SystemExit) as error:  # whatever the file raises
        return Draft(faults=(of_import(error),))
    return _checked(module, path, queues)


@contextmanager
def _module(path: Path) -> Iterator[tuple[ModuleType, Callable[[ModuleType], object]]]:
    """The module of a file, under its own name or another if that is taken, and what runs it in the block."""
    whole = path.resolve()
    name = whole.stem if whole.stem not in sys.modules else f"{whole.stem}_file"
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(whole.parent))
    sys.modules[name] = module  # models with forward references look there
    try:
        yield module, spec.loader.exec_module
    finally:
        sys.path.remove(str(whole.parent))
        sys.modules.pop(name, None)


def _checked(module: ModuleType, path: Path, queues: Iterable[str]) -> Draft:
    named = named_in(module)
    try:
        found = definitions_in(module)
        if named and not found:
            raise InvalidDefinition(f"it has definitions, but no WORKFLOWS: end it with {workflows_example(module)}")
    except InvalidDefinition as error:
        return Draft(named, (*_placed(error, path), *(fault for each in named for fault in validate.faults(each))))
    if faults := [fault for each in found for fault in validate.faults(each)]:
        return Draft(found, tuple(faults))
    try:
        Catalogue((*SHIPPED, *found))
    except InvalidDefinition as error:
        return Draft(found, _placed(error, path))
    doubts = tuple(doubt for each in found for doubt in validate.doubts(each))
    try:
        effects.require_queues([*queues])
    except InvalidDefinition as error:
        doubts = (*doubts, str(error))
    return Draft(found, warnings=doubts)


def _placed(error: InvalidDefinition, path: Path) -> tuple[Fault, ...]:
    """Its faults, those without a place at the first line of the file."""
    return tuple(Fault(each.message, each.place or f"{path}:1") for each in error.faults)
