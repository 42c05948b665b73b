"""The tasks and gates of a plan, and the terms under which they run (docs/spec/task.md, docs/spec/gate.md)."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from interlock.workflows.plan.field_types import (
    Bytes,
    Count,
    Data,
    Delay,
    ExitCode,
    Flag,
    Identifier,
    Message,
    Name,
    Ratio,
    Reference,
    ResultReference,
    Seconds,
    SecretReference,
    Text,
    Title,
    Variable,
)

Kind = Literal["command", "shell", "agent", "patch"]
OURS = "INTERLOCK_"  # begins the variables that Interlock itself sets
GateType = Literal["LINT", "UNIT", "INTEGRATION", "SECURITY"]
KINDS: tuple[Kind, ...] = ("command", "shell", "agent", "patch")


class PlanPart(BaseModel):
    """A mapping of a plan: immutable, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def _needs_one_of(self, *names: str) -> None:
        present = [name for name in names if getattr(self, name) is not None]
        if len(present) != 1:
            has = " and ".join(present) or "none of them"
            context = {"names": ", ".join(names), "has": has}
            raise PydanticCustomError("one_of", "needs exactly one of {names}; it has {has}", context)


class Limits(PlanPart):
    """What a command may use before the system stops it: never more than the installation's settings allow."""

    memory: Bytes | None = Field(
        None,
        description="memory that each process may allocate, and that all together may hold, in bytes or as `512M`, "
        "`2G`",
    )
    cpu_seconds: Seconds | None = Field(None, description="processor time of each process, in seconds or as `10m`")
    processes: Count | None = Field(None, ge=1, le=1_000_000, description="processes and threads at once")
    open_files: Count | None = Field(None, ge=16, le=1_000_000, description="open files of each process")
    file_size: Bytes | None = Field(None, description="largest file that it may write, in bytes or as `512M`, `2G`")
    disk: Bytes | None = Field(None, description="total that it may write to disk, in bytes or as `512M`, `2G`")


class Backoff(PlanPart):
    """The wait before retry n: at most `base` times `factor` to the power n - 1, never above `cap` (TASK-7)."""

    base: Delay = Field(1.0, description="longest wait before the first retry, in seconds or as `30s`")
    factor: Ratio = Field(2.0, ge=1, le=10, description="factor for each further wait")
    cap: Delay = Field(600.0, description="longest wait at all, in seconds or as `10m`")


class Process(PlanPart):
    """How a command is run: the fields that tasks and gates share."""

    expected_exit_codes: tuple[ExitCode, ...] = Field((0,), min_length=1, description="exit codes that mean success")
    env: dict[Variable, str] = Field({}, description="environment variables, besides the few that every command gets")
    env_from: dict[Variable, SecretReference] = Field(
        {},
        description="environment variables whose values the worker looks up right before the start: `env:NAME` of its "
        "own environment, `file:PATH` or `command:NAME`, as far as its settings allow; never stored, "
        "masked in output",
    )
    cwd: Text | None = Field(
        None, description="working directory, in the workstream's worktree or, without a repository, the plan's folder"
    )
    limits: Limits = Field(Limits(), description="memory, processor time, processes, disk")
    sandbox: Literal["auto", "require", "off"] | None = Field(
        None, description="`require`: not run without a sandbox; default, and always at least: `INTERLOCK_SANDBOX`"
    )
    reads: tuple[Text, ...] = Field(
        (),
        description="paths that it may read in its sandbox besides its own directory, absolute or relative to the "
        "plan's folder",
    )
    network: Flag = Field(
        False,
        description="whether it has the machine's network in its sandbox; otherwise it has none",
    )

    @model_validator(mode="after")
    def _one_source_each(self) -> Self:
        if twice := sorted(self.env.keys() & self.env_from.keys()):
            raise PydanticCustomError("twice", "{names}: in `env` and in `env_from`", {"names": ", ".join(twice)})
        return self


