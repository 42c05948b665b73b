"""A view of a run for watching it: reads all of it at first, then only what moved."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.orchestration import run_tree
from interlock.workers.runtime import Runtime
from interlock.workflows.machines.delivery.approval import APPROVAL
from interlock.workflows.machines.orchestration.regression import REGRESSION
from interlock.workflows.scheduling.next_trigger import ENDED

AT_WORK = ("searching", "rolling_back")  # regressions that lead on by themselves

Row = Mapping[str, Any]
Rows = dict[UUID, Row]


@dataclass(frozen=True, slots=True)
class Event:
    """One move: its instance, named as in the plan, its states, trigger, actor and reason.

    In an event that only reports that something is there (the run at first; a regression or an approval that has just
    been created), `was`, `trigger` and `by` are None. An approval has the name of the workstream that waits to land.
    """

    id: UUID
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
    `regressions`: searches for the patch that made a gate fail.
    `frozen`: by workstream, the frozen `phase` that holds it, and the `reason`, `since` when and `by` whom.
    `approvals`: by workstream, the approval that its landing waits for: `id`, `version`, `entity_id`, `deciders`.
    """

    run: Row
    workstreams: Rows = field(default_factory=dict)
    tasks: Rows = field(default_factory=dict)
    gates: Rows = field(default_factory=dict)
    patches: Rows = field(default_factory=dict)
    waits: Rows = field(default_factory=dict)
    regressions: Rows = field(default_factory=dict)
    frozen: Rows = field(default_factory=dict)
    approvals: Rows = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether the run has its outcome."""
        return self.run["state"] in ENDED["run"]

    @property
    def settled(self) -> bool:
        """Whether the run has ended and nothing in it moves by itself any more.

        A failed run cancels its other parts, and a search for what made its gate fail may go on.
        """
        ended = all(
            row["state"] in ENDED[kind]
            for kind, rows in (("workstream", self.workstreams), ("task", self.tasks))
            for row in rows.values()
        )
        return self.ended and ended and all(row["state"] not in AT_WORK for row in self.regressions.values())

    @property
    def present_state(self) -> Event:
        """The run's present state."""
        run = self.run
        return Event(run["id"], run["at"], "run", run["name"], None, run["state"], None, None, None)

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
        """The whole view as plain values: the run with its workstreams, each with its parts, and its regressions."""
        return dict(self.run) | {
            "counts": {
                "workstreams": Counter(row["state"] for row in self.workstreams.values()),
                "tasks": Counter(row["state"] for row in self.tasks.values()),
            },
            "workstreams": [
                dict(row)
                | {"frozen": self.frozen.get(id_), "landing_approval": self.approvals.get(id_)}
                | self._parts(id_)
                for id_, row in self.workstreams.items()
            ],
            "regressions": [dict(row) for row in self.regressions.values()],
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
        self._seen |= {run_id: int(read.run["version"])}
        self._seen |= {row["id"]: int(row["version"]) for row in (*read.regressions, *read.approvals)}

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
        self.view.regressions = {row["id"]: dict(row) for row in read.regressions}
        asked = ("id", "version", "entity_id", "deciders")
        self.view.approvals = {row["workstream_id"]: {name: row[name] for name in asked} for row in read.approvals}
        said = ("phase", "reason", "since", "by")
        self.view.frozen = {row["workstream_id"]: {name: row[name] for name in said} for row in read.frozen}
        for kind, rows in read.rows.items():
            self._kinds[kind].update((row["id"], dict(row)) for row in rows)

    def _new(self, read: run_tree.Read) -> Iterator[Event]:
        """The moves, and between them what was created."""
        created = sorted(self._created(read), key=lambda event: event.at)
        for row in read.events:
            while created and created[0].at < row["at"]:
                yield created.pop(0)
            if row["seq"] > self._seen.get(row["id"], 0):
                self._seen[row["id"]] = row["seq"]
                values = (row[each] for each in ("was", "state", "trigger", "by", "reason"))
                yield Event(row["id"], row["at"], row["kind"], self._name(row["kind"], row["id"]), *values)
        yield from created

    def _created(self, read: run_tree.Read) -> Iterator[Event]:
        """The regressions and approvals that are there now and were not before."""
        for row in read.regressions:
            if row["id"] not in self._seen:
                yield self._first(row, "regression", row["gate"], REGRESSION.initial)
        for row in read.approvals:
            if row["id"] not in self._seen:
                name = self._name("workstream", row["workstream_id"])
                yield self._first(row, "approval", name, APPROVAL.initial, " or ".join(row["deciders"]))

    def _first(self, row: RowMapping, kind: str, name: str, state: str, reason: str | None = None) -> Event:
        self._seen[row["id"]] = 0
        return Event(row["id"], row["created_at"], kind, name, None, state, None, None, reason)

    def _name(self, kind: str, id_: UUID) -> str:
        if kind == "run":
            return str(self.view.run["name"])
        if kind == "regression":
            return str(self.view.regressions[id_]["gate"])
        row = self._kinds[kind][id_]
        if kind == "patch_ledger":
            return str(self.view.tasks[row["task_id"]]["name"]) if row["task_id"] else str(row["entity_id"])
        return str(row["name"] or row["entity_id"])
