"""Names a run's instances before any of them exists, and builds their contexts and commands.

A context has the plan's words under the names that definitions, tables and workers read. Commands are stored
separately. Instances are named by their UUIDs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from interlock.db.orchestration.commands import CommandRow
from interlock.workflows.plan.gate_timing import Moments, moments
from interlock.workflows.plan.names import home_of, result_of
from interlock.workflows.plan.plan import Plan, Workstream
from interlock.workflows.plan.tasks import Gate, Task

EXECUTE, AGENT = "interlock:execute", "interlock:agent"  # of workers that run commands, and of agents
LONGEST_ENTITY = 88  # of 100 characters: the number of the attempt is appended to the name of a gate that is run again
HEAD = 40
SHORT = 6

Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunIds:
    """The ids of a run and all its parts, by their full names in the plan."""

    run: UUID
    name: str
    workstreams: dict[str, UUID]
    tasks: dict[str, UUID]
    gates: dict[str, UUID]

    def entity_id(self, name: str) -> str:
        """The entity id, in its project, of a workstream, task or gate of the run: `RUN/workstream/task`."""
        return shortened(f"{self.name}/{name}")


def assign_ids(plan: Plan, name: str | None = None) -> RunIds:
    """Assign the ids for a run of a plan, with the given name, or the plan's name with a unique suffix."""
    run = uuid7()
    workstreams = _new_ids(each.id for each in plan.workstreams)
    tasks, gates = _new_ids(plan.tasks()), _new_ids(plan.gates())
    return RunIds(run, name or f"{plan.name}-{run.hex[-SHORT:]}", workstreams, tasks, gates)


def shortened(path: str) -> str:
    """A unique name from a path: unchanged or, if it is long, its two ends with its hash between them.

    Names in plans cannot contain `+`, so no other name looks like a shortened one.
    """
    if len(path) <= LONGEST_ENTITY:
        return path
    sign = sha256(path.encode()).hexdigest()[:10]
    return f"{path[:HEAD]}+{sign}+{path[HEAD + len(sign) + 2 - LONGEST_ENTITY :]}"