class Terms(Process):
    """How a task is run. In `defaults`: for all tasks that leave these fields out."""

    timeout: Seconds | None = Field(
        None,
        description="time limit in seconds or as `30m`, after which it and its child processes are stopped; default: "
        "`INTERLOCK_TASK_TIMEOUT_SECONDS`",
    )
    retries: Count | None = Field(
        None, ge=0, le=100, description="number of retries after a failure; default: `INTERLOCK_TASK_RETRIES`"
    )
    backoff: Backoff = Field(Backoff(), description="the wait before each retry")
    critical: Flag = Field(False, description="whether its failure fails the workstream at once")
    priority: Count = Field(0, ge=-1000, le=1000, description="among tasks that could start, higher goes first")
    capabilities: tuple[Name, ...] = Field((), description="capabilities that a worker must offer to get it")
    tool: Reference | None = Field(
        None,
        description="the circuit breaker, one of `tools`, that guards its command; it waits while that is open. "
        "Agents guard their own calls",
    )
    limit_key: Name | None = Field(
        None, description="as what limits on keys count it (LIMIT-3): it waits while they have no room"
    )


class AgentWork(PlanPart):
    """Work that an external agent claims and reports."""

    instructions: Text = Field(description="what the agent is asked to do")
    inputs: dict[str, Data] = Field({}, description="any other data for the agent; passed on unchanged")


class Patch(PlanPart):
    """A change that lands in the repository through the patch ledger (PATCH-1)."""

    file: Text | None = Field(None, description="the diff, a file in the plan's folder")
    diff: Text | None = Field(None, description="the diff itself")
    message: Message | None = Field(None, description="the commit's message; default: the task's title or id")

    @model_validator(mode="after")
    def _file_or_diff(self) -> Self:
        self._needs_one_of("file", "diff")
        return self


def _spelled_out(value: object) -> object:
    """A patch given as a plain text: one line is a file's name, several lines are the diff."""
    if not isinstance(value, str):
        return value
    return {"diff": value} if "\n" in value else {"file": value}


class Task(Terms):
    """One piece of work: a command, a shell line, an agent's work or a patch."""

    id: Identifier = Field(description="its name, unique in its workstream")
    title: Title | None = Field(None, description="text shown to people")
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="program and arguments; no shell is involved"
    )
    shell: Text | None = Field(None, description="a line for /bin/sh")
    agent: AgentWork | None = Field(None, description="work for an external agent")
    patch: Annotated[Patch | None, BeforeValidator(_spelled_out, json_schema_input_type=str | Patch | None)] = Field(
        None, description="a change to the repository: a diff's file name, the diff itself, or a mapping"
    )
    depends_on: tuple[Reference, ...] = Field(
        (), description="tasks that must be completed before; `workstream/task` for one of another workstream"
    )
    inputs: dict[Variable, ResultReference] = Field(
        {},
        max_length=64,
        description="results of other tasks, by the variables that get them: `task`, `workstream/task`, or with `:key` "
        "one key of the result; it depends on these tasks, too",
    )
    affinity: tuple[Name, ...] = Field(
        (),
        description="names or types of the workers that may take it, if only these; default: those of its workstream",
    )
    gates: tuple[Reference, ...] = Field(
        (), description="gates of its workstream that run after it and must pass before it is completed (TASK-10)"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        self._needs_one_of(*KINDS)
        return self

    @model_validator(mode="after")
    def _inputs_fit(self) -> Self:
        if self.inputs and self.patch:
            raise PydanticCustomError("patch_inputs", "a patch runs nothing, so it takes no `inputs`")
        if twice := sorted(self.inputs.keys() & (self.env.keys() | self.env_from.keys())):
            raise PydanticCustomError(
                "twice", "{names}: in `inputs` and among its variables", {"names": ", ".join(twice)}
            )
        if own := sorted(name for name in self.inputs if name.startswith(OURS)):
            raise PydanticCustomError("ours", "{names}: such names are Interlock's own", {"names": ", ".join(own)})
        return self

    @property
    def kind(self) -> Kind:
        """The task's kind: one of `KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


class Gate(Process):
    """A check that must pass (GATE-2)."""

    id: Identifier = Field(description="its name, unique in its workstream")
    type: GateType = Field(description="what it checks (GATE-9)")
    timeout: Seconds = Field(
        1800,
        description="time limit in seconds or as `30m`, after which it and its child processes are stopped",
    )
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="program and arguments; no shell is involved"
    )
    shell: Text | None = Field(None, description="a line for /bin/sh")
    depends_on: tuple[Reference, ...] = Field((), description="gates that must have passed before it runs")
    blocks: tuple[Reference, ...] = Field((), description="tasks that start only once it has passed")
    reruns: Count = Field(
        0,
        ge=0,
        le=100,
        description="number of times a failed gate is run again, each time as a new instance",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        self._needs_one_of("command", "shell")
        return self
