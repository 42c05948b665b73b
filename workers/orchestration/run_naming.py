"""Assigns the ids and names of a run and its parts before any of them exists."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from uuid_utils.compat import uuid7

from interlock.workflows.plan.plan import Plan

LONGEST_ENTITY = 88  # of 100 characters: the number of the attempt is appended to the name of a gate that is run again
HEAD = 40
SHORT = 6


@dataclass(frozen=True, slots=True)
class RunIds:
    """The ids of a run and all its parts, by their full names in the plan."""

    run: UUID
    name: str
    workstreams: dict[str, UUID]
    tasks: dict[str, UUID]
    gates: dict[str, UUID]

    def entity_id(self, name: str) -> str:
        """The entity id, in its project, of a workstream, task or gate of the run: `RUN/workstream/task`."""
        return shortened(f"{self.name}/{name}")


def assign_ids(plan: Plan, name: str | None = None) -> RunIds:
    """Assign the ids for a run of a plan, with the given name, or the plan's name with a unique suffix."""
    run = uuid7()
    workstreams = _ids(each.id for each in plan.workstreams)
    return RunIds(run, name or f"{plan.name}-{run.hex[-SHORT:]}", workstreams, _ids(plan.tasks()), _ids(plan.gates()))


def shortened(path: str) -> str:
    """A unique name from a path: unchanged or, if it is long, its two ends with its hash between them.

    Names in plans cannot contain `+`, so no other name looks like a shortened one.
    """
    if len(path) <= LONGEST_ENTITY:
        return path
    sign = sha256(path.encode()).hexdigest()[:10]
    return f"{path[:HEAD]}+{sign}+{path[HEAD + len(sign) + 2 - LONGEST_ENTITY :]}"


def _ids(names: Iterable[str]) -> dict[str, UUID]:
    return {name: uuid7() for name in names}
