"""A plan becomes a run: everything in it is born, and the run started, in one transaction or not at all."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from db import plans, requests
from db.breakers import configure
from db.connect import transaction
from workers import births, firing
from workers.firing import Firing
from workers.orchestration import material
from workers.orchestration.contexts import Contexts
from workers.orchestration.material import Patches
from workers.orchestration.members import breakers, members
from workers.orchestration.roster import enrol
from workers.runtime import Runtime
from workflows.errors import AlreadyExists, BadInput
from workflows.plan.plan import Plan
from workflows.plan.quantities import IDENTIFIER
from workflows.plan.rest import rest

PLAN_BYTES = 64 * 1024**2  # as JSON, every default written out
PRIORITIES = range(-1_000, 1_001)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was accepted."""

    id: UUID
    name: str
    project_id: UUID


@dataclass(frozen=True, slots=True)
class Submission:
    """What a run is made of.

    Attributes:
        plan: settled, whole: it is kept with the run.
        directory: what its paths are relative to.
        by: who runs it.
        priority: among runs.
        patches: their texts, unless they are kept already.
        before, carried: see `Contexts`.
    """

    plan: Plan
    directory: Path
    by: str
    priority: int
    patches: Patches
    before: Mapping[str, UUID] = field(default_factory=dict)
    carried: Mapping[str, UUID] = field(default_factory=dict)


def submit(
    runtime: Runtime, plan: Plan, *, by: str, directory: Path, run_name: str | None = None, priority: int = 0
) -> Run:
    """Make a run of a plan, and start it.

    Args:
        runtime: whose database.
        plan: as `read_plan` gives it.
        by: who runs it.
        directory: what the plan's paths are relative to.
        run_name: unique in the project; default: the plan's name with a suffix.
        priority: among runs, -1,000 to 1,000; higher goes first.

    Returns:
        The run, accepted; its work begins when workers see it.

    Raises:
        AlreadyExists: the project has a run of that name.
        BadInput: the repository, a patch, a name or a context will not do. Nothing was written.
    """
    folder = directory.resolve()
    if priority not in PRIORITIES:
        raise BadInput(f"a run's priority is from {PRIORITIES[0]:,} to {PRIORITIES[-1]:,}; got {priority:,}")
    material.require_repository(plan, folder)
    return deliver(runtime, Submission(plan, folder, by, priority, material.patches(plan, folder)), run_name)


def deliver(runtime: Runtime, wanted: Submission, run_name: str | None = None) -> Run:
    """Write everything of a submission whose material was looked at, and start the run. Raises as `submit`."""
    due = rest(wanted.plan, wanted.carried.keys())
    roster = enrol(due, _run_name(run_name))
    contexts = Contexts(due, roster, wanted.patches.of_task, wanted.before, wanted.carried)
    by, project_id = firing.named("by", wanted.by), due.project_id
    body = firing.checked("plan", wanted.plan.model_dump(mode="json"), PLAN_BYTES)
    run = list(members(runtime, contexts, by=by, priority=wanted.priority))
    tools = list(breakers(runtime, contexts, by=by))
    with transaction(runtime.database) as connection:
        births.deliver(connection, tools)
        if len(births.deliver(connection, run).new) < len(run):
            raise AlreadyExists(f"project {project_id} has a run named {roster.name} already; choose another name")
        plans.keep(connection, roster.run, body=body, directory=str(wanted.directory))
        plans.keep_patches(connection, wanted.patches.texts, created_by=by)
        accepted = _start(connection, contexts, by=by, limit_bytes=runtime.settings.context_limit_bytes)
        for each in tools:  # those that the project had already; last, since whoever calls the tool waits for it
            configure(connection, project_id, each.context)
    runtime.hints.lanes(accepted)
    return Run(roster.run, roster.name, project_id)


def _start(connection: Connection, contexts: Contexts, *, by: str, limit_bytes: int) -> list[dict[str, Any]]:
    """Skip what is left out, and start the run: all pending before a scheduler can see any of it."""
    roster = contexts.roster
    rows = []
    for each in contexts.plan.workstreams:
        if each.skip:
            reason = "completed in an earlier run" if each.id in contexts.carried else "the plan leaves it out"
            skip = Firing(roster.workstreams[each.id], "skip", by, data={"reason": reason})
            hint = {"workflow_type": "workstream", "entity_id": roster.entity_id(each.id)}
            rows.append(firing.row(skip, roster.workstreams[each.id], limit_bytes=limit_bytes) | hint)
    start = firing.row(Firing(roster.run, "start", by), roster.run, limit_bytes=limit_bytes)
    rows.append(start | {"workflow_type": "run", "entity_id": roster.name})
    accepted = requests.accept(connection, rows)
    return [row | dict(accepted[row["request_id"]]) for row in rows]


def _run_name(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(IDENTIFIER, name):
        raise BadInput(
            f"a run's name is 1 to 60 letters, digits, '.', '_' and '-', beginning with a letter or digit; got {name!r}"
        )
    return name
