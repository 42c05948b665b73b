"""Replaces ended tasks by new ones: `reset-task`, and leaving out a failed step (RECOVER-4, RECOVER-10).

A terminal state never changes, so a new task is made and linked by `retry_of`. Tasks that were cancelled, and gates
that were lost, because of the old task are replaced with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides
from interlock.db.orchestration import commands, scheduling
from interlock.db.orchestration.commands import Origin
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides import tasks
from interlock.workers.overrides.target_states import target_state
from interlock.workers.overrides.tasks import TaskDetails, hold_and_let_go, leave_out, require_of_a_run
from interlock.workers.overrides.transaction import CannotOverride, Done, Operation, OverrideOrder, name_of, operating
from interlock.workers.runtime import Runtime
from interlock.workflows.input.arguments import door
from interlock.workflows.input.names import likeness
from interlock.workflows.machines.orchestration.reserved_fields import without_command
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling import next_trigger

SPENT = ("failed", "cancelled")


@door
def reset_task(runtime: Runtime, ref: str, order: OverrideOrder, *, clear_retry_count: bool = False) -> Done:
    """Restart a task from the beginning, as a new task in its place. A task that has not ended is cancelled first.

    Args:
        runtime: whose database.
        ref: the task; a failed step of lineage 0.1.0 is retried by its own machine instead.
        order: the operator, and why.
        clear_retry_count: give the new task all retries; otherwise, the retries used up stay used up.

    Raises:
        CannotOverride: it is completed, was reset before, or its workstream has ended; nothing was changed.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "reset-task", ref) as operation:
        instance = operation.find(ref, "task", "step")
        if instance["workflow_type"] == "step":
            operation.walk(instance, target_state("reset-task", instance))
        else:
            task = require_of_a_run(operation, instance)
            made = _replace(operation, task, keep_count=not clear_retry_count)
            hold_and_let_go(operation, made)
            overrides.recount(operation.connection, task.row["run_id"])
    return operation.done


