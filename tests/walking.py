"""Move an instance of any shipped machine to any of its states, by the engine.

The facts that guards need are arranged: linked instances are in the required states, and counts are those that the
scheduler would have written.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core.requests import partition_of
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import WORKFLOWS
from interlock.workflows.definition import Definition, Transition
from interlock.workflows.fields import SECRET
from tests.hostile import unbound
from tests.rights import OF_SECRET, fire, operate

Said = dict[str, Any]
PLAIN: Mapping[str, Said] = {
    "test_gate": {"gate_type": "UNIT"},
    "subscription": {"url": "https://a.example/", "secrets": ["file:own"]},
    "schedule": {"times": {"every_seconds": 86_400}, "does": {"create": {"type": "story", "name": "S-%due"}}},
    "job": {"depth": 0, "task_description": "build"},
    "operator_grant": {"name": "somebody"},
}
ACTORS: Mapping[str, Said] = {
    "budget": {"kind": "actor", "resource": "triggers", "most": 1},
    "brake": {"kind": "actor", "reason": "it loops"},
}
LINK = "INSERT INTO workflow_links (source_id, role, inverse, target_id) VALUES (%s, %s, %s, %s)"
ALLOW_NO_RETRY = """UPDATE workflow_instances SET context = context || '{"max_retries": 0}' WHERE id = %s"""
JUDGED = {"lapse": "operators", "expire": "api_tokens", "approve_removal": "deprecations"}


def path(definition: Definition, state: str) -> list[Transition]:
    """The shortest path from a machine's initial state to one of its states."""
    ways: dict[str, list[Transition]] = {definition.initial: []}
    frontier = deque([definition.initial])
    while state not in ways:
        source = frontier.popleft()
        for move in definition.transitions:
            if source in move.sources and move.dest not in ways:
                ways[move.dest] = [*ways[source], move]
                frontier.append(move.dest)
    return ways[state]


PLACES: Mapping[str, Said] = {  # where a subscription goes on
    "replay": {"after": {"xid": 1, "position": 0}},
    "skip": {"after": {"xid": 2**50, "position": 0}},
}


