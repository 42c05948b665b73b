"""Compare two forms of a definition, and find the version number that the differences require (VERSION-4).

MAJOR breaks users: a state added or removed, a transition removed, a right to fire one taken away, a newly required
field, a field of a model removed or changed (`workflows.versioning.schema_diff`). MINOR adds, or changes a rule of a
transition. PATCH changes only texts and order.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from interlock.workflows.definition import AUTHORITIES
from interlock.workflows.errors import BadInput
from interlock.workflows.versioning.rules import Arrow, by_arrow
from interlock.workflows.versioning.schema_diff import differences
from interlock.workflows.versioning.validate import VERSION

Part = Literal["MAJOR", "MINOR", "PATCH"]
How = Literal["added", "removed", "changed"]
Form = Mapping[str, Any]

PARTS: tuple[Part, ...] = ("MAJOR", "MINOR", "PATCH")  # most severe first
RECORDED = (  # not in exported forms
    "rules",
    "deadlines",
    "links",
    "fields",
    "context",
    "data",
    "birth_effects",
    "required_metadata",
)
RULES = {  # parts of a transition's rule -> their names in messages
    "when": "guards",
    "then": "follow-ups",
    "effects": "effects",
    "approval": "approval",
    "settles": "what it settles",
    "severity": "severity",
    "exceptional": "exception",
    "relink": "the link that it changes",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, and the part of the version number that it requires to raise. `message` is for people."""

    part: Part
    what: str
    how: How
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences between two forms of a type.

    `unseen` names the parts that one of the forms lacks: an exported form has only states and transitions.
    """

    type: str
    old: str
    new: str
    changes: tuple[Change, ...]
    unseen: tuple[str, ...] = ()

    @property
    def part(self) -> Part | None:
        """The part of the version that must be raised; None if nothing differs."""
        return next((part for part in PARTS if any(change.part == part for change in self.changes)), None)

    @property
    def wanted(self) -> str:
        """The lowest version that the new form may have."""
        return raised(self.old, self.part) if self.part else self.old

    @property
    def right(self) -> bool:
        """Whether the new form's version is high enough; it may be higher than required."""
        return numbers(self.new) >= numbers(self.wanted)

    @property
    def verdict(self) -> str:
        """The part to raise and why, such as `MAJOR: …`; or that only texts differ."""
        gravest = [change.message for change in self.changes if change.part == self.part]
        return f"{self.part}: {'; '.join(gravest)}" if self.part else "PATCH: words only"


def compare(old: Form, new: Form) -> Comparison:
    """Compare two forms of a definition, as recorded or as exported.

    Args:
        old, new: `workflows.versioning.export.recorded` or `public` forms; only the parts in both are compared.
    """
    changes = [*_states(old, new), *_transitions(old, new), *_rights(old, new), *_events(old, new)]
    if unseen := () if RECORDED[0] in old and RECORDED[0] in new else RECORDED:
        return Comparison(new["type"], old["version"], new["version"], tuple(changes), unseen)
    for part in (_rules, _deadlines, _links, _fields, _models, _births, _metadata):
        changes += part(old, new)
    changes += () if changes else _order(old, new)
    return Comparison(new["type"], old["version"], new["version"], tuple(changes))


def numbers(version: str) -> tuple[int, int, int]:
    """A version as a tuple for comparison. Raises `BadInput` if it is not MAJOR.MINOR.PATCH."""
    if not VERSION.fullmatch(version):
        raise BadInput(f"{version!r} is not MAJOR.MINOR.PATCH, like 1.2.0")
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def raised(version: str, part: Part) -> str:
    """The lowest version with that part raised; below 1.0.0 MINOR replaces MAJOR (SemVer 2.0.0, 4)."""
    major, minor, patch = numbers(version)
    if part == "MAJOR" and major > 0:
        return f"{major + 1}.0.0"
    return f"{major}.{minor}.{patch + 1}" if part == "PATCH" else f"{major}.{minor + 1}.0"


def _states(old: Form, new: Form) -> Iterator[Change]:
    yield from _more_or_less("state", old["states"], new["states"], added="MAJOR", removed="MAJOR")
    for state in old["states"].keys() & new["states"].keys():
        ends = new["states"][state]["terminal"]
        if ends != old["states"][state]["terminal"]:
            message = f"state {state} is {'now' if ends else 'no longer'} terminal"
            yield Change("MAJOR", "terminal", "changed", state, message)
    if old["initial"] != new["initial"]:
        message = f"it begins in {new['initial']}, not in {old['initial']}"
        yield Change("MAJOR", "initial", "changed", new["initial"], message)


def _transitions(old: Form, new: Form) -> Iterator[Change]:
    before, after = ([_arrow(move) for move in form["transitions"]] for form in (old, new))
    yield from _more_or_less("transition", before, after, added="MINOR", removed="MAJOR")
    stay = set(before) & set(after)
    if [each for each in before if each in stay] != [each for each in after if each in stay]:
        # Of several transitions for one trigger and state, the first whose guards hold is taken, so order matters.
        alike = _alternatives(old) != _alternatives(new)
        part: Part = "MINOR" if alike else "PATCH"
        yield Change(part, "order", "changed", "transitions", "the order of transitions changed")


