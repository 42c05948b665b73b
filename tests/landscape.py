"""A workstream with a real repository. Its effects run in process, by the functions that Celery's tasks call."""

import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from interlock.db.connection import transaction
from interlock.db.core import effects as rows
from interlock.db.core import instances
from interlock.db.orchestration import patches as ledger
from interlock.db.orchestration import plans
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.effects import intents, patches, workspace
from interlock.workers.effects.workspace import Workplace
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.runtime import Runtime
from interlock.workflows.input.names import DEFAULT_PROJECT
from interlock.workflows.machines.orchestration.reserved_fields import without_command
from tests import commanding
from tests.driving import applied, drain_all, state
from tests.repositories import diff, make, put
from tests.rights import fire

ONE_LINE = {"app.py": "1\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"}


@dataclass
class Landscape:
    """One run with one workstream `w`, in the phase `phase_id`, one of the plan's `phases`.

    `repository` is the plan's `repository`; None: it has none.
    """

    runtime: Runtime
    dba: "psycopg.Connection[Any]"
    root: Path
    repository: dict[str, Any] | None = field(default_factory=lambda: {"path": "repo"})
    project: str = DEFAULT_PROJECT
    phases: dict[str, Any] = field(default_factory=dict)
    phase_id: str = "default"

    def __post_init__(self) -> None:
        self.checkout = make(self.root / "repo")
        for name in self.phases:
            applied(self.client, self.client.create("phase", name, project=self.project)["id"], "open")
        run = self.client.birth("run", "demo", project=self.project)
        home = self.client.birth(
            "workstream",
            "demo/w",
            project=self.project,
            context={"run_id": str(run.id), "name": "w", "phase_id": self.phase_id},
        )
        self.run, self.workstream = run.id, home.id
        commanding.planned(self.runtime, run, home, directory=self.root, repository=self.repository, phases=self.phases)

    @property
    def client(self) -> Client:
        return Client(self.runtime)

    @property
    def place(self) -> Workplace:
        with transaction(self.runtime.database) as connection:
            return workspace.of_workstream(connection, self.workstream, self.runtime.settings)

    def gate(self, command: object, name: str = "g", *, started: bool = True, **context: Any) -> UUID:
        """A gate of the workstream; if `started`, its effect is due."""
        said = {"gate_type": "UNIT", "command": command, "workstream_id": str(self.workstream), "name": f"w/{name}"}
        gate = self.create("test_gate", f"demo/w/{name}", said | {"run_id": str(self.run)} | context)
        if started:
            with transaction(self.runtime.database) as connection:
                due = rows.intend(connection, [intents.of_gate(gate, 0)])
            self.runtime.wakeups.effects(due)
        return gate

    def task(self, changed: dict[str, str | None] | str, name: str = "t", **context: Any) -> UUID:
        """A task that lands a patch, given as a text or as the changed files."""
        text = changed if isinstance(changed, str) else diff(self.checkout, changed)
        with transaction(self.runtime.database) as connection:
            plans.store_patches(connection, {f"patch-{name}": text}, created_by="test")
        said = {"workstream_id": str(self.workstream), "kind": "patch", "patch_id": f"patch-{name}", "message": "Mend"}
        return self.create("task", f"demo/w/{name}", said | {"run_id": str(self.run)} | context)

    def patch(self, changed: dict[str, str | None] | str, name: str = "t", **context: Any) -> UUID:
        """The ledger entry of a new task's patch; the effect with its checks is due."""
        return patches.submit(self.runtime, {"task_id": self.task(changed, name, **context)})

    def applied_patch(self, changed: dict[str, str | None] | str | None = None, name: str = "t") -> UUID:
        """A patch in state `applied`."""
        entry = self.patch(changed or dict(ONE_LINE), name)
        self.settle()
        self.fire(entry, "accept")
        self.settle()
        assert state(self.client, entry) == "applied"
        return entry

    def committed_patch(self, changed: dict[str, str | None] | str | None = None, name: str = "t") -> UUID:
        """A patch in state `committed`."""
        entry = self.applied_patch(changed, name)
        self.fire(entry, "tests_passed")
        self.settle()
        assert state(self.client, entry) == "committed"
        return entry

    def in_place(self, script: str) -> None:
        """Run a shell script as the user who runs the tests."""
        subprocess.run(["sh", "-ec", script], cwd=self.root, check=True)

    def leave(self, files: dict[str, str]) -> None:
        """Write files into the worktree, owned by the commands' user, as commands do."""
        place = self.place
        put(place.path, files)
        if place.account:
            owner = f"{place.account.uid}:{place.account.gid}"
            subprocess.run(["chown", "-hR", owner, *(place.path / Path(name).parts[0] for name in files)], check=True)

    def fire(self, ref: UUID, trigger: str, **data: Any) -> None:
        """Fire a trigger as the scheduler, and apply it."""
        receipt = fire(self.client, ref, trigger, by="scheduler", data=data)
        drain_all(self.runtime)
        (settled,) = self.client.wait([receipt.request_id], timeout_seconds=5)
        assert settled.status == "applied", settled

    def validate(self) -> None:
        """Move the workstream to `validating`, with the counts that the scheduler would have written."""
        self.dba.execute("UPDATE workstream_counts SET completed = 1 WHERE ws_id = %s", (self.workstream,))
        for trigger in ("all_tasks_created", "first_task_started", "all_tasks_completed"):
            self.fire(self.workstream, trigger)

    def fail(self) -> None:
        """Fail the workstream as after the failure of a critical task."""
        self.dba.execute("UPDATE workstream_counts SET failed = 1, critical_failures = 1")
        for trigger in ("all_tasks_created", "first_task_started", "critical_task_failed"):
            self.fire(self.workstream, trigger)

    def land(self) -> UUID:
        """Create the effect that lands the workstream, as the scheduler does; returns its id."""
        with transaction(self.runtime.database) as connection:
            wanted = intents.of_landing(connection, self.workstream, self.version())
            rows.intend(connection, [wanted])
        return UUID(str(wanted["id"]))

    def validate_and_land(self) -> None:
        """Let the workstream be validated and landed as far as it gets."""
        self.validate()
        self.land()
        self.settle()

    def version(self) -> int:
        with transaction(self.runtime.database) as connection:
            return instances.by_id(connection, self.workstream)["version"]

    def cancel(self) -> None:
        """Start the run, cancel it, and let all that takes part in it end."""
        self.fire(self.run, "start")
        self.client.fire(self.run, "cancel", by="ann")
        drain_all(self.runtime)
        while schedule(self.runtime, self.run) or drain_all(self.runtime):
            pass
        self.settle()

    def settle(self) -> None:
        """Run due effects and apply the triggers they fire, until nothing is left."""
        drain_all(self.runtime)
        while due := self.due():
            for effect_id in due:
                effect_runner.run(self.runtime, effect_id)
            drain_all(self.runtime)

    def due(self) -> list[UUID]:
        with transaction(self.runtime.database) as connection:
            return [row["id"] for row in rows.due(connection, limit=100)]

    def make_due(self) -> None:
        """Make every pending effect due, and expire and take back every lease."""
        self.dba.execute("UPDATE effects SET lease_until = now() - interval '1 s' WHERE status = 'leased'")
        with transaction(self.runtime.database) as connection:
            rows.expire_leases(connection, max_attempts=self.runtime.settings.max_attempts, own_attempts={}, limit=100)
        self.dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")

    def only_patch(self) -> UUID:
        """The one patch in the ledger."""
        found = self.dba.execute("SELECT id FROM workflow_instances WHERE workflow_type = 'patch_ledger'").fetchall()
        ((ledger_id,),) = found
        return UUID(str(ledger_id))

    def entry(self, ledger_id: UUID) -> dict[str, Any]:
        with transaction(self.runtime.database) as connection:
            return dict(ledger.entry(connection, ledger_id))

    def effect(self, ref: UUID, name: str) -> dict[str, Any]:
        """An instance's newest effect with this name."""
        with transaction(self.runtime.database) as connection:
            return [dict(each) for each in rows.of_instance(connection, ref) if each["name"] == name][-1]

    def said(self, ref: UUID) -> dict[str, Any]:
        """The metadata of an instance's last event."""
        return dict(self.client.history(ref)[-1]["metadata"])

    def create(self, type_: str, name: str, context: dict[str, Any]) -> UUID:
        """Create an instance in the run, with the command in its context."""
        plain = self.client.birth(type_, name, project=self.project, context=without_command(context))
        commanding.deliver(self.runtime, [replace(plain, context={**context, **plain.context})])
        return plain.id