@dataclass
class Walker:
    """One project's instances, each in the wanted state."""

    runtime: Runtime
    dba: "psycopg.Connection[Any]"
    project: str = field(default_factory=uuid7)
    parents: dict[str, UUID] = field(default_factory=dict)
    parts: Iterator[tuple[str, str]] = field(default_factory=lambda: iter(WORKFLOWS))
    numbers: Iterator[int] = field(default_factory=count)

    def get(self, type_: str, version: str | None = None) -> Definition:
        return self.runtime.catalogue.get(type_, version)

    def at(self, definition: Definition, state: str, **context: Any) -> UUID:
        """A new instance in `state`."""
        made = self.born(definition, **context)
        self.lead(definition, made, state)
        return made

    def lead(self, definition: Definition, made: UUID, state: str) -> None:
        """Move a new instance to `state`."""
        for move in path(definition, state):
            self._move(definition, made, move)

    def born(self, definition: Definition, **context: Any) -> UUID:
        """A new instance, with the required context of its type."""
        number = uuid7()
        said = self._context(definition, number) | ACTORS.get(definition.type, {})
        if definition.type in ACTORS:
            said["name"] = f"actor-{number}"  # only one of each name can be in force
        said |= (dict(OF_SECRET) if SECRET in definition.fields else {}) | context
        if definition.type == "brake":
            operate(self.runtime, "walker")  # for no other reason than an operator's is it put on
        birth = Birth(definition, f"{definition.type}-{number}", self.project, "walker", said)
        with transaction(self.runtime.database) as connection:
            creation.deliver(connection, [birth])
        return birth.id

    def go(self, definition: Definition, made: UUID, move: Transition) -> Mapping[str, Any]:
        """Make one move; returns its event."""
        self._move(definition, made, move)
        event = Client(self.runtime).history(made)[-1]
        assert (event["trigger"], event["to_state"]) == (move.trigger, move.dest)
        return event

    def _move(self, definition: Definition, made: UUID, move: Transition) -> None:
        said: Said = dict(PLACES.get(move.trigger, {})) if definition.type == "subscription" else {}
        for guard in move.when:
            said |= ARRANGED.get(guard.name, _nothing)(self, definition, made)
        with self.unjudged(JUDGED[move.trigger]) if move.trigger in JUDGED else nullcontext():
            settled = self.ask(made, move.trigger, **said)
        if settled.status == "waiting":
            settled = self._approve(settled)
        assert settled.status == "applied", settled
        assert settled.result, settled
        assert settled.result["to"] == move.dest, settled

    def ask(self, made: UUID, trigger: str, **said: Any) -> Receipt:
        """Fire a trigger; returns the receipt with its outcome."""
        receipt = fire(Client(self.runtime), made, trigger, by="walker", data=said)
        return self._applied(receipt, made)

    def _approve(self, held: Receipt) -> Receipt:
        """Approve what waits for it, as another person; returns the receipt with its outcome."""
        approval = UUID((held.result or {})["approval_id"])
        Client(self.runtime).fire(approval, "approve", by="another")
        return self._applied(held, approval, held.workflow_id)

    def _applied(self, receipt: Receipt, *instances: UUID) -> Receipt:
        for each in instances:
            while self.runtime.applier.apply_partition(partition_of(each)).taken:
                pass
        return Client(self.runtime).wait([receipt.request_id], timeout_seconds=0)[0]

    @contextmanager
    def unjudged(self, table: str) -> Iterator[None]:
        """Let a grant end before its time, and who proposed a removal approve it."""
        self.dba.execute(f"ALTER TABLE {table} DISABLE TRIGGER judged")  # type: ignore[call-overload]
        yield
        self.dba.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER judged")  # type: ignore[call-overload]

    def link(self, source: UUID, role: str, inverse: str, target: UUID) -> None:
        """Link `source` to `target`, and to no other instance, in that role."""
        self.unlink(source, role)
        self.dba.execute(LINK, (source, role, inverse, target))

    def unlink(self, source: UUID, role: str) -> None:
        """Remove all links of `source` in a role, which nobody may do otherwise."""
        self.dba.execute("ALTER TABLE workflow_links DISABLE TRIGGER noted")
        self.dba.execute("DELETE FROM workflow_links WHERE source_id = %s AND role = %s", (source, role))
        self.dba.execute("ALTER TABLE workflow_links ENABLE ALWAYS TRIGGER noted")

    def count(self, definition: Definition, made: UUID, **counts: int) -> None:
        """Set counts, as the scheduler would."""
        table, key = {"workstream": ("workstream_counts", "ws_id"), "run": ("run_counts", "run_id")}[definition.type]
        values = ", ".join(f"{column} = {number}" for column, number in counts.items())
        self.dba.execute(f"UPDATE {table} SET {values} WHERE {key} = %s", (made,))  # type: ignore[call-overload]

    def parent(self, type_: str, **context: Any) -> UUID:
        """The one instance of a type that others refer to."""
        if type_ not in self.parents:
            self.parents[type_] = self.born(self.get(type_), **context)
        return self.parents[type_]

    def _context(self, definition: Definition, number: UUID) -> Said:
        said: Said = {}
        if definition.version.startswith("0."):
            return said
        match definition.type:
            case "workstream":
                said = {"run_id": str(self.parent("run"))}
            case "task":
                said = {"workstream_id": str(self.parent("workstream"))}
            case "patch_ledger":
                patch = "INSERT INTO patches (patch_id, body, created_by) VALUES (%s, 'diff', 'walker')"
                self.dba.execute(patch, (str(number),))
                said = {"workstream_id": str(self.parent("workstream")), "patch_id": str(number)}
            case "regression" | "rollback":
                of = ("gate_id", "test_gate") if definition.type == "regression" else ("ledger_id", "patch_ledger")
                said = {"run_id": str(self.parent("run")), of[0]: str(self.parent(of[1]))}
                said |= {"gate": "g"} if definition.type == "regression" else {}
            case "circuit_breaker":
                said = {"tool_id": str(number)}
            case "narrowing":
                triggers = self.get("story").triggers  # only one narrowing of each can be in force
                said = {"type": "story", "trigger": triggers[next(self.numbers)], "to": ["operator"]}
            case "api_token":
                said = {"name": "walker's agent", "role": "agent", "secret_sha256": sha256(number.bytes).hexdigest()}
            case "limit":
                said = {"kind": "key", "name": str(number), "at_once": 1}  # only one of each name can be in force
            case "handover":
                story = self.born(self.get("story"))
                query = "SELECT encode(head_of(i), 'hex') FROM workflow_instances i WHERE id = %s"
                ((head,),) = self.dba.execute(query, (story,)).fetchall()
                said = {"instance": str(story), "at": 0, "head": head, "system": "temporal"}
            case "deprecation":
                type_, version = next(self.parts)
                said = {"type": type_, "version": version, "kind": "version"}
            case type_:
                said = PLAIN.get(type_, said)
        return said


def _nothing(walker: Walker, definition: Definition, made: UUID) -> Said:
    """Arrange nothing: the guard holds for an instance without links."""
    return {}


