"""Everything that a run will be, with its ids and names, before any of it exists."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from uuid_utils.compat import uuid7

from workflows.plan.plan import Plan

LONGEST_ENTITY = 88  # of 100 characters: a gate that is run again gets the number of its try behind its name
HEAD = 40
SHORT = 6


@dataclass(frozen=True, slots=True)
class Roster:
    """The ids of a run and of all in it, by the plan's names in full."""

    run: UUID
    name: str
    workstreams: dict[str, UUID]
    tasks: dict[str, UUID]
    gates: dict[str, UUID]

    def entity_id(self, name: str) -> str:
        """What a workstream, task or gate of the run is called in its project: `RUN/workstream/task`."""
        return shortened(f"{self.name}/{name}")


def enrol(plan: Plan, name: str | None = None) -> Roster:
    """A roster for a run of a plan, called `name`, or after the plan with something that no other run has."""
    run = uuid7()
    workstreams = _ids(each.id for each in plan.workstreams)
    return Roster(run, name or f"{plan.name}-{run.hex[-SHORT:]}", workstreams, _ids(plan.tasks()), _ids(plan.gates()))


def shortened(path: str) -> str:
    """A name of names, which no other has: as it is or, where it is long, its ends with its hash between.

    `+` cannot stand in a plan's names, so nothing is mistaken for a shortened one.
    """
    if len(path) <= LONGEST_ENTITY:
        return path
    sign = sha256(path.encode()).hexdigest()[:10]
    return f"{path[:HEAD]}+{sign}+{path[HEAD + len(sign) + 2 - LONGEST_ENTITY :]}"


def _ids(names: Iterable[str]) -> dict[str, UUID]:
    return {name: uuid7() for name in names}
