"""A phase of a plan: what its workstreams may change, and what they need to land (docs/spec/phase.md)."""

from pydantic import Field

from interlock.workflows.plan.field_types import Glob, Identifier, Name, Title
from interlock.workflows.plan.tasks import GateType, PlanPart

DEFAULT = "default"  # the phase of plans that name none


class Phase(PlanPart):
    """What a phase allows its workstreams, and what they need to land (PHASE-1)."""

    allowed_paths: tuple[Glob, ...] = Field(
        ("**",),
        min_length=1,
        description="globs as in .gitignore; every path that its patches and branches change must match one, and one "
        "of the `repository`'s too",
    )
    forbidden_paths: tuple[Glob, ...] = Field(
        (), description="globs as in .gitignore; no path that its patches and branches change may match one"
    )
    required_gates: tuple[GateType, ...] = Field(
        (),
        description="types of gates; each workstream needs one of each type that judges it as a whole, after its "
        "last task",
    )
    approvers: tuple[Name, ...] = Field(
        (),
        description="people, one of whom must approve before a workstream lands; whoever submitted the plan may not",
    )
    frozen: Title | None = Field(
        None,
        description="the reason why it begins frozen; counts only when the project gets the phase, since from then on "
        "operators freeze and thaw it",
    )


class PhasePolicy(PlanPart):
    """A file of phases for all plans of an installation (PHASE-8)."""

    phases: dict[Identifier, Phase] = Field(min_length=1, description="phases by name")
