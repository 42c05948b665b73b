"""Definitions as forms, from the code, a file or a database; and the differences between two sources."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from interlock.db.connection import transaction
from interlock.db.core import definitions
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.errors import BadInput, UnknownWorkflow
from interlock.workflows.input import limits
from interlock.workflows.versioning.diff import Comparison, compare, numbers
from interlock.workflows.versioning.export import recorded
from interlock.workflows.versioning.export_schema import validated
from interlock.workflows.versioning.lock import Key, read

Forms = Mapping[Key, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """Two sources compared version by version, and the versions that only one of them has."""

    comparisons: tuple[Comparison, ...]
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether the version number of every changed definition matches its changes."""
        return all(each.right for each in self.comparisons)


def of_code(catalogue: Catalogue) -> Forms:
    """The definitions this process knows."""
    return {(each.type, each.version): recorded(each) for each in catalogue}


def of_database(database: Engine) -> Forms:
    """The definitions that a database has recorded."""
    with transaction(database) as connection:
        return {(row["type"], row["version"]): row["body"] for row in definitions.listed(connection)}


def of_file(path: Path) -> Forms:
    """The definitions of a file that `definitions export` or `definitions lock` wrote.

    Raises:
        BadInput: it cannot be read, or is neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not text.lstrip().startswith("["):
        return read(text, str(path))
    try:
        return {(form["type"], form["version"]): form for form in map(validated, limits.read(text))}
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} is not what `interlock definitions export` writes: {error}") from error


def two(old: Forms, new: Forms, type_: str, older: str, newer: str) -> SourceDifference:
    """Compare one version of a type, from `old`, with another, from `new`.

    Raises:
        UnknownWorkflow: one of them is missing.
        BadInput: the first is newer than the second.
    """
    if numbers(older) > numbers(newer):
        raise BadInput(f"{older} is newer than {newer}: name the older version first")
    return SourceDifference((compare(_get(old, type_, older), _get(new, type_, newer)),))


def _get(forms: Forms, type_: str, version: str) -> Mapping[str, Any]:
    try:
        return forms[type_, version]
    except KeyError:
        known = ", ".join(each for type__, each in forms if type__ == type_) or "none of that type"
        raise UnknownWorkflow(f"{type_} has no version {version} there. Its versions: {known}.") from None


def same(old: Forms, new: Forms, type_: str | None = None) -> SourceDifference:
    """Compare each version of two sources with itself: none may have changed, and new ones need the right number."""

    def of_type(forms: Forms) -> dict[Key, Mapping[str, Any]]:
        return {key: form for key, form in forms.items() if type_ in (None, key[0])}

    before, after = of_type(old), of_type(new)
    if type_ and not (before or after):
        raise UnknownWorkflow(f"neither side has a type {type_!r}.")
    both = [compare(before[key], after[key]) for key in before if key in after]
    added = [key for key in after if key not in before]
    return SourceDifference(
        tuple([each for each in both if each.changes] + list(_successors(before, after, added))),
        gone=tuple(" ".join(key) for key in before if key not in after),
        new=tuple(" ".join(key) for key in added),
    )


def _successors(before: Forms, after: Forms, added: list[Key]) -> Iterator[Comparison]:
    for type_, version in added:
        earlier = [each for type__, each in before if type__ == type_ and numbers(each) < numbers(version)]
        if earlier:
            yield compare(before[type_, max(earlier, key=numbers)], after[type_, version])
