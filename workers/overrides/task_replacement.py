"""Makes tasks and gates anew, in the place of those that ended (RECOVER-4, RECOVER-10).

A terminal state never changes, so a new instance is made and linked by `retry_of`. Tasks that were cancelled, and gates
that were lost, because of the old one are replaced with it. A gate that passed judges what is made anew again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides
from interlock.db.operations.overrides import DependencyLink, PartOfRun
from interlock.db.orchestration import commands, scheduling
from interlock.db.orchestration.commands import CommandRow, Origin
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.transaction import CannotOverride, Operation, name_of
from interlock.workflows.input.names import likeness
from interlock.workflows.machines.orchestration.reserved_fields import without_command
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling import next_trigger

SPENT = ("failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Correction:
    """A corrected patch as the work of a task: its command, and the ledger entry in whose place it is to land."""

    command: CommandRow
    ledger_id: UUID


def require_unended(name: str, details: PartOfRun) -> None:
    """Refuse to replace a part of a workstream or run that has ended.

    Args:
        name: of the part.
        details: names, ids and states of its workstream and run.

    Raises:
        CannotOverride: it names what has ended, and how to go on.
    """
    state = details["workstream_state"]
    if details["run_state"] in next_trigger.ENDED["run"]:
        resume = offered("run", "resume", details["run_id"])
        raise CannotOverride(
            f"the run {details['run']} of {name} is {details['run_state']}; run the rest of it again with {resume}"
        )
    if state in SPENT:
        retry = offered("run", "retry", details["workstream_id"], reason="WHY")
        raise CannotOverride(
            f"the workstream {details['workstream']} of {name} is {state}; do all of it again with {retry}"
        )
    if state in next_trigger.ENDED["workstream"]:
        raise CannotOverride(
            f"the workstream {details['workstream']} of {name} is {state}, and stays so; run the plan again instead"
        )


def require_takes_tasks(name: str, details: PartOfRun) -> None:
    """Refuse to make a task anew in a workstream that takes no more tasks (WORKSTREAM-2).

    Args:
        name: of the task.
        details: as for `require_unended`.

    Raises:
        CannotOverride: the workstream or its run has ended, or the workstream is validating; it says how to go on.
    """
    require_unended(name, details)
    if details["workstream_state"] == "validating":
        retry = offered("run", "retry", details["workstream_id"], reason="WHY")
        raise CannotOverride(
            f"the workstream {details['workstream']} of {name} is validating, and takes no new tasks; should it fail, "
            f"do all of it again with {retry}"
        )


@dataclass(slots=True)
class TaskReplacement:
    """Tasks or gates, and all that was given up because of them, to be replaced together.

    Attributes:
        olds: the tasks; `gates`: the gates.
        corrected: task -> what the one in its place lands instead.
        made: task or gate -> the one made anew in its place.
    """

    operation: Operation
    run_id: UUID
    olds: dict[UUID, InstanceRow] = field(default_factory=dict)
    gates: set[UUID] = field(default_factory=set)
    corrected: Mapping[UUID, Correction] = field(default_factory=dict)
    made: dict[UUID, UUID] = field(default_factory=dict)

    def gather(self, *firsts: UUID, misjudged: bool = False, also: bool = True) -> None:
        """Find what was lost because of some tasks or gates, directly and indirectly.

        Args:
            firsts: the tasks; or gates, if they are among `gates` already.
            misjudged: also the tasks that failed because of these gates.
            also: whether the tasks among `firsts` are to be replaced, too.
        """
        found, frontier = set(firsts), set(firsts)
        while frontier:
            lost = overrides.lost_because(self.operation.connection, frontier, misjudged=misjudged)
            self.gates |= {each for kind, each in lost if kind == "test_gate"}
            frontier = {each for _, each in lost} - found
            found |= frontier
        wanted = found - self.gates - (set() if also else set(firsts))
        self.olds = instances.by_ids(self.operation.connection, sorted(wanted))
        self._leave_out_uncompletable(firsts)

    def _leave_out_uncompletable(self, firsts: Collection[UUID]) -> None:
        """Leave out tasks that also depend on a task that will never complete, and all that depend on them."""
        waits = overrides.waits_of(self.operation.connection, self.olds)
        while dead := {
            link["source_id"]: link
            for link in waits
            if link["source_id"] in self.olds and link["target_id"] not in self.olds and self._never_completes(link)
        }:
            for first in dead.keys() & set(firsts):
                name, state = dead[first]["name"], dead[first]["state"]
                raise CannotOverride(
                    f"{name_of(self.olds[first])} waits for {name}, which is {state}: reset that task first"
                )
            self.olds = {each: row for each, row in self.olds.items() if each not in dead}

    @staticmethod
    def _never_completes(link: DependencyLink) -> bool:
        return link["kind"] == "task" and link["role"] == "depends_on" and link["state"] in SPENT

    def run_gates_again(self) -> None:
        """Give each gate that failed for good another try: a new gate that replaces it in all links.

        A gate that has passed, and judges a task that is made anew, is run again for all tasks it judges that are not
        completed: no change goes past a gate that judged another one (GATE-7).
        """
        links = overrides.waits_of(self.operation.connection, self.olds)
        self.judge_again({each["target_id"] for each in links if each["role"] == "gates"})
        for old in instances.by_ids(self.operation.connection, sorted(self.gates)).values():
            if old["current_state"] == "FAILED":
                self._run_again(old)
                scheduling.relink_gate(self.operation.connection, old["id"], self.made[old["id"]])

    def judge_again(self, gate_ids: Collection[UUID]) -> None:
        """Run those of these gates again that have passed, for all tasks they judge that are not completed.

        Raises:
            CannotOverride: the workstream of one has ended, so that it cannot judge any more.
        """
        connection = self.operation.connection
        passed = instances.by_ids(connection, sorted(gate_ids))
        passed = {each: old for each, old in passed.items() if old["current_state"] == "PASSED"}
        for gate_id in passed:
            details = overrides.gate(connection, gate_id)
            assert details
            require_unended(f"the gate {details['gate']}, which would have to judge again,", details)
        for gate_id in in_order(passed, {each: self._needs(each) for each in passed}):
            self._run_again(passed[gate_id])
            overrides.judge_again(connection, gate_id, self.made[gate_id])

    def _needs(self, gate_id: UUID) -> list[UUID]:
        return [UUID(each) for each in scheduling.gates_needed(self.operation.connection, gate_id)]

    def _run_again(self, old: InstanceRow) -> None:
        needs = [str(self.made.get(each, each)) for each in self._needs(old["id"])]
        new = self._birth(old, {"reruns_left": 0, "depends_on": needs})
        self.made[old["id"]] = new.id
        self._deliver(new, old)

    def make(self, retry_counts: Mapping[UUID, int]) -> None:
        """Create the new tasks, and put each in its old one's place.

        Args:
            retry_counts: old task -> how many retries of the new one count as used up; none of one that is not there.
        """
        waits = self._waits()
        new = {
            old_id: self._birth(old, {"retry_count": retry_counts.get(old_id, 0)}) for old_id, old in self.olds.items()
        }
        self.made |= {old_id: birth.id for old_id, birth in new.items()}
        for old_id in in_order(self.olds, {each: waits[each].get("depends_on", ()) for each in self.olds}):
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

    def _birth(self, old: InstanceRow, changed: Mapping[str, Any]) -> Birth:
        name = overrides.free_name(self.operation.connection, old["project"], old["workflow_type"], base_name(old))
        return Birth(
            definition=self.operation.runtime.catalogue.get(old["workflow_type"]),
            entity_id=name,
            project=old["project"],
            created_by=self.operation.order.by,
            context={**context_again(old, self.corrected.get(old["id"])), **changed},
            proof=self.operation.order.proof,
        )

    def _deliver(self, birth: Birth, old: InstanceRow) -> None:
        birth, _ = creation.deliver_anyhow(self.operation.connection, birth)
        give_commands(self.operation, self.run_id, {old["id"]: birth.id}, self.corrected)
        self.operation.done.made[birth.entity_id] = birth.id
        self.operation.done.notes.append(f"{birth.entity_id} takes the place of {name_of(old)}")


def context_again(old: InstanceRow, correction: Correction | None = None) -> dict[str, Any]:
    """The context of an instance in this one's place, as it was; and which ledger entry it corrects."""
    corrects = {"corrects": str(correction.ledger_id)} if correction else {}
    return {**without_command(old["context"]), **corrects, "retry_of": str(old["id"])}


def give_commands(
    operation: Operation, run_id: UUID, made: Mapping[UUID, UUID], corrected: Mapping[UUID, Correction]
) -> None:
    """Give new instances of a run (old -> new) the commands of the old ones, or the patches that correct those."""
    origin = Origin("operator", operation.order.by, operation.order.reason)
    commands.copy(operation.connection, {old: new for old, new in made.items() if old not in corrected}, origin)
    rows = {made[old]: correction.command for old, correction in corrected.items() if old in made}
    commands.store(operation.connection, run_id, rows, origin)


def base_name(old: InstanceRow) -> str:
    """The name that an instance and all that took its place have in common; the number of each follows after `~`."""
    return likeness(old["entity_id"].partition("~")[0][:90])


def in_order(ids: Collection[UUID], needs: Mapping[UUID, Iterable[UUID]]) -> Iterable[UUID]:
    """These instances, each after those of them that it needs: a new instance may only link to existing ones."""
    done: dict[UUID, None] = {}
    while len(done) < len(ids):
        ready = [
            each for each in ids if each not in done and all(other in done for other in needs[each] if other in ids)
        ]
        done |= dict.fromkeys(ready)
    return done
