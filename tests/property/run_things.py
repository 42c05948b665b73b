"""What a run is made of, for the model: things with a state, who knows whom, and nothing that decides."""

from dataclasses import dataclass, field

ENDED = {"completed", "failed", "cancelled", "skipped", "succeeded", "canceled", "PASSED", "FAILED", "CANCELLED"}


@dataclass(eq=False)
class Thing:
    """Anything that has a state."""

    name: str
    state: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(eq=False)
class Workstream(Thing):
    state: str = "planned"
    critical: bool = False
    after: list["Workstream"] = field(default_factory=list)
    tasks: list["Task"] = field(default_factory=list)
    final: list["Gate"] = field(default_factory=list)
    landing: bool = False


@dataclass(eq=False, kw_only=True)
class Gate(Thing):
    home: Workstream
    moment: str
    state: str = "PENDING"
    reruns: int = 0
    replaced: bool = False
    asked: bool = False  # a node is asked to run it
    after: list["Gate"] = field(default_factory=list)
    judged: list["Task"] = field(default_factory=list)


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
    begun: bool = False  # a worker had it once
    given_up: bool = False  # cancelled, and not by a person
    misjudged: bool = False  # failed by a gate, and not by a person
    left_out: bool = False  # by an operator: it counts no more
