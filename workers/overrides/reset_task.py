"""Make an ended task anew, in its place: `reset-task`, and leaving out a step that failed (ruling 1, SSOT 5.2.1).

A terminal state never changes: the new task is linked by `retry_of`. What the scheduler gave up because of the old one,
tasks cancelled and gates that could never pass, is made anew with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from db import instances, overrides, scheduling
from workers import births
from workers.births import Birth
from workers.overrides import tasks
from workers.overrides.goals import goal
from workers.overrides.operation import CannotOverride, Done, Operation, Order, name_of, operating
from workers.overrides.tasks import Seen, hold_and_let_go, leave_out, recount, require_of_a_run
from workers.runtime import Runtime
from workflows.orchestration import owed

SPENT = ("failed", "cancelled")


def reset_task(runtime: Runtime, ref: str, order: Order, *, clear_retry_count: bool = False) -> Done:
    """Try a task again from the beginning: a new task in its place; one that is still at work is cancelled first.

    Args:
        runtime: whose database.
        ref: the task; a step of seed 000 that failed is retried as its own machine has it.
        order: the operator, and why.
        clear_retry_count: the new one may retry as often as the first; else what was used up stays so.

    Raises:
        CannotOverride: it is completed, was reset before, or its workstream has ended; nothing was changed.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order) as operation:
        instance = operation.find(ref, "task", "step")
        if instance["workflow_type"] == "step":
            operation.walk(instance, goal("reset-task", instance))
        else:
            seen = require_of_a_run(operation, instance)
            made = _made_anew(operation, seen, keep_count=not clear_retry_count)
            hold_and_let_go(operation, made)
            recount(operation, seen.around)
    return operation.done


def skip_step(runtime: Runtime, ref: str, order: Order) -> Done:
    """Leave a step (a task) out: it is cancelled, and whatever waits for it goes on without it. Raises as `reset_task`.

    One that failed is made anew and left out at once. A step of seed 000 counts as done: its machine has no other way.
    """
    with operating(runtime, order) as operation:
        instance = operation.find(ref, "task", "step")
        if instance["workflow_type"] == "step":
            operation.walk(instance, goal("skip-step", instance), {"success": {"skipped": True}})
        else:
            seen = require_of_a_run(operation, instance)
            if seen.around["state"] in SPENT:
                made = _made_anew(operation, seen, keep_count=False)
                around = overrides.task(operation.connection, made["id"])
                assert around
                seen = Seen(made, around)
            leave_out(operation, seen)
    return operation.done


def _made_anew(operation: Operation, seen: Seen, *, keep_count: bool) -> RowMapping:
    """The task in this one's place, just born."""
    _require_open(seen)
    again = Anew(operation, seen.around["run_id"])
    again.gather(seen.around["task_id"])
    again.run_gates_again()
    again.make(seen.around["task_id"], keep_count=keep_count)
    if seen.around["state"] not in tasks.ENDED:
        operation.walk(seen.instance, "cancelled", {"user_cancelled": {"reset": True}})
    return instances.find(operation.connection, str(again.made[seen.around["task_id"]]))


def _require_open(seen: Seen) -> None:
    around, name = seen.around, name_of(seen.instance)
    tasks.require_no_patch(seen)
    if around["left_out"]:
        raise CannotOverride(
            f"{name} was reset before: {around['retried_by']} is in its place"
            if around["retried_by"]
            else f"{name} was left out"
        )
    if around["state"] == "completed":
        raise CannotOverride(f"{name} is completed, and others went on from there; run the plan again instead")
    for what in ("workstream", "run"):
        if around[f"{what}_state"] in owed.ENDED[what]:
            raise CannotOverride(
                f"the {what} {around[what]} of {name} is {around[f'{what}_state']}; what is left of its run is done by "
                f"`interlock run resume {around['run']}`"
            )


