"""Which rule serves which arrow of a recorded definition: its form lists arrows singly, and a rule once for many.

A trigger's arrows are in the order of its rules. Where that does not tell them apart (several rules lead to one state,
and one of them from several), each rule says its `sources`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Form = Mapping[str, Any]
Rule = Mapping[str, Any]
Arrow = tuple[str, str, str]  # trigger, source, dest


def by_arrow(form: Form) -> dict[Arrow, list[Rule]]:
    """Arrow -> the rules that serve it, the first that may being taken.

    Args:
        form: `workflows.export.recorded`; a `public` one has no rules.
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
    else:  # each leads somewhere else
        of_dest = dict(zip(dict.fromkeys(dest for _, _, dest in arrows), rules, strict=False))
        yield from (of_dest[dest] for _, _, dest in arrows if dest in of_dest)
