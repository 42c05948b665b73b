"""Interprets a run's signals: what to count, which instances wait for them, and which to look at. Pure functions."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.workflows.scheduling.counts import RUN_COUNTS, TASK_COUNTS
from interlock.workflows.scheduling.next_trigger import ENDED, OPEN

Changes = dict[UUID, dict[str, int]]


@dataclass(slots=True)
class Moved:
    """The moves of one pass.

    `born` and `looked_at` hold, by kind, the new instances and all that moved; the fields below them are the moves that
    concern other instances (`touched.sql`).
    """

    run_id: UUID
    last: int = 0
    queued: int = 0
    run_moved: bool = False
    tasks_counted: Changes = field(default_factory=dict)
    workstreams_counted: Changes = field(default_factory=dict)
    ended: dict[UUID, bool] = field(default_factory=dict)
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


def read(run_id: UUID, signals: Iterable[RowMapping]) -> Moved:
    """The moves that one batch of signals reports."""
    moved = Moved(run_id)
    for signal in signals:
        moved.last = signal["id"]
        READERS[signal["kind"]](moved, signal)
        if signal["was"] is None:
            moved.born[signal["kind"]].add(signal["entity_id"])
        if signal["kind"] != "run":
            moved.looked_at[signal["kind"]].add(signal["entity_id"])
    return moved


def _task(moved: Moved, signal: RowMapping) -> None:
    task_id, workstream_id, state = signal["entity_id"], signal["parent_id"], signal["state"]
    change = _count(moved.tasks_counted, workstream_id, TASK_COUNTS, signal)
    moved.looked_at["workstream"].add(workstream_id)
    moved.queued += state == "queued"
    if state == "failed" and signal["critical"]:
        change["critical_failures"] += 1
    if state in ENDED["task"]:
        moved.ended[task_id] = state == "completed"
    if state == "validating" or state in ENDED["task"]:
        moved.worked.add(task_id)


def _gate(moved: Moved, signal: RowMapping) -> None:
    gate_id, state = signal["entity_id"], signal["state"]
    if state == "PASSED":
        moved.ended[gate_id] = True
    if state == "FAILED":
        moved.failed_gates.add(gate_id)
    if state == "BLOCKED" or state in ENDED["test_gate"]:
        moved.judged.add(gate_id)


def _patch(moved: Moved, signal: RowMapping) -> None:
    state, workstream_id = signal["state"], signal["parent_id"]
    moved.patches.add(signal["entity_id"])
    moved.looked_at["workstream"].add(workstream_id)
    if state == "quarantined":
        _count(moved.tasks_counted, workstream_id, TASK_COUNTS)["quarantined_patches"] += 1
    if state in ("committed", "quarantined", "dropped"):
        moved.freed.add(workstream_id)


def _workstream(moved: Moved, signal: RowMapping) -> None:
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


def _run(moved: Moved, signal: RowMapping) -> None:
    moved.run_moved = True


READERS = {"task": _task, "test_gate": _gate, "patch_ledger": _patch, "workstream": _workstream, "run": _run}


def _count(changes: Changes, owner: UUID, columns: tuple[str, ...], signal: RowMapping | None = None) -> dict[str, int]:
    change = changes.setdefault(owner, dict.fromkeys(columns, 0))
    if signal is not None:
        change[signal["state"]] += 1
        if signal["was"] is not None:
            change[signal["was"]] -= 1
    return change