@dataclass(slots=True)
class Anew:
    """What is made anew together: a task, and all that was given up because of it."""

    operation: Operation
    run_id: UUID
    olds: dict[UUID, RowMapping] = field(default_factory=dict)
    gates: set[UUID] = field(default_factory=set)
    made: dict[UUID, UUID] = field(default_factory=dict)

    def gather(self, task_id: UUID) -> None:
        """Find what was lost because of a task, and what was lost because of that."""
        found, frontier = {task_id}, {task_id}
        while frontier:
            lost = overrides.lost_because(self.operation.connection, frontier)
            self.gates |= {each for kind, each in lost if kind == "test_gate"}
            frontier = {each for _, each in lost} - found
            found |= frontier
        given = instances.find_many(self.operation.connection, sorted(found - self.gates))
        self.olds = {UUID(str(key)): row for key, row in given.items()}
        self._leave_the_hopeless(task_id)

    def _leave_the_hopeless(self, first: UUID) -> None:
        """What also waits for something else that will never complete stays cancelled, and all that waits for it."""
        waits = overrides.waits_of(self.operation.connection, self.olds)
        while dead := {
            link["source_id"]: link
            for link in waits
            if link["source_id"] in self.olds and link["target_id"] not in self.olds and self._never(link)
        }:
            if first in dead:
                name, state = dead[first]["name"], dead[first]["state"]
                raise CannotOverride(
                    f"{name_of(self.olds[first])} waits for {name}, which is {state}: reset that first"
                )
            self.olds = {each: row for each, row in self.olds.items() if each not in dead}

    @staticmethod
    def _never(link: RowMapping) -> bool:
        return link["kind"] == "task" and link["role"] == "depends_on" and link["state"] in SPENT

    def run_gates_again(self) -> None:
        """A gate that failed for good gets another try: a new one that is named wherever the old one was."""
        connection = self.operation.connection
        for old in instances.find_many(connection, sorted(self.gates)).values():
            if old["current_state"] == "FAILED":
                needs = scheduling.gates_needed(connection, old["id"])
                new = self._birth(old, {"reruns_left": 0, "depends_on": needs})
                self._deliver(new, old)
                scheduling.relink_gate(connection, old["id"], new.id)

    def make(self, first: UUID, *, keep_count: bool) -> None:
        """Make the tasks, and put each in its old one's place."""
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
            self._deliver(
                Birth(
                    birth.definition,
                    birth.entity_id,
                    birth.project_id,
                    birth.created_by,
                    {**birth.context, **links},
                    birth.id,
                ),
                self.olds[old_id],
            )
            overrides.replace_task(self.operation.connection, old_id, birth.id)

    def _waits(self) -> Mapping[UUID, Mapping[str, list[UUID]]]:
        waits: dict[UUID, dict[str, list[UUID]]] = defaultdict(lambda: defaultdict(list))
        for link in overrides.waits_of(self.operation.connection, self.olds):
            waits[link["source_id"]][link["role"]].append(link["target_id"])
        return waits

    def _in_order(self, waits: Mapping[UUID, Mapping[str, list[UUID]]]) -> Iterable[UUID]:
        """What others depend on comes before them: births may only name what is there."""
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
        around = overrides.task(self.operation.connection, old_id)
        return int(around["retry_count"]) if around else 0

    def _birth(self, old: RowMapping, changed: Mapping[str, Any]) -> Birth:
        base = old["entity_id"].partition("~")[0][:90]
        name = overrides.free_name(self.operation.connection, old["project_id"], old["workflow_type"], base)
        return Birth(
            definition=self.operation.runtime.catalogue.get(old["workflow_type"]),
            entity_id=name,
            project_id=old["project_id"],
            created_by=self.operation.order.by,
            context={**old["context"], **changed, "retry_of": str(old["id"])},
        )

    def _deliver(self, birth: Birth, old: RowMapping) -> None:
        delivered = births.deliver(self.operation.connection, [birth])
        if birth.id not in delivered.new:
            raise CannotOverride(f"{birth.entity_id} exists already; try again")
        self.operation.done.made[birth.entity_id] = birth.id
        self.operation.done.notes.append(f"{birth.entity_id} takes the place of {name_of(old)}")