def _rights(old: Form, new: Form) -> Iterator[Change]:
    before, after = ({_arrow(move): move["by"] for move in form["transitions"]} for form in (old, new))
    for arrow in (each for each in before if each in after and before[each] != after[each]):
        lost = [each for each in AUTHORITIES if _may(each, before[arrow]) and not _may(each, after[arrow])]
        part: Part = "MAJOR" if lost else "MINOR"
        message = f"{arrow} by {' or '.join(before[arrow])} → {' or '.join(after[arrow])}"
        yield Change(part, "right", "changed", arrow, message)


def _events(old: Form, new: Form) -> Iterator[Change]:
    """A name that its readers know an event by is not taken away without notice; a first one may be given."""
    before, after = ({_arrow(move): move.get("event") for move in form["transitions"]} for form in (old, new))
    for arrow in (each for each in before if each in after and before[each] != after[each]):
        part: Part = "MAJOR" if before[arrow] else "MINOR"
        message = f"event of {arrow}: {before[arrow] or 'none'} → {after[arrow] or 'none'}"
        yield Change(part, "event", "changed", arrow, message)


def _may(authority: str, by: list[str]) -> bool:
    return authority in by or "anyone" in by


def _alternatives(form: Form) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for move in form["transitions"]:
        found.setdefault((move["trigger"], move["source"]), []).append(move["dest"])
    return {key: dests for key, dests in found.items() if len(dests) > 1}


def _rules(old: Form, new: Form) -> Iterator[Change]:
    before, after = by_arrow(old), by_arrow(new)
    stay = [arrow for arrow in before if arrow in after]
    found: dict[tuple[str, str, str, str], list[Arrow]] = {}
    for arrow in stay:
        for key, name in RULES.items():
            was, now = (_joined([rule.get(key) for rule in side[arrow]]) for side in (before, after))
            if was != now:
                found.setdefault((arrow[0], name, was, now), []).append(arrow)
    for (trigger, name, was, now), arrows in found.items():
        some = len(arrows) < sum(each[0] == trigger for each in stay)
        where = f" ({', '.join(f'{source} → {dest}' for _, source, dest in arrows)})" if some else ""
        yield Change("MINOR", name, "changed", trigger, f"{name} of {trigger}{where}: {was} → {now}")


def _joined(values: list[Any]) -> str:
    return " | ".join(json.dumps(value) if value else "none" for value in values)


def _order(old: Form, new: Form) -> Iterator[Change]:
    """Differences in order only; they change the checksum as well."""
    if differ := [key for key in new.keys() | old.keys() if key != "version" and old.get(key) != new.get(key)]:
        names = ", ".join(sorted(differ))
        yield Change("PATCH", "order", "changed", names, f"the order of its {names} changed")


def _deadlines(old: Form, new: Form) -> Iterator[Change]:
    yield from _named("deadline", old["deadlines"], new["deadlines"])


def _links(old: Form, new: Form) -> Iterator[Change]:
    before, after = ({link["role"]: link for link in form["links"]} for form in (old, new))
    yield from _named("link", before, after, removed="MAJOR")


def _fields(old: Form, new: Form) -> Iterator[Change]:
    before, after = ({each[0]: each[1:] for each in form["fields"]} for form in (old, new))
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        needed, needs = (bool(each and each[1]) for each in (was, now))
        how: How = "removed" if now is None else "added" if was is None else "changed"
        part: Part = "MAJOR" if needs and not needed else "PATCH" if was and now and needs == needed else "MINOR"
        message = f"field {name} {how}" + (", and it must be there" if part == "MAJOR" else "")
        yield Change(part, "field", how, name, message)


def _models(old: Form, new: Form) -> Iterator[Change]:
    before, after = ({f"data of {key}": each for key, each in form.get("data", {}).items()} for form in (old, new))
    pairs = [("context", old.get("context"), new.get("context"))]
    pairs += [(what, before.get(what), after.get(what)) for what in sorted(before.keys() | after.keys())]
    for what, was, now in pairs:
        for part, how, name, message in differences(what, was, now):
            yield Change(part, what, how, name, message)


def _births(old: Form, new: Form) -> Iterator[Change]:
    if old["birth_effects"] != new["birth_effects"]:
        yield Change("MINOR", "birth effects", "changed", "birth", "the effects of its birth changed")


def _metadata(old: Form, new: Form) -> Iterator[Change]:
    before, after = (form.get("required_metadata", []) for form in (old, new))
    yield from _more_or_less("required metadata", before, after, added="MINOR", removed="MAJOR")


def _more_or_less(what: str, old: Any, new: Any, *, added: Part, removed: Part) -> Iterator[Change]:
    for name in sorted(set(new) - set(old)):
        yield Change(added, what, "added", name, f"{what} {name} added")
    for name in sorted(set(old) - set(new)):
        yield Change(removed, what, "removed", name, f"{what} {name} removed")


def _named(what: str, old: Mapping[str, Any], new: Mapping[str, Any], *, removed: Part = "MINOR") -> Iterator[Change]:
    yield from _more_or_less(what, old, new, added="MINOR", removed=removed)
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            message = f"{what} {name}: {_flat(old[name])} → {_flat(new[name])}"
            yield Change("MINOR", what, "changed", name, message)


def _flat(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items())


def _arrow(move: Mapping[str, str]) -> str:
    return f"{move['trigger']} ({move['source']} → {move['dest']})"
