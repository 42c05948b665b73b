"""A view of a run for watching it: reads all of it at first, then only what moved."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.orchestration import run_tree
from interlock.workers.runtime import Runtime
from interlock.workflows.scheduling.next_trigger import ENDED

Row = Mapping[str, Any]
Rows = dict[UUID, Row]


@dataclass(frozen=True, slots=True)
class Event:
    """One move: its instance, named as in the plan, its states, trigger, actor and reason.

    In an event that only reports the run's present state, `was`, `trigger` and `by` are None.
    """

    at: datetime
    kind: str
    name: str
    was: str | None
    state: str
    trigger: str | None
    by: str | None
    reason: str | None


@dataclass(slots=True)
class RunView:
    """A run and its parts, as last read. Rows are those of `db.orchestration.run_tree`, oldest first.

    `waits`: by task, the breaker that it waits for (`tool`, `state`), and the `seconds` until it may go on.
    """

    run: Row
    workstreams: Rows = field(default_factory=dict)
    tasks: Rows = field(default_factory=dict)
    gates: Rows = field(default_factory=dict)
    patches: Rows = field(default_factory=dict)
    waits: Rows = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the run has its outcome."""
        return self.run["state"] in ENDED["run"]

    @property
    def settled(self) -> bool:
        """Whether the run has ended and nothing in it will move any more: a failed run cancels its other parts."""
        return self.ended and all(
            row["state"] in ENDED[kind]
            for kind, rows in (("workstream", self.workstreams), ("task", self.tasks))
            for row in rows.values()
        )

    @property
    def present_state(self) -> Event:
        """The run's present state."""
        return Event(self.run["at"], "run", self.run["name"], None, self.run["state"], None, None, None)

    def tasks_of(self, workstream_id: UUID) -> list[Row]:
        """A workstream's tasks."""
        return [row for row in self.tasks.values() if row["workstream_id"] == workstream_id]

    def gates_of(self, workstream_id: UUID) -> list[Row]:
        """A workstream's gates. A gate that was run again is left out; its successor is included."""
        again = {row["retry_of"] for row in self.gates.values()}
        return [
            row for row in self.gates.values() if row["workstream_id"] == workstream_id and str(row["id"]) not in again
        ]

    def patches_of(self, task_id: UUID) -> list[Row]:
        """A task's patches."""
        return [row for row in self.patches.values() if row["task_id"] == task_id]

    def as_tree(self) -> dict[str, Any]:
        """The whole view as plain values: the run with its workstreams, each with its tasks, gates and patches."""
        return dict(self.run) | {
            "counts": {
                "workstreams": Counter(row["state"] for row in self.workstreams.values()),
                "tasks": Counter(row["state"] for row in self.tasks.values()),
            },
            "workstreams": [dict(row) | self._parts(row["id"]) for row in self.workstreams.values()],
        }

    def _parts(self, workstream_id: UUID) -> dict[str, list[dict[str, Any]]]:
        tasks: Rows = {id_: {**row, "waits_for_breaker": self.waits.get(id_)} for id_, row in self.tasks.items()}
        kinds: dict[str, Rows] = {"tasks": tasks, "gates": self.gates, "patches": self.patches}
        return {
            kind: [dict(row) for row in rows.values() if row["workstream_id"] == workstream_id]
            for kind, rows in kinds.items()
        }


class Watch:
    """Reads a run repeatedly; cheap enough to do so a few times a second."""

    def __init__(self, runtime: Runtime, run_id: UUID) -> None:
        self._runtime, self._run_id = runtime, run_id
        with transaction(runtime.database) as connection:
            read = run_tree.whole(connection, run_id)
        self._mark = read.mark
        self.view = RunView(dict(read.run))
        self._take(read)
        self._seen = {id_: int(row["version"]) for rows in self._kinds.values() for id_, row in rows.items()}
        self._seen[run_id] = int(read.run["version"])

    def look(self) -> list[Event]:
        """Read what moved since the last call; the moves, in the order of their commits.

        Raises:
            DBAPIError: the database does not answer; look again later.
        """
        with transaction(self._runtime.database) as connection:
            read = run_tree.since(connection, self._run_id, self._mark)
        self._mark, self.view.run = read.mark, dict(read.run)
        self._take(read)
        return list(self._new(read))

    @property
    def _kinds(self) -> dict[str, Rows]:
        view = self.view
        return {
            "workstream": view.workstreams,
            "task": view.tasks,
            "test_gate": view.gates,
            "patch_ledger": view.patches,
        }

    def _take(self, read: run_tree.Read) -> None:
        self.view.waits = {row["id"]: {name: row[name] for name in ("tool", "state", "seconds")} for row in read.waits}
        for kind, rows in read.rows.items():
            self._kinds[kind].update((row["id"], dict(row)) for row in rows)

    def _new(self, read: run_tree.Read) -> Iterator[Event]:
        for row in read.events:
            if row["seq"] > self._seen.get(row["id"], 0):
                self._seen[row["id"]] = row["seq"]
                values = (row[each] for each in ("was", "state", "trigger", "by", "reason"))
                yield Event(row["at"], row["kind"], self._name(row["kind"], row["id"]), *values)

    def _name(self, kind: str, id_: UUID) -> str:
        if kind == "run":
            return str(self.view.run["name"])
        row = self._kinds[kind][id_]
        if kind == "patch_ledger":
            return str(self.view.tasks[row["task_id"]]["name"]) if row["task_id"] else str(row["entity_id"])
        return str(row["name"] or row["entity_id"])