@door
def skip_step(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Leave a step (a task) out: it is cancelled, and its dependents go on without it. Raises as `reset_task`.

    A failed task is replaced, and its replacement is left out at once. A step 0.1.0 moves to success: its machine has
    no other way.
    """
    with operating(runtime, order, "skip-step", ref) as operation:
        instance = operation.find(ref, "task", "step")
        if instance["workflow_type"] == "step":
            operation.walk(instance, target_state("skip-step", instance), {"success": {"skipped": True}})
        else:
            task = require_of_a_run(operation, instance)
            if task.row["state"] in SPENT:
                made = _replace(operation, task, keep_count=False)
                details = overrides.task(operation.connection, made["id"])
                assert details
                task = TaskDetails(made, details)
            leave_out(operation, task)
    return operation.done


def _replace(operation: Operation, task: TaskDetails, *, keep_count: bool) -> InstanceRow:
    """The new task in this one's place."""
    _require_open(task)
    replacement = TaskReplacement(operation, task.row["run_id"])
    replacement.gather(task.row["task_id"])
    replacement.run_gates_again()
    replacement.make(task.row["task_id"], keep_count=keep_count)
    if task.row["state"] not in next_trigger.ENDED["task"]:
        operation.walk(task.instance, "cancelled", {"user_cancelled": {"reset": True}})
    return instances.by_id(operation.connection, replacement.made[task.row["task_id"]])


def _require_open(task: TaskDetails) -> None:
    details, name = task.row, name_of(task.instance)
    tasks.require_no_patch(task)
    if details["left_out"]:
        raise CannotOverride(
            f"{name} was reset before: {details['retried_by']} replaces it"
            if details["retried_by"]
            else f"{name} was skipped"
        )
    if details["state"] == "completed":
        raise CannotOverride(f"{name} is completed, and other tasks have used its result; run the plan again instead")
    require_unended(name, details)


def require_unended(name: str, details: RowMapping) -> None:
    """Refuse to replace a part of a workstream or run that has ended.

    Args:
        name: of the part.
        details: names and states of its workstream and run.

    Raises:
        CannotOverride: it names what has ended, and how to go on.
    """
    for what in ("workstream", "run"):
        if details[f"{what}_state"] in next_trigger.ENDED[what]:
            raise CannotOverride(
                f"the {what} {details[what]} of {name} is {details[f'{what}_state']}; run the rest of its run "
                "again with " + offered("run", "resume", details["run_id"])
            )


@dataclass(slots=True)
class TaskReplacement:
    """A task or a gate, and all that was given up because of it, to be replaced together."""

    operation: Operation
    run_id: UUID
    olds: dict[UUID, InstanceRow] = field(default_factory=dict)
    gates: set[UUID] = field(default_factory=set)
    made: dict[UUID, UUID] = field(default_factory=dict)

    def gather(self, first: UUID, *, misjudged: bool = False) -> None:
        """Find what was lost because of a task or gate, directly and indirectly.

        Args:
            first: the task; or the gate, which is among `gates` already.
            misjudged: also the tasks that failed because of these gates.
        """
        found, frontier = {first}, {first}
        while frontier:
            lost = overrides.lost_because(self.operation.connection, frontier, misjudged=misjudged)
            self.gates |= {each for kind, each in lost if kind == "test_gate"}
            frontier = {each for _, each in lost} - found
            found |= frontier
        self.olds = instances.by_ids(self.operation.connection, sorted(found - self.gates))
        self._leave_out_uncompletable(first)

    def _leave_out_uncompletable(self, first: UUID) -> None:
        """Leave out tasks that also depend on a task that will never complete, and all that depend on them."""
        waits = overrides.waits_of(self.operation.connection, self.olds)
        while dead := {
            link["source_id"]: link
            for link in waits
            if link["source_id"] in self.olds and link["target_id"] not in self.olds and self._never_completes(link)
        }:
            if first in dead:
                name, state = dead[first]["name"], dead[first]["state"]
                raise CannotOverride(
                    f"{name_of(self.olds[first])} waits for {name}, which is {state}: reset that task first"
                )
            self.olds = {each: row for each, row in self.olds.items() if each not in dead}

    @staticmethod
    def _never_completes(link: RowMapping) -> bool:
        return link["kind"] == "task" and link["role"] == "depends_on" and link["state"] in SPENT

    def run_gates_again(self) -> None:
        """Give each gate that failed for good another try: a new gate that replaces it in all links."""
        connection = self.operation.connection
        for old in instances.by_ids(connection, sorted(self.gates)).values():
            if old["current_state"] == "FAILED":
                needs = scheduling.gates_needed(connection, old["id"])
                new = self._birth(old, {"reruns_left": 0, "depends_on": needs})
                self._deliver(new, old)
                scheduling.relink_gate(connection, old["id"], new.id)

    def make(self, first: UUID, *, keep_count: bool) -> None:
        """Create the new tasks, and put each in its old one's place."""
        waits = self._waits()
        new = {
            old_id: self._birth(old, {"retry_count": self._count(old_id) if keep_count and old_id == first else 0})
            for old_id, old in self.olds.items()
        }
        self.made = {old_id: birth.id for old_id, birth in new.items()}
        for old_id in self._in_order(waits):
            links = {
                role: [str(self.made.get(each, each)) for each in waits[old_id].get(role, ())]
                for role in ("depends_on", "gates", "blocked_by_gates")
            }
            birth = new[old_id]
            self._deliver(replace(birth, context={**birth.context, **links}), self.olds[old_id])
            overrides.replace_task(self.operation.connection, old_id, birth.id)

    def _waits(self) -> Mapping[UUID, Mapping[str, list[UUID]]]:
        waits: dict[UUID, dict[str, list[UUID]]] = defaultdict(lambda: defaultdict(list))
        for link in overrides.waits_of(self.operation.connection, self.olds):
            waits[link["source_id"]][link["role"]].append(link["target_id"])
        return waits

    def _in_order(self, waits: Mapping[UUID, Mapping[str, list[UUID]]]) -> Iterable[UUID]:
        """The old tasks, dependencies first, because a new instance may only link to existing ones."""
        done: dict[UUID, None] = {}
        while len(done) < len(self.olds):
            ready = [
                each
                for each in self.olds
                if each not in done
                and all(other in done for other in waits[each].get("depends_on", ()) if other in self.olds)
            ]
            done |= dict.fromkeys(ready)
        return done

    def _count(self, old_id: UUID) -> int:
        details = overrides.task(self.operation.connection, old_id)
        return int(details["retry_count"]) if details else 0

    def _birth(self, old: InstanceRow, changed: Mapping[str, Any]) -> Birth:
        base = likeness(old["entity_id"].partition("~")[0][:90])
        name = overrides.free_name(self.operation.connection, old["project"], old["workflow_type"], base)
        return Birth(
            definition=self.operation.runtime.catalogue.get(old["workflow_type"]),
            entity_id=name,
            project=old["project"],
            created_by=self.operation.order.by,
            context={**without_command(old["context"]), **changed, "retry_of": str(old["id"])},
        )

    def _deliver(self, birth: Birth, old: InstanceRow) -> None:
        birth, _ = creation.deliver_anyhow(self.operation.connection, birth)
        order = self.operation.order
        commands.copy(self.operation.connection, old["id"], birth.id, Origin("operator", order.by, order.reason))
        self.operation.done.made[birth.entity_id] = birth.id
        self.operation.done.notes.append(f"{birth.entity_id} takes the place of {name_of(old)}")
