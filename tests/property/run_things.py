"""What a run is made of, for the model: things with a state, who knows whom, and nothing that decides."""

from dataclasses import dataclass, field

ENDED = {"completed", "failed", "cancelled", "skipped", "succeeded", "canceled", "PASSED", "FAILED", "CANCELLED"}


@dataclass(eq=False)
class Thing:
    """Anything that has a state."""

    name: str
    state: str
    retry_of: "Thing | None" = field(default=None, kw_only=True)

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(eq=False)
class Phase(Thing):
    """A phase of the project: `open` or `frozen`, and never ended."""

    state: str = "open"
    approvers: bool = False  # one of them has to approve each landing


@dataclass(eq=False)
class LandingApproval(Thing):
    """What the approvers of a phase are asked about a workstream that could land: `pending` until they decide."""

    state: str = "pending"
    of: "Workstream | None" = None


@dataclass(eq=False)
class Workstream(Thing):
    state: str = "planned"
    critical: bool = False
    phase: Phase | None = None  # None: the one that everybody has
    after: list["Workstream"] = field(default_factory=list)
    tasks: list["Task"] = field(default_factory=list)
    final: list["Gate"] = field(default_factory=list)
    landing: bool = False
    approval: LandingApproval | None = None  # whether its landing is asked for, and what was decided
    given_up: bool = False  # cancelled or skipped, and not by a person
    left_out: bool = False  # done again: it counts no more

    @property
    def held(self) -> bool:
        """Whether its phase is frozen (PHASE-6)."""
        return self.phase is not None and self.phase.state != "open"

    @property
    def may_land(self) -> bool:
        """Whether those who have to approve that have done so, if there are any (PHASE-7)."""
        if self.phase is None or not self.phase.approvers:
            return True
        return self.approval is not None and self.approval.state == "approved"

    @property
    def takes_tasks(self) -> bool:
        """Whether tasks of it may be made anew (WORKSTREAM-2)."""
        return not self.ended and self.state != "validating"

    def again(self, name: str) -> "Workstream":
        """One to be done in this one's place, with nothing in it."""
        return Workstream(name, critical=self.critical, phase=self.phase, retry_of=self)


@dataclass(eq=False, kw_only=True)
class Gate(Thing):
    home: Workstream
    moment: str
    state: str = "PENDING"
    reruns: int = 0
    replaced: bool = False
    asked: bool = False  # a node is asked to run it
    after: list["Gate"] = field(default_factory=list)

    def again(self, name: str, home: Workstream, reruns: int) -> "Gate":
        """One to be run in this one's place, after what this one waits for."""
        return Gate(name, home=home, moment=self.moment, reruns=reruns, after=list(self.after), retry_of=self)


@dataclass(eq=False, kw_only=True)
class Task(Thing):
    home: Workstream
    state: str = "pending"
    critical: bool = False
    retries: int = 0
    max_retries: int = 0
    after: list["Task"] = field(default_factory=list)
    before: list[Gate] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    born_with: list[Gate] = field(default_factory=list)  # the gates that it was made with
    begun: bool = False  # a worker had it once
    given_up: bool = False  # cancelled, and not by a person
    misjudged: bool = False  # failed by a gate, and not by a person
    left_out: bool = False  # by an operator: it counts no more
    tool: str = ""  # whose breaker it waits for

    def again(self, name: str, home: Workstream) -> "Task":
        """One to be done in this one's place, that waits for nothing yet."""
        same = {"critical": self.critical, "max_retries": self.max_retries, "tool": self.tool}
        return Task(name, home=home, retry_of=self, **same)
