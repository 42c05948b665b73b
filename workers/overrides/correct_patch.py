"""Leads a task on whose patch was set aside, with a corrected patch: `interlock patch create` (PATCH-13).

The task is made anew, and the corrected patch is its work: it is checked, applied, judged by the task's gates and
committed like any other. If the workstream has ended, it is done again as a whole (WORKSTREAM-15).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides, retries
from interlock.db.operations.overrides import OverriddenTask
from interlock.db.orchestration import commands, patches, plans
from interlock.db.orchestration.commands import CommandRow, Origin
from interlock.db.orchestration.patches import PatchEntry
from interlock.workers.effects.plan_files import named
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.retry_workstream import WorkstreamRetry, require_retryable
from interlock.workers.overrides.task_replacement import SPENT, Correction, TaskReplacement, base_name, in_order
from interlock.workers.overrides.transaction import (
    CannotOverride,
    Done,
    Operation,
    OverrideOrder,
    again_if_collided,
    name_of,
    operating,
)
from interlock.workers.runtime import Runtime
from interlock.workflows.input.arguments import FreeText, door
from interlock.workflows.machines.orchestration.reserved_fields import without_command
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED


@door
@again_if_collided
def correct_patch(
    runtime: Runtime, based_on: str, text: FreeText | None, order: OverrideOrder, *, workstream: str | None = None
) -> Done:
    """Have a task land a corrected patch, in place of one that was quarantined, rolled back or dropped.

    Args:
        runtime: whose database.
        based_on: the ledger entry that was set aside, by name or id.
        text: the corrected diff; None: the old diff, to be tried once more.
        order: the operator, and why; kept with the new task's command, which never changes.
        workstream: where it is to land, by name or id; None: where the old one was to.

    Returns:
        What was made; `notes` says what judges the corrected patch. Its ledger entry is made when the task is carried
        out, linked by `retry_of` to the old one.

    Raises:
        CannotOverride: the old patch may still be committed, no plan asked for it, its task was made anew before, or
            the workstream cannot take it; nothing was changed.
        BadInput: the text is empty or too large.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "patch create", based_on) as operation:
        found = operation.find(based_on, "patch_ledger")
        old = patches.entry(operation.connection, found["id"])
        home = operation.find(workstream or old["workstream_id"], "workstream")
        operation.enter(old["run_id"], found)
        overrides.forget_owed(operation.connection, old["run_id"])  # task and workstream may be about to fail
        task, correction = _corrected(operation, old, text)
        if home["id"] != old["workstream_id"]:
            made = _land_elsewhere(operation, task, home, correction)
        elif home["current_state"] in SPENT:
            made = _do_again(operation, task, home, correction)
        else:
            made = _lead_on(operation, task, home, correction)
        judges = retries.judges_of(operation.connection, made)
        names = f"the gates {', '.join(judges)}" if judges else "no gate"
        operation.done.notes.append(f"judged by its checks (format, scope, constraints), and by {names}")
    return operation.done


def _corrected(operation: Operation, old: PatchEntry, text: str | None) -> tuple[InstanceRow, Correction]:
    """The task whose patch it was, and what is to be landed instead."""
    connection, name = operation.connection, old["entity_id"]
    if (state := patches.state_of(connection, old["ledger_id"])) not in patches.OVER:
        raise CannotOverride(f"{name} is {state}; only one that is {' or '.join(patches.OVER)} can be replaced")
    task_id = old["task_id"]
    command = commands.of(connection, task_id) if task_id else None
    if task_id is None or command is None or command.kind != "patch":
        raise CannotOverride(f"no plan asked for {name} to land: run a plan with the corrected patch instead")
    patch = named([("", text if text is not None else old["body"])])
    plans.store_patches(connection, patch.texts, created_by=operation.order.by)
    wanted = replace(command, patch_id=patch.of_task[""])
    return instances.by_id(connection, task_id), Correction(wanted, old["ledger_id"])


