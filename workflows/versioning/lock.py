"""The lock file: every released version, one per line, so that none is changed afterwards (VERSION-1).

Each line is JSON: `type`, `version`, `checksum` and `form`, the definition as recorded. In a review, a new version is
one new line. A changed definition without a new version is an error, which names the version to use.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput
from interlock.workflows.input import limits
from interlock.workflows.versioning.diff import compare, numbers
from interlock.workflows.versioning.export import canonical_checksum, checksum, recorded
from interlock.workflows.versioning.export_schema import validated

Key = tuple[str, str]  # type, version
Forms = Mapping[Key, Mapping[str, Any]]


def written(forms: Forms) -> str:
    """The text of a lock file, ordered by type and version."""
    order = sorted(forms, key=lambda key: (key[0], numbers(key[1])))
    return "".join(json.dumps(_line(forms[key]), ensure_ascii=False) + "\n" for key in order)


def _line(form: Mapping[str, Any]) -> dict[str, Any]:
    line = {"type": form["type"], "version": form["version"], "checksum": canonical_checksum(dict(form))}
    return line | {"form": form}


def read(text: str, name: str) -> dict[Key, dict[str, Any]]:
    """Parse the forms in a lock file.

    Args:
        text: the file's content.
        name: the file's name, for messages.

    Raises:
        BadInput: a line is not in the format of `written`, or was changed.
    """
    forms: dict[Key, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = limits.read(line)
            key, form = (entry["type"], entry["version"]), validated(entry["form"])
            unchanged = canonical_checksum(form) == entry["checksum"] and (form["type"], form["version"]) == key
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{name}:{number} is not a valid entry ({error!r}); restore the line from version control"
            ) from error
        if not unchanged:
            raise BadInput(
                f"{name}:{number}: {key[0]} {key[1]} was changed in the lock; restore its line from version control"
            )
        forms[key] = form
    return forms


def complaints(locked: Forms, definitions: Iterable[Definition]) -> list[str]:
    """Released definitions that were changed or removed, and new ones not locked or misnumbered: one sentence each."""
    known = {(each.type, each.version): each for each in definitions}
    gone = [
        f"{type_} {version} is locked, but no longer in the code" for type_, version in locked.keys() - known.keys()
    ]
    return [*_changed(locked, known.values()), *sorted(gone)]


def _changed(locked: Forms, definitions: Iterable[Definition]) -> Iterator[str]:
    for each in definitions:
        form = locked.get((each.type, each.version))
        if form is None:
            yield from _new(locked, each)
        elif canonical_checksum(dict(form)) != checksum(each):
            difference = compare(form, recorded(each))
            yield (
                f"{each.type} {each.version} was changed without a new version: make it {difference.wanted} and "
                f"keep {each.version} as it was. {difference.verdict}"
            )


def _new(locked: Forms, definition: Definition) -> Iterator[str]:
    yield f"{definition.type} {definition.version} is not locked yet: interlock definitions lock"
    yield from misnumbered(locked, definition)


def misnumbered(locked: Forms, definition: Definition) -> Iterator[str]:
    """An error if a new version's number is too low for its changes since the version before it."""
    own = numbers(definition.version)
    earlier = [key for key in locked if key[0] == definition.type and numbers(key[1]) < own]
    if not earlier:
        return
    difference = compare(locked[max(earlier, key=lambda key: numbers(key[1]))], recorded(definition))
    if not difference.right:
        yield (
            f"{definition.type} {definition.version} must be {difference.wanted}: it differs from {difference.old} by "
            f"{difference.verdict}"
        )
