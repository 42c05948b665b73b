"""Interprets a run's signals: what to count, which instances wait for them, and which to look at. Pure functions."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from interlock.db.fast_path import Row
from interlock.workflows.scheduling.counts import RUN_COUNTS, TASK_COUNTS, WorkstreamCounts, waits_for_tasks
from interlock.workflows.scheduling.next_trigger import ENDED, OPEN

Changes = dict[UUID, dict[str, int]]
UNDER_WAY = ("queued", "running")  # states that a task leaves by its worker's triggers, unless its workstream ends


@dataclass(slots=True)
class Moved:
    """The moves of one pass.

    `under_way` and `done` are tasks that are queued or running, or have ended.
    `born` and `looked_at` hold, by kind, the new instances and all that moved; the fields below them are the moves that
    concern other instances (`touched.sql`).
    """

    run_id: UUID
    last: int = 0
    queued: int = 0
    run_moved: bool = False
    tasks_counted: Changes = field(default_factory=dict)
    workstreams_counted: Changes = field(default_factory=dict)
    under_way: dict[UUID, UUID] = field(default_factory=dict)
    ended: dict[UUID, bool] = field(default_factory=dict)
    done: set[UUID] = field(default_factory=set)
    ended_workstreams: dict[UUID, str] = field(default_factory=dict)
    failed_gates: set[UUID] = field(default_factory=set)
    born: defaultdict[str, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    looked_at: defaultdict[str, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    opened: set[UUID] = field(default_factory=set)
    closing: set[UUID] = field(default_factory=set)
    worked: set[UUID] = field(default_factory=set)
    judged: set[UUID] = field(default_factory=set)
    freed: set[UUID] = field(default_factory=set)
    patches: set[UUID] = field(default_factory=set)

    def leave_out(self, counted: Iterable[Row]) -> None:
        """Look no closer at workstreams that wait for nothing but their tasks, nor at those that are under way there.

        Args:
            counted: the counts of each workstream whose tasks moved, as `count_tasks` returns them.
        """
        waiting = {
            row["ws_id"]
            for row in counted
            if row["run_state"] == "running"
            and waits_for_tasks(WorkstreamCounts(row["state"], **{name: row[name] for name in TASK_COUNTS}))
        }
        self.looked_at["workstream"] |= self.tasks_counted.keys() - waiting
        self.looked_at["task"] -= self.done
        self.looked_at["task"] -= {task for task, workstream in self.under_way.items() if workstream in waiting}

    def concerns(self) -> dict[str, Any]:
        """The parameters of `touched.sql`."""
        return {
            "opened": list(self.opened),
            "closing": list(self.closing),
            "ended": list(self.ended_workstreams),
            "begun": self.run_id if self.run_moved else None,
            "worked": list(self.worked),
            "judged": list(self.judged),
            "freed": list(self.freed),
            "patches": list(self.patches),
        }


def read(run_id: UUID, signals: Iterable[Row]) -> Moved:
    """The moves that one batch of signals reports."""
    moved = Moved(run_id)
    for signal in signals:
        moved.last = signal["id"]
        READERS[signal["kind"]](moved, signal)
        if signal["was"] is None:
            moved.born[signal["kind"]].add(signal["entity_id"])
        if signal["kind"] not in ("run", "hold"):
            moved.looked_at[signal["kind"]].add(signal["entity_id"])
    return moved


def _task(moved: Moved, signal: Row) -> None:
    task_id, workstream_id, state = signal["entity_id"], signal["parent_id"], signal["state"]
    change = _count(moved.tasks_counted, workstream_id, TASK_COUNTS, signal)
    moved.queued += state == "queued"
    moved.under_way.pop(task_id, None)
    moved.done.discard(task_id)
    if state in UNDER_WAY:
        moved.under_way[task_id] = workstream_id
    if state == "failed" and signal["critical"]:
        change["critical_failures"] += 1
    if state in ENDED["task"]:
        moved.ended[task_id] = state == "completed"
        moved.done.add(task_id)
    if signal["gated"] and (state == "validating" or state in ENDED["task"]):
        moved.worked.add(task_id)


def _gate(moved: Moved, signal: Row) -> None:
    gate_id, state = signal["entity_id"], signal["state"]
    if state == "PASSED":
        moved.ended[gate_id] = True
    if state == "FAILED":
        moved.failed_gates.add(gate_id)
    if state == "BLOCKED" or state in ENDED["test_gate"]:
        moved.judged.add(gate_id)


def _patch(moved: Moved, signal: Row) -> None:
    state, workstream_id = signal["state"], signal["parent_id"]
    moved.patches.add(signal["entity_id"])
    moved.looked_at["workstream"].add(workstream_id)
    if state == "quarantined":
        _count(moved.tasks_counted, workstream_id, TASK_COUNTS)["quarantined_patches"] += 1
    if state in ("committed", "quarantined", "dropped"):
        moved.freed.add(workstream_id)


def _workstream(moved: Moved, signal: Row) -> None:
    workstream_id, state = signal["entity_id"], signal["state"]
    change = _count(moved.workstreams_counted, moved.run_id, RUN_COUNTS, signal)
    if state == "failed" and signal["critical"]:
        change["critical_failures"] += 1
    if state in OPEN and signal["was"] != "ready":  # it became ready, or resumes after a pause
        moved.opened.add(workstream_id)
    if state == "validating":
        moved.closing.add(workstream_id)
    if state in ENDED["workstream"]:
        moved.ended_workstreams[workstream_id] = state
        moved.freed.add(workstream_id)


def _run(moved: Moved, signal: Row) -> None:
    moved.run_moved = True


def _hold(moved: Moved, signal: Row) -> None:
    """What may hold a workstream moved, its phase or the approval of its landing."""
    moved.opened.add(signal["entity_id"])
    moved.looked_at["workstream"].add(signal["entity_id"])


READERS = {
    "hold": _hold,
    "task": _task,
    "test_gate": _gate,
    "patch_ledger": _patch,
    "workstream": _workstream,
    "run": _run,
}


def _count(changes: Changes, owner: UUID, columns: tuple[str, ...], signal: Row | None = None) -> dict[str, int]:
    change = changes.setdefault(owner, dict.fromkeys(columns, 0))
    if signal is not None:
        change[signal["state"]] += 1
        if signal["was"] is not None:
            change[signal["was"]] -= 1
    return change
