"""What differs between two forms of a definition, and which version number that asks for (SSOT 9.1.4).

MAJOR breaks somebody: a state more or less, a transition less, a field that must now be there. MINOR adds, or changes a
rule on the way; PATCH is words and order.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workflows.check import VERSION
from workflows.errors import BadInput
from workflows.rules import Arrow, by_arrow

Part = Literal["MAJOR", "MINOR", "PATCH"]
How = Literal["added", "removed", "changed"]
Form = Mapping[str, Any]

PARTS: tuple[Part, ...] = ("MAJOR", "MINOR", "PATCH")  # the gravest first
RECORDED = ("rules", "deadlines", "links", "fields", "birth_effects", "required_metadata")  # and not exported
RULES = {  # of a transition, beside where it leads: how each is called
    "when": "guards",
    "then": "follow-ups",
    "effects": "effects",
    "approval": "approval",
    "settles": "what it settles",
    "severity": "severity",
    "exceptional": "exception",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: of what, how, and the part of the version that it asks for. `says` is for people."""

    part: Part
    what: str
    how: How
    name: str
    says: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that differs between two forms of a type.

    `unseen` names what one of the forms does not tell: an exported one has only states and transitions.
    """

    type: str
    old: str
    new: str
    changes: tuple[Change, ...]
    unseen: tuple[str, ...] = ()

    @property
    def part(self) -> Part | None:
        """The part of the version that has to be raised; None where nothing differs."""
        return next((part for part in PARTS if any(change.part == part for change in self.changes)), None)

    @property
    def wanted(self) -> str:
        """The least version that the new form may have."""
        return raised(self.old, self.part) if self.part else self.old

    @property
    def right(self) -> bool:
        """Is the new form's number one that it may have? It may be raised further than it must."""
        return numbers(self.new) >= numbers(self.wanted)

    @property
    def verdict(self) -> str:
        """`MAJOR: …` and why, or that nothing but words differs."""
        gravest = [change.says for change in self.changes if change.part == self.part]
        return f"{self.part}: {'; '.join(gravest)}" if self.part else "PATCH: words only"


def compare(old: Form, new: Form) -> Comparison:
    """Compare two forms of a definition, as recorded or as exported.

    Args:
        old, new: `workflows.export.recorded` or `public` forms, of which only what both tell is compared.
    """
    changes = [*_states(old, new), *_transitions(old, new)]
    if unseen := () if RECORDED[0] in old and RECORDED[0] in new else RECORDED:
        return Comparison(new["type"], old["version"], new["version"], tuple(changes), unseen)
    for part in (_rules, _deadlines, _links, _fields, _births, _metadata):
        changes += part(old, new)
    changes += () if changes else _order(old, new)
    return Comparison(new["type"], old["version"], new["version"], tuple(changes))


def numbers(version: str) -> tuple[int, int, int]:
    """A version as numbers that can be compared. Raises `BadInput`: it is not MAJOR.MINOR.PATCH."""
    if not VERSION.fullmatch(version):
        raise BadInput(f"{version!r} is not MAJOR.MINOR.PATCH, like 1.2.0")
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def raised(version: str, part: Part) -> str:
    """The least version after `version` with that part raised; below 1.0.0 a MINOR may break (SemVer 2.0.0, 4)."""
    major, minor, patch = numbers(version)
    if part == "MAJOR" and major > 0:
        return f"{major + 1}.0.0"
    return f"{major}.{minor}.{patch + 1}" if part == "PATCH" else f"{major}.{minor + 1}.0"


def _states(old: Form, new: Form) -> Iterator[Change]:
    yield from _more_or_less("state", old["states"], new["states"], added="MAJOR", removed="MAJOR")
    for state in old["states"].keys() & new["states"].keys():
        ends = new["states"][state]["terminal"]
        if ends != old["states"][state]["terminal"]:
            says = f"state {state} is {'now' if ends else 'no longer'} terminal"
            yield Change("MAJOR", "terminal", "changed", state, says)
    if old["initial"] != new["initial"]:
        says = f"it begins in {new['initial']}, not in {old['initial']}"
        yield Change("MAJOR", "initial", "changed", new["initial"], says)


def _transitions(old: Form, new: Form) -> Iterator[Change]:
    before, after = ([_arrow(move) for move in form["transitions"]] for form in (old, new))
    yield from _more_or_less("transition", before, after, added="MINOR", removed="MAJOR")
    stay = set(before) & set(after)
    if [each for each in before if each in stay] != [each for each in after if each in stay]:
        # Of several that answer to one trigger in one state, the first that may is taken.
        alike = _alternatives(old) != _alternatives(new)
        part: Part = "MINOR" if alike else "PATCH"
        yield Change(part, "order", "changed", "transitions", "the order of transitions changed")


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
            was, now = (_spoken([rule.get(key) for rule in side[arrow]]) for side in (before, after))
            if was != now:
                found.setdefault((arrow[0], name, was, now), []).append(arrow)
    for (trigger, name, was, now), arrows in found.items():
        some = len(arrows) < sum(each[0] == trigger for each in stay)
        where = f" ({', '.join(f'{source} → {dest}' for _, source, dest in arrows)})" if some else ""
        yield Change("MINOR", name, "changed", trigger, f"{name} of {trigger}{where}: {was} → {now}")


def _spoken(values: list[Any]) -> str:
    return " | ".join(json.dumps(value) if value else "none" for value in values)


def _order(old: Form, new: Form) -> Iterator[Change]:
    """What the forms differ in, where nothing that they say does: checksums tell these apart too."""
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
        says = f"field {name} {how}" + (", and it must be there" if part == "MAJOR" else "")
        yield Change(part, "field", how, name, says)


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
            says = f"{what} {name}: {_flat(old[name])} → {_flat(new[name])}"
            yield Change("MINOR", what, "changed", name, says)


def _flat(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items())


def _arrow(move: Mapping[str, str]) -> str:
    return f"{move['trigger']} ({move['source']} → {move['dest']})"
