"""What each instance of a run knows from its birth: the plan's words under the names that definitions, tables and
workers read. Instances are named by their UUIDs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from workers.orchestration.roster import Roster
from workflows.plan.moments import Moments, moments
from workflows.plan.plan import Plan, Workstream
from workflows.plan.work import Gate, Task

EXECUTE, AGENT = "interlock:execute", "interlock:agent"  # what a worker that runs commands, and an agent, offer
Context = dict[str, Any]


@dataclass(frozen=True)
class Contexts:
    """The contexts of a plan's instances.

    Attributes:
        plan: settled; what it names is on the roster.
        roster: the ids.
        patch_ids: task -> the patch it lands.
        before: name -> the instance of an earlier run that this one is tried again for; of the run itself under "".
        carried: workstream -> the completed one of an earlier run that it stands for.
    """

    plan: Plan
    roster: Roster
    patch_ids: Mapping[str, str]
    before: Mapping[str, UUID]
    carried: Mapping[str, UUID]

    @cached_property
    def moments(self) -> Moments:
        """When the gates run."""
        return moments(self.plan)

    @cached_property
    def blocking(self) -> dict[str, list[str]]:
        """Task -> the gates that must have passed before it starts."""
        found: dict[str, list[str]] = {}
        for name, gate in self.plan.gates().items():
            for task in gate.blocks:
                found.setdefault(task, []).append(name)
        return found

    def run(self, *, priority: int) -> Context:
        """The run's."""
        return self._of("", self.plan.title) | {"name": self.roster.name, "plan": self.plan.name, "priority": priority}

    def workstream(self, workstream: Workstream) -> Context:
        """A workstream's; gates that judge it as a whole are its own."""
        final = [name for name in self._gates_of(workstream) if self.moments.of[name] == "final"]
        context = self._of(workstream.id, workstream.title) | {
            "run": self.roster.name,
            "is_critical": workstream.critical,
            "depends_on": _ids(self.roster.workstreams, workstream.depends_on),
            "gates": _ids(self.roster.gates, final),
            "affinity": list(workstream.affinity),
            "task_count": len(workstream.tasks),
        }
        if workstream.skip:
            context["skip"] = True
        if workstream.id in self.carried:
            context["carried_from"] = str(self.carried[workstream.id])
        return context

    def task(self, workstream: str, task: Task) -> Context:
        """A task's: its work, its terms, what it waits for."""
        name = f"{workstream}/{task.id}"
        capability = AGENT if task.kind == "agent" else EXECUTE
        context = self._of(name, task.title) | {
            "workstream_id": str(self.roster.workstreams[workstream]),
            "kind": task.kind,
            "is_critical": task.critical,
            "priority": task.priority,
            "backoff": task.backoff.model_dump(),
            "required_capabilities": [*task.capabilities, capability],
            "depends_on": _ids(self.roster.tasks, task.depends_on),
            "gates": _ids(self.roster.gates, self.moments.after.get(name, ())),
            "blocked_by_gates": _ids(self.roster.gates, self.blocking.get(name, ())),
        }
        return (
            context
            | _process(task)
            | _work(task, self.patch_ids.get(name))
            | _given(max_retries=task.retries, tool=task.tool, affinity=list(task.affinity) or None)
        )

    def gate(self, workstream: str, gate: Gate) -> Context:
        """A gate's: its command, and when it runs."""
        name = f"{workstream}/{gate.id}"
        context = self._of(name) | {
            "workstream_id": str(self.roster.workstreams[workstream]),
            "gate_type": gate.type,
            "moment": self.moments.of[name],
            "reruns_left": gate.reruns,
            "depends_on": _ids(self.roster.gates, gate.depends_on),
        }
        return context | _process(gate) | _command(gate)

    def _of(self, name: str, title: str | None = None) -> Context:
        context = {"run_id": str(self.roster.run), "phase_id": self.plan.phase_id, "name": name}
        before = self.before.get(name)
        return context | _given(title=title, retry_of=str(before) if before else None)

    def _gates_of(self, workstream: Workstream) -> Iterable[str]:
        return (f"{workstream.id}/{gate.id}" for gate in workstream.gates)


def _process(process: Task | Gate) -> Context:
    return {
        "expected_exit_codes": list(process.expected_exit_codes),
        "env": dict(process.env),
        "limits": process.limits.model_dump(exclude_none=True),
        **_given(timeout_sec=process.timeout, cwd=process.cwd),
    }


def _work(task: Task, patch_id: str | None) -> Context:
    if task.agent:
        return {"agent": task.agent.model_dump(mode="json")}
    if task.patch:
        return {"patch_id": patch_id, "message": task.patch.message or task.title or task.id}
    return _command(task)


def _command(process: Task | Gate) -> Context:
    if process.shell is not None:
        return {"command": process.shell, "shell": True}
    return {"command": list(process.command or ()), "shell": False}


def _given(**fields: object) -> Context:
    return {name: value for name, value in fields.items() if value is not None}


def _ids(known: Mapping[str, UUID], names: Iterable[str]) -> list[str]:
    return [str(known[name]) for name in names]
