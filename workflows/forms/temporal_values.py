"""What the Temporal form receives, asks its host for, and hands on: values that travel as JSON."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from interlock.workflows.authority import WHO
from interlock.workflows.definition import Authority
from interlock.workflows.guard_context import Linked


@dataclass(slots=True)
class TemporalStart:
    """The input of a workflow: an instance at its birth, or as an earlier run left it.

    Attributes:
        context: its data.
        by: who creates it.
        state, version: where it was left, and its number of moves then; no state: it is born.
        votes: trigger -> who has moved it with that trigger since it entered its state.
        due_at: when the deadline of its state passes, in seconds since 1970; None: counted from now on.
    """

    context: dict[str, Any] = field(default_factory=dict)
    by: str = "system"
    state: str | None = None
    version: int = 0
    votes: dict[str, list[str]] = field(default_factory=dict)
    due_at: float | None = None


@dataclass(slots=True)
class TemporalFiring:
    """A trigger. `if_version`: only for the version that its caller has seen; `authority`: what the host has proved."""

    trigger: str
    by: str
    authority: Authority = "anyone"
    data: dict[str, Any] = field(default_factory=dict)
    if_version: int | None = None

    def __post_init__(self) -> None:
        if self.authority not in WHO:
            raise ValueError(f"there is no authority {self.authority!r}. There are: {', '.join(WHO)}")


@dataclass(slots=True)
class LinkedWorkflow:
    """A linked instance, and the id of its workflow, if it has one."""

    type: str
    entity_id: str
    state: str
    id: str | None = None
    workflow_id: str | None = None

    def as_linked(self) -> Linked:
        """The instance as guards see it."""
        return Linked(self.type, self.entity_id, self.state, UUID(self.id) if self.id else None)


@dataclass(slots=True)
class FactsWanted:
    """What a trigger's guards need to know of other instances, or of counts: `needs` has `linked`, `named`, `row`."""

    workflow_id: str
    definition: str
    context: dict[str, Any]
    trigger: str
    data: dict[str, Any]
    needs: list[str]


@dataclass(slots=True)
class FactsFound:
    """The host's answer: role -> the linked instances; the one that the data names; the row of counts."""

    linked: dict[str, list[LinkedWorkflow]] = field(default_factory=dict)
    named: LinkedWorkflow | None = None
    row: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class EffectWanted:
    """An effect of a move, for the activity of its name. Each attempt has the same key, other effects others."""

    workflow_id: str
    definition: str
    name: str
    idempotency_key: str
    state: str
    version: int
    context: dict[str, Any]
    trigger: str
    by: str
    from_state: str | None
    data: dict[str, Any]


@dataclass(slots=True)
class LinkChange:
    """A move has changed a link, for the activity `relink`: to the instance that its data named, or to none."""

    workflow_id: str
    role: str
    to: LinkedWorkflow | None
