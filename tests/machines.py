"""User definitions for tests: an effect that reports its outcome, a guard that can raise, a deadline."""

from collections.abc import Mapping
from types import MappingProxyType

from interlock.workflows.definition import Deadline, Definition, Guard, T
from interlock.workflows.guard_context import Case
from tests.small_machines import small_machine, tells

broken: set[str] = set()  # agents for whom the guard `sound` raises, as long as they are in here


class Broken(Exception):
    """Raised by the faulty guard."""


def _sound(case: Case) -> bool:
    if case.by in broken:
        raise Broken(f"no answer for {case.by}")
    return case.metadata.get("sound", True) is not False


sound = Guard("sound", _sound, "it must be sound")

ANNOUNCEMENT = small_machine(
    "announcement",
    "Something told to the world, which answers.",
    "drafted announcing | announced unheard",
    *tells("notice", "drafted announce announcing", done="heard announced", failed="give_up unheard"),
)

TURNSTILE = small_machine(
    "turnstile",
    "Open and shut for ever, but for a guard that can break.",
    "shut open | removed",
    T("coin", "shut", "open", when=(sound,)),
    T("remove", ("shut", "open"), "removed"),
    T("push", "open", "shut"),
    resting=frozenset({"shut"}),
    deadlines=MappingProxyType({"open": Deadline(3600.0, "push")}),
)

WORKFLOWS: Mapping[tuple[str, str], Definition] = {
    ("announcement", "1.0.0"): ANNOUNCEMENT,
    ("turnstile", "1.0.0"): TURNSTILE,
}
