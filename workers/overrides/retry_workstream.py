"""Does an ended workstream again, in its running run: `interlock run retry` (WORKSTREAM-15).

A terminal state never changes, so the workstream is made anew with its tasks and gates, each linked by `retry_of`. The
new one has a branch of its own, which begins at the base branch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides, retries
from interlock.db.operations.retries import Links, RetriedWorkstream
from interlock.workers.engine import creation
from interlock.workers.engine.creation import RANDOM_BYTES, Birth
from interlock.workers.overrides.task_replacement import (
    SPENT,
    Correction,
    TaskReplacement,
    base_name,
    context_again,
    give_commands,
)
from interlock.workers.overrides.tasks import require_no_open_patch
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
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED

KINDS = ("workstream", "test_gate", "task")  # in this order they can be created: owners first
ROLES = {"workstream": ("depends_on", "gates"), "test_gate": ("depends_on",)}


@door
@again_if_collided
def retry_workstream(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Do a failed or cancelled workstream again in the same run: a new one in its place, with new tasks and gates.

    Workstreams that were cancelled or skipped only because of it are made anew, too. What an operator left out stays
    left out.

    Args:
        runtime: whose database.
        ref: the workstream.
        order: the operator, and why.

    Raises:
        CannotOverride: it has not failed, was done again before, waits for one that failed, or its run has ended.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "retry-workstream", ref) as operation:
        workstream = require_retryable(operation, operation.find(ref, "workstream"))
        WorkstreamRetry(operation, workstream["run_id"]).make(workstream["ws_id"])
    return operation.done


def require_retryable(operation: Operation, instance: InstanceRow) -> RetriedWorkstream:
    """The workstream, with its run's scheduler up to date, if it can be done again.

    Raises:
        CannotOverride: it cannot; the message says what can be done instead.
    """
    name = name_of(instance)
    if (found := retries.workstream(operation.connection, instance["id"])) is None:
        raise CannotOverride(
            f"{name} has the legacy version {instance['definition_version']}, which belongs to no run with a scheduler"
        )
    operation.enter(found["run_id"], instance)
    operation.settle(found["run_id"])  # what follows from its end comes first: its parts end, and perhaps its run
    row = retries.workstream(operation.connection, instance["id"])
    assert row
    if row["run_state"] in ENDED["run"]:
        resume = offered("run", "resume", row["run_id"])
        raise CannotOverride(
            f"the run {row['run']} of {name} is {row['run_state']}; run the rest of it again with {resume}"
        )
    if row["left_out"]:
        raise CannotOverride(f"{name} was done again before: {row['retried_by']} takes its place")
    if row["state"] not in SPENT:
        raise CannotOverride(f"{name} is {row['state']}; only a workstream that failed or was cancelled is done again")
    if lacks := row["lacks"]:
        first = offered("run", "retry", lacks["id"], reason="WHY")
        also = "" if lacks["state"] == "skipped" else f"; do that one again first: {first}"
        raise CannotOverride(f"{name} depends on {lacks['name']}, which is {lacks['state']}{also}")
    return row


@dataclass(slots=True)
class WorkstreamRetry:
    """Workstreams of a run that are made anew together, with their tasks and gates.

    Attributes:
        corrected: task -> what the one in its place lands instead.
        made: old workstream, task or gate -> the new one in its place.
    """

    operation: Operation
    run_id: UUID
    corrected: Mapping[UUID, Correction] = field(default_factory=dict)
    made: dict[UUID, UUID] = field(default_factory=dict)

    def make(self, workstream_id: UUID) -> None:
        """Make a workstream anew, and all that was given up only because of it."""
        connection = self.operation.connection
        homes = instances.by_ids(connection, retries.given_up(connection, workstream_id))
        found = retries.parts(connection, homes)
        olds = homes | instances.by_ids(connection, [each["id"] for each in found])
        new_ids = {each: uuid7() for each in olds}
        places = {old: new_ids[each["id"]] for each in found for old in each["was"]} | new_ids
        links = retries.links_of(connection, olds)
        judges = self._outside_judges(links, places)
        contexts = {
            each: context_again(old, self.corrected.get(each)) | _changed(old, links[each], places | judges)
            for each, old in olds.items()
        }
        for each in found:
            if each["kind"] == "test_gate":
                contexts[each["id"]]["reruns_left"] = each["reruns"]
            else:
                contexts[UUID(olds[each["id"]]["context"]["workstream_id"])]["task_count"] += 1
        self.made = new_ids
        self._deliver(olds, homes[workstream_id], contexts)
        retries.replace(connection, self.run_id, self.made, homes)
        self._go_on_outside({new for old, new in self.made.items() if olds[old]["current_state"] != "PASSED"})
        overrides.recount(connection, self.run_id)

    def _outside_judges(self, links: Links, places: Mapping[UUID, UUID]) -> dict[UUID, UUID]:
        """Gates of other workstreams that passed, and have to judge the new tasks: each is run again (GATE-7)."""
        outside = {each for named in links.values() for each in named.get("gates", ())} - places.keys()
        judges = TaskReplacement(self.operation, self.run_id)
        judges.judge_again(outside)
        return judges.made

    def _deliver(self, olds: Mapping[UUID, InstanceRow], first: InstanceRow, contexts: Mapping[UUID, Any]) -> None:
        connection, order = self.operation.connection, self.operation.order
        names = self._names(olds, first)
        births = [
            Birth(
                definition=self.operation.runtime.catalogue.get(old["workflow_type"]),
                entity_id=names[each],
                project=old["project"],
                created_by=order.by,
                context=contexts[each],
                id=self.made[each],
                proof=order.proof,
            )
            for each, old in sorted(olds.items(), key=lambda pair: KINDS.index(pair[1]["workflow_type"]))
        ]
        if len(creation.deliver(connection, births).new) < len(births):
            raise CannotOverride(
                f"somebody has just created an instance with a name that {name_of(first)} needs: try again"
            )
        give_commands(self.operation, self.run_id, self.made, self.corrected)
        for birth in births:
            self.operation.done.made[birth.entity_id] = birth.id
        self.operation.done.notes += [f"{names[each]} takes the place of {name_of(old)}" for each, old in olds.items()]

    def _names(self, olds: Mapping[UUID, InstanceRow], first: InstanceRow) -> dict[UUID, str]:
        """The names of the new instances: all have the number of the first workstream's, or a random end if taken."""
        connection, project = self.operation.connection, first["project"]
        _, _, number = overrides.free_name(connection, project, "workstream", base_name(first)).rpartition("~")
        names: dict[UUID, str] = {}
        for kind in KINDS:
            wanted = {each: f"{base_name(old)}~{number}" for each, old in olds.items() if old["workflow_type"] == kind}
            used = retries.taken(connection, project, kind, wanted.values())
            for each, name in wanted.items():
                names[each] = f"{name}-{token_hex(RANDOM_BYTES)}" if name in used else name
                used.add(name)
        return names

    def _go_on_outside(self, because: Collection[UUID]) -> None:
        """Make anew what was given up in other workstreams that have not ended: tasks that waited for these."""
        outside = TaskReplacement(self.operation, self.run_id)
        outside.gather(*because, misjudged=True, also=False)
        for old in outside.olds.values():
            require_no_open_patch(self.operation, old)
        outside.run_gates_again()
        outside.make({})


def _changed(old: InstanceRow, links: Mapping[str, list[UUID]], places: Mapping[UUID, UUID]) -> dict[str, Any]:
    """What changes in the context of an instance in this one's place: it names those that take the places of others."""
    context: dict[str, Any] = {}
    for role in ROLES.get(old["workflow_type"], ("depends_on", "gates", "blocked_by_gates")):
        named = [places.get(each, each) for each in links.get(role, ())]
        if role == "gates":  # those that an operator waived judge again
            named += [places[each] for each in map(UUID, old["context"].get(role, ())) if each in places]
        context[role] = [str(each) for each in dict.fromkeys(named)]
    match old["workflow_type"]:
        case "workstream":
            context["task_count"] = 0
        case "task":
            context["retry_count"] = 0
    if home := old["context"].get("workstream_id"):
        context["workstream_id"] = str(places[UUID(home)])
    return context
