"""Differences between two JSON Schemas of a model, and the part of the version that each raises (VERSION-4, TYPED-6).

What an older caller gives must still be accepted, or the change is MAJOR. Whether a field's new schema accepts all
that its old one did cannot be told in general: any change of it but of its default value counts as MAJOR.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Schema = Mapping[str, Any]
Part = Literal["MAJOR", "MINOR"]
How = Literal["added", "removed", "changed"]
Difference = tuple[Part, How, str, str]  # part, how, the field's name, message

WHOLE = ("properties", "required", "$defs")  # are compared by their entries


def differences(what: str, old: Schema | None, new: Schema | None) -> Iterator[Difference]:
    """Every difference of a model.

    Args:
        what: it describes: `context`, `data of start`.
        old, new: recorded schemas; None: there is no model.
    """
    if old is None or new is None:
        if new is not None:
            yield "MAJOR", "added", what, f"{what} has a model now, and what does not fit it is refused"
        elif old is not None:
            yield "MINOR", "removed", what, f"{what} has no model any more"
        return
    yield from _fields(what, old, new)
    yield from _parts(what, old, new)
    for key in sorted((old.keys() | new.keys()) - {*WHOLE}):
        if old.get(key) != new.get(key):
            looser = key == "additionalProperties" and new.get(key) is True
            yield "MINOR" if looser else "MAJOR", "changed", what, f"{what}: {key} {old.get(key)} → {new.get(key)}"


def _fields(what: str, old: Schema, new: Schema) -> Iterator[Difference]:
    before, after = old.get("properties", {}), new.get("properties", {})
    needed, needs = set(old.get("required", ())), set(new.get("required", ()))
    for name in sorted(before.keys() | after.keys()):
        called = f"field {name} of the {what}"
        if name not in before:
            must = name in needs
            yield "MAJOR" if must else "MINOR", "added", name, f"{called} added" + (", and required" if must else "")
        elif name not in after:
            yield "MAJOR", "removed", name, f"{called} removed"
        elif (name in needs) != (name in needed):
            now = "required" if name in needs else "optional"
            yield "MAJOR" if name in needs else "MINOR", "changed", name, f"{called} is now {now}"
        if name in before and name in after and before[name] != after[name]:
            same = _accepted(before[name]) == _accepted(after[name])
            part: Part = "MINOR" if same else "MAJOR"
            yield part, "changed", name, f"{called}: {_said(before[name])} → {_said(after[name])}"


def _parts(what: str, old: Schema, new: Schema) -> Iterator[Difference]:
    """Changes of models inside the model; those added or removed show in the fields that use them."""
    before, after = old.get("$defs", {}), new.get("$defs", {})
    for name in sorted(before.keys() & after.keys()):
        for part, how, field, message in differences(f"{what}'s {name}", before[name], after[name]):
            yield part, how, f"{name}.{field}", message


def _accepted(schema: Any) -> Any:
    return {key: each for key, each in schema.items() if key != "default"} if isinstance(schema, Mapping) else schema


def _said(schema: Any) -> str:
    """A field's schema in a few words."""
    if not isinstance(schema, Mapping):
        return str(schema)
    return ", ".join(f"{key} {each}" for key, each in sorted(schema.items())) or "anything"
