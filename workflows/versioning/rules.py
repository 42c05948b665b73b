"""Match the rules and arrows of a recorded definition: the form lists each arrow, but a rule once for several arrows.

A trigger's arrows are in the order of its rules. If that order is ambiguous (several rules lead to one state, and one
of them has several sources), each rule lists its `sources`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Form = Mapping[str, Any]
Rule = Mapping[str, Any]
Arrow = tuple[str, str, str]  # trigger, source, dest


def by_arrow(form: Form) -> dict[Arrow, list[Rule]]:
    """Arrow -> its rules, in the order in which they are tried.

    Args:
        form: a form of `workflows.versioning.export.recorded`; a `public` form has no rules.
    """
    served: dict[Arrow, list[Rule]] = {}
    for trigger in dict.fromkeys(rule["trigger"] for rule in form["rules"]):
        arrows = [(trigger, move["source"], move["dest"]) for move in form["transitions"] if move["trigger"] == trigger]
        rules = [rule for rule in form["rules"] if rule["trigger"] == trigger]
        for arrow, rule in zip(arrows, _of_each(arrows, rules), strict=False):
            served.setdefault(arrow, []).append(rule)
    return served


def _of_each(arrows: list[Arrow], rules: list[Rule]) -> Iterator[Rule]:
    if any("sources" in rule for rule in rules):
        for rule in rules:
            yield from [rule] * len(rule["sources"])
    elif len(arrows) == len(rules):
        yield from rules
    else:  # each rule has a different destination
        of_dest = dict(zip(dict.fromkeys(dest for _, _, dest in arrows), rules, strict=False))
        yield from (of_dest[dest] for _, _, dest in arrows if dest in of_dest)