@dataclass(frozen=True)
class Contexts:
    """The contexts of a plan's instances.

    Attributes:
        plan: settled; everything it names has an id in `ids`.
        project: of all instances.
        ids: the ids.
        patch_ids: task -> the patch it lands.
        before: name -> the instance of an earlier run that this one retries; that of the run itself under "".
        carried: workstream -> the completed workstream of an earlier run that it stands for.
        carried_tasks: task of such a workstream -> that of the earlier run, whose result is used.
    """

    plan: Plan
    project: str
    ids: RunIds
    patch_ids: Mapping[str, str]
    before: Mapping[str, UUID]
    carried: Mapping[str, UUID]
    carried_tasks: Mapping[str, UUID] = field(default_factory=dict)

    @cached_property
    def moments(self) -> Moments:
        """When the gates run."""
        return moments(self.plan)

    @cached_property
    def phases(self) -> dict[str, str]:
        """Workstream -> the name of its phase."""
        return {each.id: self.plan.phase_of(each) for each in self.plan.workstreams}

    @cached_property
    def blocking(self) -> Mapping[str, Sequence[str]]:
        """Task -> the gates that must have passed before it starts."""
        return self.plan.blocking()

    def run(self, *, priority: int) -> Context:
        """The run's context."""
        return self._of("", self.plan.title) | {"name": self.ids.name, "plan": self.plan.name, "priority": priority}

    def workstream(self, workstream: Workstream) -> Context:
        """A workstream's context. Its `gates` are those that its end waits for."""
        context = self._of(workstream.id, workstream.title) | {
            "run": self.ids.name,
            "is_critical": workstream.critical,
            "depends_on": _ids(self.ids.workstreams, workstream.depends_on),
            "gates": _ids(self.ids.gates, self.moments.closing.get(workstream.id, ())),
            "affinity": list(workstream.affinity),
            "task_count": len(workstream.tasks),
        }
        if workstream.skip:
            context["skip"] = True
        if workstream.id in self.carried:
            context["carried_from"] = str(self.carried[workstream.id])
        return context

    def task(self, workstream: str, task: Task) -> Context:
        """A task's context: its work, its terms, and what it waits for."""
        name = f"{workstream}/{task.id}"
        capability = AGENT if task.kind == "agent" else EXECUTE
        context = self._of(name, task.title) | {
            "workstream_id": str(self.ids.workstreams[workstream]),
            "kind": task.kind,
            "is_critical": task.critical,
            "priority": task.priority,
            "backoff": task.backoff.model_dump(),
            "required_capabilities": [*task.capabilities, capability],
            "depends_on": _ids(self.ids.tasks, task.depends_on),
            "gates": _ids(self.ids.gates, self.moments.after.get(name, ())),
            "blocked_by_gates": _ids(self.ids.gates, self.blocking.get(name, ())),
        }
        agent = task.agent.model_dump(mode="json") if task.agent else None
        terms = _without_none(
            agent=agent,
            max_retries=task.retries,
            tool=task.tool,
            limit_key=task.limit_key,
            affinity=list(task.affinity) or None,
            inputs=self._inputs(task) or None,
        )
        return context | _terms(task) | terms

    def gate(self, workstream: str, gate: Gate) -> Context:
        """A gate's context: what it judges, and when it runs."""
        name = f"{workstream}/{gate.id}"
        context = self._of(name) | {
            "workstream_id": str(self.ids.workstreams[workstream]),
            "gate_type": gate.type,
            "moment": self.moments.of[name],
            "reruns_left": gate.reruns,
            "depends_on": _ids(self.ids.gates, gate.depends_on),
        }
        return context | _terms(gate)

    def commands(self) -> dict[UUID, CommandRow]:
        """The commands and patches of the tasks and gates. Tasks of agents have none."""
        tasks = {
            self.ids.tasks[name]: _command(task, task.tool, self.patch_ids.get(name))
            for name, task in self.plan.tasks().items()
            if not task.agent
        }
        return tasks | {self.ids.gates[name]: _command(gate) for name, gate in self.plan.gates().items()}

    def _inputs(self, task: Task) -> Context:
        """The results that a task gets: the id of each one's task, and the key of the result, if not all is wanted."""
        named = {name: result_of(written) for name, written in task.inputs.items()}
        return {
            name: _without_none(task=str(self.ids.tasks.get(each) or self.carried_tasks[each]), key=key)
            for name, (each, key) in named.items()
        }

    def _of(self, name: str, title: str | None = None) -> Context:
        phase = self.phases.get(home_of(name), self.plan.phase_id)
        context = {"run_id": str(self.ids.run), "phase_id": phase, "name": name}
        before = self.before.get(name)
        return context | _without_none(title=title, retry_of=str(before) if before else None)


def _terms(process: Task | Gate) -> Context:
    return {"expected_exit_codes": list(process.expected_exit_codes), **_without_none(timeout_sec=process.timeout)}


def _command(process: Task | Gate, tool: str | None = None, patch_id: str | None = None) -> CommandRow:
    if isinstance(process, Task) and process.patch:
        message = process.patch.message or process.title or process.id
        return CommandRow("patch", patch_id=patch_id, message=message, timeout_sec=process.timeout)
    return CommandRow(
        kind="command" if process.shell is None else "shell",
        argv=tuple(process.command or ()) if process.shell is None else (process.shell,),
        env=process.env,
        env_from=process.env_from,
        cwd=process.cwd,
        limits=process.limits.model_dump(exclude_none=True),
        sandbox=_without_none(mode=process.sandbox, reads=list(process.reads) or None, network=process.network or None),
        timeout_sec=process.timeout,
        expected_exit_codes=process.expected_exit_codes,
        tool=tool,
    )


def _without_none(**fields: object) -> Context:
    return {name: value for name, value in fields.items() if value is not None}


def _ids(known: Mapping[str, UUID], names: Iterable[str]) -> list[str]:
    return [str(known[name]) for name in names]


def _new_ids(names: Iterable[str]) -> dict[str, UUID]:
    return {name: uuid7() for name in names}
