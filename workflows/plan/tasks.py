"""What a plan has done: tasks and gates, and the terms under which they run (SSOT 1.4, 2.3, 6.3, 6.6)."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from workflows.plan.quantities import (
    Bytes,
    Count,
    Data,
    Delay,
    ExitCode,
    Flag,
    Identifier,
    Ratio,
    Reference,
    Seconds,
    Text,
    Variable,
)

Kind = Literal["command", "shell", "agent", "patch"]
KINDS: tuple[Kind, ...] = ("command", "shell", "agent", "patch")


class Part(BaseModel):
    """A mapping of a plan: never changed, and no field that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def _needs_one_of(self, *names: str) -> None:
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            has = " and ".join(given) or "none of them"
            said = {"names": ", ".join(names), "has": has}
            raise PydanticCustomError("one_of", "needs exactly one of {names}; it has {has}", said)


class Limits(Part):
    """What a command may use before the system stops it. Nothing set: as much as the worker itself may."""

    memory: Bytes | None = Field(None, description="what each process may allocate, in bytes or as `512M`, `2G`")
    cpu_seconds: Seconds | None = Field(None, description="processor time of each process, in seconds or as `10m`")


class Backoff(Part):
    """The wait before retry n: at most `base` times `factor` to the power n - 1, never above `cap` (SSOT 1.4.4)."""

    base: Delay = Field(1.0, description="longest wait before the first retry, in seconds or as `30s`")
    factor: Ratio = Field(2.0, ge=1, le=10, description="what each further wait is multiplied by")
    cap: Delay = Field(600.0, description="no wait is longer, in seconds or as `10m`")


class Process(Part):
    """How a command is run; what tasks and gates have in common."""

    expected_exit_codes: tuple[ExitCode, ...] = Field((0,), min_length=1, description="exit codes that mean success")
    env: dict[Variable, str] = Field({}, description="environment variables, beside the few that every command gets")
    cwd: Text | None = Field(
        None, description="working directory, in the workstream's worktree or, without a repository, the plan's folder"
    )
    limits: Limits = Field(Limits(), description="memory and processor time")


class Terms(Process):
    """How a task is run. As `defaults`: how every task is that does not say otherwise."""

    timeout: Seconds | None = Field(
        None,
        description="stopped, with all it started, after this many seconds, or `30m`;"
        " default: `INTERLOCK_TASK_TIMEOUT_SECONDS`",
    )
    retries: Count | None = Field(
        None, ge=0, le=100, description="times it is tried again after failing; default: `INTERLOCK_TASK_RETRIES`"
    )
    backoff: Backoff = Field(Backoff(), description="how long to wait before that")
    critical: Flag = Field(False, description="whether its failure fails the workstream at once")
    priority: Count = Field(0, ge=-1000, le=1000, description="higher goes first, among tasks that could start")
    capabilities: tuple[Text, ...] = Field((), description="what a worker must offer to be given it")
    tool: Reference | None = Field(
        None, description="the circuit breaker, one of `tools`, that guards its command; agents guard their own calls"
    )


class Agent(Part):
    """Work that an external agent claims and reports."""

    instructions: Text = Field(description="what the agent is asked to do")
    inputs: dict[str, Data] = Field({}, description="anything else it should be given; kept as it is")


class Patch(Part):
    """A change that lands in the repository through the patch ledger (SSOT 2.2)."""

    file: Text | None = Field(None, description="the diff, a file in the plan's folder")
    diff: Text | None = Field(None, description="the diff itself")
    message: Text | None = Field(None, description="the commit's message; default: the task's title or id")

    @model_validator(mode="after")
    def _file_or_diff(self) -> Self:
        self._needs_one_of("file", "diff")
        return self


def _spelled_out(value: object) -> object:
    """A patch given as text alone: of one line it is a file's name, of several the diff."""
    if not isinstance(value, str):
        return value
    return {"diff": value} if "\n" in value else {"file": value}


class Task(Terms):
    """One piece of work: a command, a shell line, an agent's work or a patch."""

    id: Identifier = Field(description="its name, unique in its workstream")
    title: Text | None = Field(None, description="what people read")
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="program and arguments; no shell is involved"
    )
    shell: Text | None = Field(None, description="a line for /bin/sh")
    agent: Agent | None = Field(None, description="work for an external agent")
    patch: Annotated[Patch | None, BeforeValidator(_spelled_out, json_schema_input_type=str | Patch | None)] = Field(
        None, description="a change to the repository: a diff's file name, the diff itself, or a mapping"
    )
    depends_on: tuple[Reference, ...] = Field(
        (), description="tasks that must be completed before; `workstream/task` for one of another workstream"
    )
    affinity: tuple[Text, ...] = Field(
        (), description="names or types of the only workers that may take it; default: those of its workstream"
    )
    gates: tuple[Reference, ...] = Field(
        (), description="gates that run after it and must pass before it is completed (SSOT 3.1.2)"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        self._needs_one_of(*KINDS)
        return self

    @property
    def kind(self) -> Kind:
        """Which of the four it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


class Gate(Process):
    """A check that must pass (SSOT 2.3)."""

    id: Identifier = Field(description="its name, unique in its workstream")
    type: Literal["LINT", "UNIT", "INTEGRATION", "SECURITY"] = Field(description="what it checks (SSOT 2.3.8)")
    timeout: Seconds = Field(1800, description="stopped, with all it started, after this many seconds, or `30m`")
    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="program and arguments; no shell is involved"
    )
    shell: Text | None = Field(None, description="a line for /bin/sh")
    depends_on: tuple[Reference, ...] = Field((), description="gates that must have passed before it runs")
    blocks: tuple[Reference, ...] = Field((), description="tasks that start only once it has passed")
    reruns: Count = Field(0, ge=0, le=100, description="times a failed gate is run again, each time as a new instance")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        self._needs_one_of("command", "shell")
        return self
