"""A plan: workstreams of tasks and gates, the repository they change and the tools they use."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from interlock.workflows.output.counts import number_of
from interlock.workflows.plan.field_types import Count, Delay, Flag, Glob, Identifier, Name, Project, Text, Title
from interlock.workflows.plan.names import outline
from interlock.workflows.plan.ordering import Waits
from interlock.workflows.plan.phases import DEFAULT, Phase
from interlock.workflows.plan.tasks import KINDS, Gate, PlanPart, Task, Terms

PROTECTED = (
    *(".github/", ".gitlab/", ".gitlab-ci.yml", ".ci/", ".circleci/", ".buildkite/", ".travis.yml", "Jenkinsfile"),
    *("azure-pipelines.yml", "bitbucket-pipelines.yml", ".pre-commit-config.yaml", ".envrc", ".vscode/", ".idea/"),
    *(".devcontainer/", "conftest.py", "pytest.ini", "tox.ini", "noxfile.py", "sitecustomize.py", "usercustomize.py"),
    *("Makefile", "makefile", "GNUmakefile", "justfile", "Justfile"),
)


class Tool(PlanPart):
    """A circuit breaker's configuration (BREAKER-7): that of the plan submitted last, where several name the tool.

    Fields left out default to the settings `INTERLOCK_BREAKER_…`. A command counts as a failure of its tool if it ends
    with an unexpected exit code, times out or cannot be run.
    """

    failure_threshold: Count | None = Field(
        None, ge=1, le=10_000, description="failures in a row that open it; default: the setting, 5"
    )
    cooldown_seconds: Delay | None = Field(
        None, gt=0, description="how long the breaker stays open, in seconds or as `2m`; default: the setting, 60"
    )
    success_threshold: Count | None = Field(
        None, ge=1, le=10_000, description="trial requests that must succeed to close it; default: the setting, 1"
    )


class PlannedRepository(PlanPart):
    """The git repository that patches change, and what they may change there (PATCH-18)."""

    path: Text = Field(description="path of the repository; relative to the plan's folder")
    base_branch: Name = Field("main", description="the branch that workstreams start from and are merged into")
    allowed_paths: tuple[Glob, ...] = Field(
        ("**",), min_length=1, description="globs as in .gitignore; every path that a patch touches must match one"
    )
    forbidden_paths: tuple[Glob, ...] = Field(
        (),
        description="globs as in .gitignore; no path that a patch touches may match one. `.git` may never be touched",
    )
    protected: tuple[Glob, ...] = Field(
        PROTECTED,
        description="globs as in .gitignore of files that judge a change, or that run where people work: gates see "
        "these paths as the base branch has them. Files that the plan's gates run are protected too",
    )
    protected_changes: Literal["refuse", "allow"] = Field(
        "refuse",
        description="`refuse`: a patch or branch that changes a protected path does not land; `allow`: it may",
    )
    regressions: Literal["ignore", "propose", "roll_back"] = Field(
        "propose",
        description="what is done when a gate fails for good after patches of the run have landed: `propose`: find the "
        "patch that broke it, and propose its rollback to operators; `roll_back`: roll it back without asking, if an "
        "operator submitted the plan; `ignore`: nothing",
    )
    max_files: Count = Field(200, ge=1, description="files that one patch may touch")
    max_changed_lines: Count = Field(10_000, ge=1, description="lines that one patch may add and remove together")


class Workstream(PlanPart):
    """Tasks and gates that end together: completed and merged, or failed and archived (WORKSTREAM-4, WORKSTREAM-5)."""

    id: Identifier = Field(description="its name, unique in the plan")
    title: Title | None = Field(None, description="text shown to people")
    phase_id: Identifier | None = Field(None, description="its phase, one of `phases`; default: the plan's")
    critical: Flag = Field(False, description="whether its failure fails the run at once (RUN-3)")
    skip: Flag = Field(False, description="whether to leave it out of this run; it ends `skipped`")
    depends_on: tuple[Identifier, ...] = Field((), description="workstreams that must be completed before it starts")
    affinity: tuple[Name, ...] = Field(
        (),
        description="names or types of the workers that may take its tasks, if only these; a task's own `affinity` "
        "overrides it",
    )
    gates: tuple[Gate, ...] = Field((), description="its checks")
    tasks: tuple[Task, ...] = Field(min_length=1, description="its work")


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan in numbers. `tasks` counts by kind; `longest_chain` is the most tasks that must run one after another."""

    name: str
    workstreams: int
    tasks: dict[str, int]
    gates: int
    longest_chain: int

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.tasks.items() if number)
        counted = (
            f"{number_of(self.workstreams, 'workstream')}, {number_of(sum(self.tasks.values()), 'task')} ({kinds})"
        )
        return f"{self.name}: {counted}, {number_of(self.gates, 'gate')}, longest chain {self.longest_chain}"


class Plan(PlanPart):
    """The work of one run.

    Built by `workflows.plan.read.read_plan`, which also checks references and applies `defaults`.
    """

    name: Identifier = Field(description="name of its runs")
    title: Title | None = Field(None, description="text shown to people")
    project: Project | None = Field(
        None, description="the project its instances belong to; default: the project of whoever submits it"
    )
    phase_id: Identifier = Field(DEFAULT, description="its phase, one of `phases` (PHASE-2)")
    phases: dict[Identifier, Phase] = Field(
        {}, description="phases by name; where the installation has a file of phases (`INTERLOCK_PHASES`), from there"
    )
    defaults: Terms = Field(
        Terms(),
        description="values for fields that a task leaves out; for gates only `env`, `env_from`, `cwd`, `limits`, "
        "`sandbox`, `reads` and `network`",
    )
    tools: dict[Identifier, Tool] = Field({}, description="circuit breakers by name, shared by all runs")
    repository: PlannedRepository | None = Field(None, description="needed by tasks that land a patch")
    workstreams: tuple[Workstream, ...] = Field(min_length=1, description="the work")

    def tasks(self) -> dict[str, Task]:
        """Every task under its full name, `workstream/task`, as written."""
        return {f"{each.id}/{task.id}": task for each in self.workstreams for task in each.tasks}

    def gates(self) -> dict[str, Gate]:
        """Every gate under its full name, `workstream/gate`, as written."""
        return {f"{each.id}/{gate.id}": gate for each in self.workstreams for gate in each.gates}

    def phase_of(self, workstream: Workstream) -> str:
        """The name of a workstream's phase."""
        return workstream.phase_id or self.phase_id

    def order(self) -> tuple[str, ...]:
        """Full names of all tasks in dependency order; otherwise in the order written."""
        return self._waits().order()

    def blocking(self) -> dict[str, list[str]]:
        """Task -> the gates that must have passed before it starts, by full names in a settled plan."""
        found: dict[str, list[str]] = {}
        for name, gate in self.gates().items():
            for task in gate.blocks:
                found.setdefault(task, []).append(name)
        return found

    def final_gates(self) -> frozenset[str]:
        """Full names of the gates that nothing needs before the end of their workstream: its final validation."""
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
