"""A plan: workstreams of tasks and gates, the repository they change and the tools they use."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid5

from pydantic import Field

from workflows.plan.outline import outline
from workflows.plan.quantities import Count, Delay, Flag, Glob, Identifier, Text
from workflows.plan.waits import Waits
from workflows.plan.work import KINDS, Gate, Part, Task, Terms

PROJECTS = UUID("5b0c2b34-6f0e-5d0b-9a52-0d6d1c1f3b67")  # the namespace in which plans' names are projects


class Tool(Part):
    """A circuit breaker's configuration (SSOT 2.4.4): that of the plan submitted last, where several name the tool.

    What is left out is as `INTERLOCK_BREAKER_…` says. A command fails its tool that ends with an exit code it does not
    expect, runs out of time or cannot be run.
    """

    failure_threshold: Count | None = Field(
        None, ge=1, le=10_000, description="failures in a row that open it; default: the setting, 5"
    )
    cooldown_seconds: Delay | None = Field(
        None, gt=0, description="how long it stays open, in seconds or as `2m`; default: the setting, 60"
    )
    success_threshold: Count | None = Field(
        None, ge=1, le=10_000, description="trial requests that must succeed to close it; default: the setting, 1"
    )


class Repository(Part):
    """The git repository that patches change, and what they may change there (SSOT 2.2.4)."""

    path: Text = Field(description="where it is; relative to the plan's folder")
    base_branch: Text = Field("main", description="the branch that workstreams start from and are merged into")
    allowed_paths: tuple[Glob, ...] = Field(
        ("**",), min_length=1, description="globs as in .gitignore; every path that a patch touches matches one"
    )
    forbidden_paths: tuple[Glob, ...] = Field(
        (), description="globs as in .gitignore; no path that a patch touches matches one. `.git` never may be touched"
    )
    max_files: Count = Field(200, ge=1, description="files that one patch may touch")
    max_changed_lines: Count = Field(10_000, ge=1, description="lines that one patch may add and remove together")


class Workstream(Part):
    """Tasks and gates that end together: completed and merged, or failed and archived (SSOT 1.3)."""

    id: Identifier = Field(description="its name, unique in the plan")
    title: Text | None = Field(None, description="what people read")
    critical: Flag = Field(False, description="whether its failure fails the run at once (SSOT 1.2.4)")
    skip: Flag = Field(False, description="leave it out of this run; it ends `skipped`")
    depends_on: tuple[Identifier, ...] = Field((), description="workstreams that must be completed before it starts")
    affinity: tuple[Text, ...] = Field(
        (), description="names or types of the only workers that may take its tasks, where these do not say"
    )
    gates: tuple[Gate, ...] = Field((), description="its checks")
    tasks: tuple[Task, ...] = Field(min_length=1, description="its work")


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan in numbers. `tasks` counts by kind; `longest_chain` is of tasks that must follow one another."""

    name: str
    workstreams: int
    tasks: dict[str, int]
    gates: int
    longest_chain: int

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.tasks.items() if number)
        counted = f"{_counted(self.workstreams, 'workstream')}, {_counted(sum(self.tasks.values()), 'task')} ({kinds})"
        return f"{self.name}: {counted}, {_counted(self.gates, 'gate')}, longest chain {self.longest_chain}"


class Plan(Part):
    """All that one run is to do.

    Made by `workflows.plan.read.read_plan`, which also checks what names what and applies `defaults`.
    """

    name: Identifier = Field(description="what runs of it are called")
    title: Text | None = Field(None, description="what people read")
    project: UUID | None = Field(
        None, description="the project its instances belong to; default: derived from the name"
    )
    phase_id: Identifier = Field("default", description="the phase its records carry (SSOT 6.1)")
    defaults: Terms = Field(Terms(), description="for each task that does not say; for gates `env`, `cwd` and `limits`")
    tools: dict[Identifier, Tool] = Field({}, description="circuit breakers by name, shared by all runs")
    repository: Repository | None = Field(None, description="needed by tasks that land a patch")
    workstreams: tuple[Workstream, ...] = Field(min_length=1, description="the work")

    @property
    def project_id(self) -> UUID:
        """The project named, or else the one that every plan of this name has."""
        return self.project or uuid5(PROJECTS, self.name)

    def tasks(self) -> dict[str, Task]:
        """Every task under its full name, `workstream/task`, as written."""
        return {f"{each.id}/{task.id}": task for each in self.workstreams for task in each.tasks}

    def gates(self) -> dict[str, Gate]:
        """Every gate under its full name, `workstream/gate`, as written."""
        return {f"{each.id}/{gate.id}": gate for each in self.workstreams for gate in each.gates}

    def order(self) -> tuple[str, ...]:
        """Full names of all tasks, each after everything it waits for; as written where nothing else decides."""
        return self._waits().order()

    def final_gates(self) -> frozenset[str]:
        """Full names of the gates that run once all tasks of their workstream are done: its final validation."""
        return self._waits().final_gates

    def summary(self) -> Summary:
        """The plan in numbers."""
        kinds = Counter(task.kind for task in self.tasks().values())
        return Summary(
            self.name,
            len(self.workstreams),
            {kind: kinds[kind] for kind in KINDS},
            len(self.gates()),
            self._waits().longest_chain(),
        )

    def _waits(self) -> Waits:
        return Waits(outline({"workstreams": list(_names(self.workstreams))}))


def _names(workstreams: tuple[Workstream, ...]) -> Iterator[dict[str, object]]:
    for each in workstreams:
        yield {
            "id": each.id,
            "depends_on": list(each.depends_on),
            "tasks": [{"id": t.id, "depends_on": list(t.depends_on), "gates": list(t.gates)} for t in each.tasks],
            "gates": [{"id": g.id, "depends_on": list(g.depends_on), "blocks": list(g.blocks)} for g in each.gates],
        }


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
