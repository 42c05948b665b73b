"""Turns a plan into a run: creates all its instances and starts it, in one transaction."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.request_rows import by_state, internal, own_id
from interlock.db.orchestration import commands, plans
from interlock.db.orchestration.breakers import configure
from interlock.db.orchestration.commands import Origin
from interlock.workers.effects import plan_files
from interlock.workers.effects.plan_files import Patches
from interlock.workers.engine import creation, trigger_request
from interlock.workers.engine.creation import Birth
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.orchestration import run_instances
from interlock.workers.orchestration.contexts import Contexts, assign_ids
from interlock.workers.runtime import Runtime
from interlock.workflows.approvals import can_be_given
from interlock.workflows.errors import AlreadyExists, BadInput
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door
from interlock.workflows.input.limits import PLAN_BYTES, PRIORITIES
from interlock.workflows.plan.field_types import IDENTIFIER
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.remaining import rest


@dataclass(frozen=True, slots=True)
class Run:
    """A run that was accepted."""

    id: UUID
    name: str
    project: str


@dataclass(frozen=True, slots=True)
class Submission:
    """The material of a run.

    Attributes:
        plan: settled and complete; stored with the run.
        project: of the run and all its instances.
        directory: the base of its relative paths.
        by: who runs it.
        priority: among runs.
        patches: their texts, unless they are stored already.
        before, carried, carried_tasks: see `Contexts`.
        proof: the token that it is asked for with (`token:ID`), which PostgreSQL judges; None: with none.
    """

    plan: Plan
    project: str
    directory: Path
    by: str
    priority: int
    patches: Patches
    before: Mapping[str, UUID] = field(default_factory=dict)
    carried: Mapping[str, UUID] = field(default_factory=dict)
    carried_tasks: Mapping[str, UUID] = field(default_factory=dict)
    proof: str | None = None


@door
def submit(
    runtime: Runtime, plan: Plan, *, by: str, directory: Path, run_name: str | None = None, priority: int = 0
) -> Run:
    """Create a run of a plan, and start it.

    Args:
        runtime: whose database.
        plan: as `read_plan` returns it.
        by: who runs it.
        directory: the base of the plan's relative paths.
        run_name: unique in the project; default: the plan's name with a suffix.
        priority: among runs, -1,000 to 1,000; higher goes first.

    Returns:
        The accepted run; work begins when workers see it.

    Raises:
        AlreadyExists: the project has a run of that name.
        BadInput: the repository, a patch, a name or a context is not valid. Nothing was written.
    """
    return deliver(
        runtime,
        checked(runtime, plan, project=runtime.settings.project, by=by, directory=directory, priority=priority),
        run_name,
    )


def checked(
    runtime: Runtime,
    plan: Plan,
    *,
    project: str,
    by: str,
    directory: Path,
    priority: int,
    proof: str | None = None,
) -> Submission:
    """The material of a run of a plan, whose files are checked and read.

    Args:
        runtime: whose settings.
        plan, by, directory, priority: see `submit`.
        project: of a plan that names none.
        proof: see `Submission`.

    Raises:
        BadInput: as `submit`.
    """
    folder = directory.resolve()
    if priority not in PRIORITIES:
        raise BadInput(f"a run's priority is from {PRIORITIES[0]:,} to {PRIORITIES[-1]:,}; got {priority:,}")
    plan_files.require_phases(plan, runtime.settings)
    plan_files.require_repository(plan, folder)
    plan_files.require_sandbox(plan, folder, runtime.settings)
    patches = plan_files.patches(plan, folder)
    return Submission(plan, plan.project or project, folder, by, priority, patches, proof=proof)


def deliver(runtime: Runtime, wanted: Submission, run_name: str | None = None) -> Run:
    """Write a submission whose files were checked, and start its run. Raises as `submit`."""
    with transaction(runtime.database) as connection:
        run, wakeups = write(runtime, connection, wanted, run_name)
    runtime.wakeups.partitions(wakeups)
    return run


def write(
    runtime: Runtime, connection: Connection, wanted: Submission, run_name: str | None = None
) -> tuple[Run, list[dict[str, Any]]]:
    """Write a submission in the caller's transaction; returns its run, and the wake-ups to send after the commit.

    Raises as `submit`.
    """
    due = rest(wanted.plan, wanted.carried.keys())
    ids = assign_ids(due, require_run_name(run_name))
    earlier = (wanted.before, wanted.carried, wanted.carried_tasks)
    contexts = Contexts(due, wanted.project, ids, wanted.patches.of_task, *earlier)
    by, project = names.name("by", wanted.by), wanted.project
    _require_approvers(due, by)
    body = trigger_request.checked("plan", wanted.plan.model_dump(mode="json"), PLAN_BYTES)
    run, tools, phases = (
        [*births] if wanted.proof is None else [replace(each, proof=wanted.proof) for each in births]
        for births in (
            run_instances.members(runtime, contexts, by=by, priority=wanted.priority),
            run_instances.breakers(runtime, contexts, by=by),
            run_instances.phases(runtime, contexts, by=by),
        )
    )
    command_rows = run_instances.commands(runtime, contexts, run)
    creation.deliver(connection, tools)
    begun = _begin_phases(connection, wanted.plan, phases)
    if len(creation.deliver(connection, run).new) < len(run):
        raise AlreadyExists(f"project {project} has a run named {ids.name} already; choose another name")
    plans.store(connection, ids.run, body=body, directory=str(wanted.directory))
    plans.store_patches(connection, wanted.patches.texts, created_by=by)
    commands.store(connection, ids.run, command_rows, Origin("plan", by))
    accepted = _start(connection, contexts, wanted, limit_bytes=runtime.settings.context_limit_bytes)
    for each in tools:  # those the project had already; last, since callers of the tools wait for the lock
        reason = f"configured by the plan of run {ids.name}"
        configure(connection, project, each.entity_id, each.context, by=by, reason=reason)
    return Run(ids.run, ids.name, project), [*begun, *accepted]


def _require_approvers(plan: Plan, by: str) -> None:
    """Refuse a plan of which a workstream could never land, because only its submitter may approve it (PHASE-7)."""
    for each in plan.workstreams:
        terms = plan.phases.get(phase := plan.phase_of(each))
        if terms and not each.skip and not can_be_given(terms.approvers, 1, by):
            raise BadInput(
                f"workstream {each.id}: in phase {phase} only {by} may approve, who submits the plan: name another of "
                "its `approvers`, or let somebody else submit it"
            )


def _begin_phases(connection: Connection, plan: Plan, wanted: Sequence[Birth]) -> list[dict[str, Any]]:
    """Create the phases that the project does not have yet, and open them or begin them frozen (PHASE-5)."""
    new = creation.deliver(connection, wanted).new
    rows = []
    for birth in (each for each in wanted if each.id in new):
        frozen = plan.phases[birth.entity_id].frozen
        trigger, metadata = ("begin_frozen", {"reason": frozen}) if frozen else ("open", {})
        row = internal(
            own_id(birth.id, trigger), birth.id, trigger, by=birth.created_by, right=by_state(0), metadata=metadata
        )
        rows.append(row | {"workflow_type": "phase", "entity_id": birth.entity_id})
    accepted = requests.accept(connection, rows)
    return [row | dict(accepted[row["request_id"]]) for row in rows]


def _start(connection: Connection, contexts: Contexts, wanted: Submission, *, limit_bytes: int) -> list[dict[str, Any]]:
    """Skip the workstreams left out, and start the run. All are pending before a scheduler sees any of them."""
    ids, by, said = contexts.ids, wanted.by, {"proof": wanted.proof} if wanted.proof else {}
    rows = []
    for each in contexts.plan.workstreams:
        if each.skip:
            reason = "completed in an earlier run" if each.id in contexts.carried else "the plan leaves it out"
            skip = Firing(ids.workstreams[each.id], "skip", by, data={"reason": reason})
            wakeup = {"workflow_type": "workstream", "entity_id": ids.entity_id(each.id)}
            rows.append(trigger_request.row(skip, ids.workstreams[each.id], limit_bytes=limit_bytes) | wakeup | said)
    start = trigger_request.row(Firing(ids.run, "start", by), ids.run, limit_bytes=limit_bytes)
    rows.append(start | by_state(0).columns | {"workflow_type": "run", "entity_id": ids.name})
    accepted = requests.accept(connection, rows)
    return [row | dict(accepted[row["request_id"]]) for row in rows]


def require_run_name(name: str | None) -> str | None:
    """The name of a run, if it is valid; None: it gets one. Raises `BadInput`."""
    if name is not None and not re.fullmatch(IDENTIFIER, name):
        raise BadInput(
            f"a run's name is 1 to 60 letters, digits, '.', '_' and '-', beginning with a letter or digit; got {name!r}"
        )
    if name is not None:
        names.entity_id(name)
    return name