def _nothing_before(walker: Walker, definition: Definition, made: UUID) -> Said:
    walker.unlink(made, "depends_on")  # removes the link of `_one_before`
    return {}


def _one_before(walker: Walker, definition: Definition, made: UUID) -> Said:
    walker.link(made, "depends_on", "dependents", walker.born(definition))
    return {}


def _failed_gate(role: str, inverse: str) -> Callable[[Walker, Definition, UUID], Said]:
    def arrange(walker: Walker, definition: Definition, made: UUID) -> Said:
        walker.link(made, role, inverse, walker.at(walker.get("test_gate"), "FAILED"))
        return {}

    return arrange


def _worker(walker: Walker, definition: Definition, made: UUID) -> Said:
    return {"worker_id": str(walker.parent("worker"))}


def _retries_used_up(walker: Walker, definition: Definition, made: UUID) -> Said:
    if definition.version.startswith("0."):
        with unbound(walker.dba):
            walker.dba.execute(ALLOW_NO_RETRY, (made,))
    else:
        walker.dba.execute("UPDATE tasks SET max_retries = retry_count WHERE task_id = %s", (made,))
    return {}


def _tasks(state: str, **counts: int) -> Callable[[Walker, Definition, UUID], Said]:
    """Give a workstream a task in `state`: linked for older versions, counted for newer ones."""

    def arrange(walker: Walker, definition: Definition, made: UUID) -> Said:
        if definition.version.startswith("0."):
            task = walker.at(walker.get("task", "0.2.0"), state, is_critical=True)
            walker.link(task, "workstream", "tasks", made)
        else:
            walker.count(definition, made, **counts)
        return {}

    return arrange


def _lost_patch(walker: Walker, definition: Definition, made: UUID) -> Said:
    walker.at(walker.get("patch_ledger"), "quarantined", workstream_id=str(made))
    return {}


def _names(type_: str, role: str, inverse: str) -> Callable[[Walker, Definition, UUID], Said]:
    """Let it name a new instance of `type_`."""

    def arrange(walker: Walker, definition: Definition, made: UUID) -> Said:
        walker.link(made, role, inverse, walker.born(walker.get(type_)))
        return {}

    return arrange


def _is_named(type_: str, state: str, role: str, inverse: str) -> Callable[[Walker, Definition, UUID], Said]:
    """Let an instance of `type_` that is in `state` name it."""

    def arrange(walker: Walker, definition: Definition, made: UUID) -> Said:
        walker.link(walker.at(walker.get(type_), state), role, inverse, made)
        return {}

    return arrange


def _load(claims: int) -> Callable[[Walker, Definition, UUID], Said]:
    """Let a worker hold this many claims; the task it names need not be one of them."""

    def arrange(walker: Walker, definition: Definition, made: UUID) -> Said:
        walker.dba.execute("UPDATE workers SET current_load = %s WHERE worker_id = %s", (claims, made))
        return {"task_id": str(made)}

    return arrange


ARRANGED: Mapping[str, Callable[[Walker, Definition, UUID], Said]] = {
    "dependencies_completed": _nothing_before,
    "steps_before_succeeded": _nothing_before,
    "gate_dependencies_passed": _nothing_before,
    "dependency_missing": _one_before,
    "gate_dependency_failed": _failed_gate("depends_on", "dependents"),
    "gate_failed": _failed_gate("gates", "judges"),
    "pull_request_merged": _is_named("pr_review", "merged", "story", "pull_request"),
    "in_a_sprint": _names("sprint", "sprint", "stories"),
    "sprint_open": lambda walker, *_: {"sprint_id": str(walker.parent("sprint"))},
    "worker_named": _worker,
    "worker_identified": _worker,
    "retries_used_up": _retries_used_up,
    "task_started": _tasks("completed", completed=1),
    "critical_failure": _tasks("failed", critical_failures=1),
    "patch_lost": _lost_patch,
    "tasks_ended_short": _tasks("failed", failed=1),
    "run_lost": _tasks("failed", critical_failures=1),
    "step_failed": _is_named("step", "S_FAILED", "workstream", "steps"),
    "workers_allocated": _names("supervised_worker", "workers", "job"),
    "holds_a_task": _load(1),
    "holds_no_task": _load(0),
    "exit_code_expected": lambda *_: {"exit_code": 0},
    "exit_code_zero": lambda *_: {"exit_code": 0},
    "exit_code_given": lambda *_: {"exit_code": 0},
    "exit_code_unexpected": lambda *_: {"exit_code": 1},
    "reason_given": lambda *_: {"reason": "because"},
    "authorized": lambda *_: {"authorized_by": "ann"},
    "compensated": lambda *_: {"compensation": {"compensation_type": "git_revert"}},
}