def _do_again(operation: Operation, task: InstanceRow, home: InstanceRow, correction: Correction) -> UUID:
    """Do the whole workstream again, which has ended; returns the task in this one's place."""
    again = require_retryable(operation, home)
    _require_in_place(operation, task)
    retry = WorkstreamRetry(operation, again["run_id"], corrected={task["id"]: correction})
    retry.make(home["id"])
    return retry.made[task["id"]]


def _lead_on(operation: Operation, task: InstanceRow, home: InstanceRow, correction: Correction) -> UUID:
    """Make the task anew, in its workstream, which has not ended; returns the new one."""
    _require_open(home)
    details = _require_in_place(operation, task)
    replacement = TaskReplacement(operation, details["run_id"], corrected={task["id"]: correction})
    replacement.gather(task["id"])
    replacement.run_gates_again()
    replacement.make({})
    if details["state"] not in ENDED["task"]:
        operation.walk(operation.again(task), "cancelled", {"user_cancelled": {"reset": True}})
    overrides.recount(operation.connection, details["run_id"])
    return replacement.made[task["id"]]


def _require_in_place(operation: Operation, task: InstanceRow) -> OverriddenTask:
    details = overrides.task(operation.connection, task["id"])
    assert details
    if details["left_out"]:
        by, name = details["retried_by"], name_of(task)
        raise CannotOverride(f"{name} was made anew before: {by} takes its place" if by else f"{name} was skipped")
    return details


def _require_open(home: InstanceRow) -> None:
    name, state = name_of(home), home["current_state"]
    if state in (*ENDED["workstream"], "validating"):
        raise CannotOverride(
            f"{name} is {state}: it takes no more patches. Name a workstream that has not ended (--workstream)"
            + (f", or do it again ({offered('run', 'retry', home['id'], reason='WHY')})" if state in SPENT else "")
        )


def _land_elsewhere(operation: Operation, task: InstanceRow, home: InstanceRow, correction: Correction) -> UUID:
    """Make a task for it in another workstream, with gates there that judge it by the commands of the task's own gates.

    Returns the new task. The old one stays in its place.
    """
    operation.enter(_run_of(home), home)
    _require_open(operation.again(home))
    judges = retries.judges(operation.connection, task["id"])
    made: dict[UUID, str] = {}
    for each in in_order(judges, judges):
        gate, row = instances.by_id(operation.connection, each), commands.of(operation.connection, each)
        needs = [made[other] for other in judges[each]]
        made[each] = str(_born(operation, gate, home, row, {"moment": "task", "depends_on": needs}))
    waits = {"gates": [*made.values()], "depends_on": [], "blocked_by_gates": [], "retry_count": 0}
    return _born(operation, task, home, correction.command, waits | {"corrects": str(correction.ledger_id)})


def _born(
    operation: Operation, like: InstanceRow, home: InstanceRow, row: CommandRow | None, changed: Mapping[str, Any]
) -> UUID:
    connection, type_, project = operation.connection, like["workflow_type"], home["project"]
    place = {"workstream_id": str(home["id"]), "run_id": home["context"]["run_id"]}
    context = {name: said for name, said in without_command(like["context"]).items() if name != "retry_of"}
    birth = Birth(
        definition=operation.runtime.catalogue.get(type_),
        entity_id=overrides.free_name(connection, project, type_, base_name(like)),
        project=project,
        created_by=operation.order.by,
        context={**context, **place, **changed},
        proof=operation.order.proof,
    )
    birth, _ = creation.deliver_anyhow(connection, birth)
    if row:
        origin = Origin("operator", operation.order.by, operation.order.reason)
        commands.store(connection, _run_of(home), {birth.id: row}, origin)
    operation.done.made[birth.entity_id] = birth.id
    operation.done.notes.append(f"{birth.entity_id} is made in {name_of(home)}")
    return birth.id


def _run_of(workstream: InstanceRow) -> UUID:
    return UUID(str(workstream["context"]["run_id"]))
