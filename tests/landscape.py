"""A workstream with a real repository, and its effects run in process: the functions that Celery's tasks call."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from db import effects as rows
from db import patches as ledger
from db import plans
from db.connect import transaction
from tests.driving import applied, drain_all, state
from tests.repositories import diff, make
from workers import effects
from workers.client import Client
from workers.orchestration import landing, patches, workplace
from workers.orchestration.workplace import Workplace
from workers.runtime import Runtime

ONE_LINE = {"app.py": "1\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"}


@dataclass
class Landscape:
    """One run with one workstream `w`. `repository` says what its plan does of it; None: it has none."""

    runtime: Runtime
    dba: "psycopg.Connection[Any]"
    root: Path
    repository: dict[str, Any] | None = field(default_factory=lambda: {"path": "repo"})
    project: UUID = field(default_factory=uuid7)

    def __post_init__(self) -> None:
        self.checkout = make(self.root / "repo")
        self.run = self._create("run", "demo", {})
        self.workstream = self._create("workstream", "demo/w", {"run_id": str(self.run), "name": "w"})
        with transaction(self.runtime.database) as connection:
            plans.keep(connection, self.run, body={"repository": self.repository}, directory=str(self.root))

    @property
    def client(self) -> Client:
        return Client(self.runtime)

    @property
    def place(self) -> Workplace:
        with transaction(self.runtime.database) as connection:
            return workplace.of_workstream(connection, self.workstream, self.runtime.settings)

    def gate(self, command: object, name: str = "g", **context: Any) -> UUID:
        """A gate of the workstream, started: its effect is due."""
        said = {"gate_type": "UNIT", "command": command, "workstream_id": str(self.workstream), "name": f"w/{name}"}
        gate = self._create("test_gate", f"demo/w/{name}", said | {"run_id": str(self.run)} | context)
        applied(self.client, gate, "gate_started")
        return gate

    def task(self, changed: dict[str, str | None] | str, name: str = "t", **context: Any) -> UUID:
        """A task whose work is a patch: its text, or what it changes in the checkout."""
        text = changed if isinstance(changed, str) else diff(self.checkout, changed)
        with transaction(self.runtime.database) as connection:
            plans.keep_patches(connection, {f"patch-{name}": text}, created_by="test")
        said = {"workstream_id": str(self.workstream), "kind": "patch", "patch_id": f"patch-{name}", "message": "Mend"}
        return self._create("task", f"demo/w/{name}", said | {"run_id": str(self.run)} | context)

    def patch(self, changed: dict[str, str | None] | str, name: str = "t", **context: Any) -> UUID:
        """The ledger entry of a new task's patch, its checks due."""
        return patches.submit(self.runtime, {"task_id": self.task(changed, name, **context)})

    def applied_patch(self, changed: dict[str, str | None] | str | None = None, name: str = "t") -> UUID:
        """A patch that is in the worktree."""
        entry = self.patch(changed or dict(ONE_LINE), name)
        self.settle()
        self.fire(entry, "accept")
        self.settle()
        assert state(self.client, entry) == "applied"
        return entry

    def committed_patch(self, changed: dict[str, str | None] | str | None = None, name: str = "t") -> UUID:
        """A patch that is a commit."""
        entry = self.applied_patch(changed, name)
        self.fire(entry, "tests_passed")
        self.settle()
        assert state(self.client, entry) == "committed"
        return entry

    def fire(self, ref: UUID, trigger: str, **data: Any) -> None:
        """Fire a trigger, as the scheduler would, and apply it."""
        receipt = self.client.fire(ref, trigger, by="scheduler", data=data)
        drain_all(self.runtime)
        (settled,) = self.client.wait([receipt.request_id], timeout_seconds=5)
        assert settled.status == "applied", settled

    def validate(self) -> None:
        """Bring the workstream to `validating`, with its counts as the scheduler would have them."""
        self.dba.execute("UPDATE workstream_counts SET completed = 1 WHERE ws_id = %s", (self.workstream,))
        for trigger in ("all_tasks_created", "first_task_started", "all_tasks_completed"):
            self.fire(self.workstream, trigger)

    def fail(self) -> None:
        """Let a critical task of the workstream have failed, and the workstream with it."""
        self.dba.execute("UPDATE workstream_counts SET failed = 1, critical_failures = 1")
        for trigger in ("all_tasks_created", "first_task_started", "critical_task_failed"):
            self.fire(self.workstream, trigger)

    def land(self) -> UUID:
        """Have the workstream land, as the scheduler does; the effect's id."""
        with transaction(self.runtime.database) as connection:
            wanted = landing.intent(connection, self.workstream, self.version())
            rows.intend(connection, [wanted])
        return UUID(str(wanted["id"]))

    def version(self) -> int:
        return int(self.client.show(self.workstream)["version"])

    def settle(self) -> None:
        """Run what effects are due and apply what they tell, until nothing is left."""
        drain_all(self.runtime)
        while due := self.due():
            for effect_id in due:
                effects.run(self.runtime, effect_id)
            drain_all(self.runtime)

    def due(self) -> list[UUID]:
        with transaction(self.runtime.database) as connection:
            return [row["id"] for row in rows.due(connection, limit=100)]

    def make_due(self) -> None:
        """Let every effect's time come, and every lease run out and be taken back."""
        self.dba.execute("UPDATE effects SET lease_until = now() - interval '1 s' WHERE status = 'leased'")
        with transaction(self.runtime.database) as connection:
            rows.expire_leases(connection, max_attempts=self.runtime.settings.max_attempts, limit=100)
        self.dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")

    def entry(self, ledger_id: UUID) -> dict[str, Any]:
        with transaction(self.runtime.database) as connection:
            return dict(ledger.entry(connection, ledger_id))

    def effect(self, ref: UUID, name: str) -> dict[str, Any]:
        """The newest effect of that name which an instance asked for."""
        return [dict(each) for each in self.client.show(ref)["effects"] if each["name"] == name][-1]

    def said(self, ref: UUID) -> dict[str, Any]:
        """The metadata of an instance's last event."""
        return dict(self.client.history(ref)[-1]["metadata"])

    def _create(self, type_: str, name: str, context: dict[str, Any]) -> UUID:
        return UUID(str(self.client.create(type_, name, project_id=self.project, context=context)["id"]))
