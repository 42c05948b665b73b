"""What the Temporal form receives, asks its host for, and hands on: values that travel as JSON."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from interlock.workflows.authority import WHO
from interlock.workflows.definition import Authority
from interlock.workflows.guard_context import Linked


@dataclass(slots=True)
class TemporalStart:
    """The input of a workflow: an instance at its birth, as an earlier run left it, or as it was handed over.

    Attributes:
        context: its data.
        by: who creates it.
        state, version: where it was left, and its number of moves then; no state: it is born.
        votes: trigger -> who has moved it with that trigger since it entered its state.
        due_at: when the deadline of its state passes, in seconds since 1970; None: no deadline runs, unless it is born.
        due_in: instead, the seconds that are left of it when the workflow starts.
        pending: triggers that were accepted and not yet decided, oldest first.
        held: triggers that wait for approvals.
        effects: what it has asked for, and nobody has carried out.
        history: of its life before.
    """

    context: dict[str, Any] = field(default_factory=dict)
    by: str = "system"
    state: str | None = None
    version: int = 0
    votes: dict[str, list[str]] = field(default_factory=dict)
    due_at: float | None = None
    due_in: float | None = None
    pending: list["TemporalPending"] = field(default_factory=list)
    held: list["TemporalHeld"] = field(default_factory=list)
    effects: list["TemporalEffect"] = field(default_factory=list)
    history: "TemporalHistory | None" = None


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
class TemporalPending:
    """A trigger that was accepted elsewhere.

    Attributes:
        firing: the trigger.
        bound_version: if the instance has left this version, it is superseded.
        granted: an approval has released it.
        at: when it is to be fired, in seconds since 1970; None: at once.
    """

    firing: TemporalFiring
    bound_version: int | None = None
    granted: bool = False
    at: float | None = None


@dataclass(slots=True)
class TemporalHeld:
    """A trigger that waits for an approval, at a version; `approval` is the workflow that is started for it."""

    firing: TemporalFiring
    version: int
    approval_id: str
    approval: TemporalStart


@dataclass(slots=True)
class TemporalHistory:
    """Events before the workflow, oldest first, as Interlock's journal has them; so many older ones are `left_out`.

    `head` is the hash of the last event, or of the birth if there was none.
    """

    events: list[dict[str, Any]]
    left_out: int
    head: str


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
class TemporalEffect:
    """An effect that was asked for elsewhere, and the triggers that tell its outcome; None: nothing tells it."""

    wanted: EffectWanted
    done: str | None
    failed: str | None


@dataclass(slots=True)
class LinkChange:
    """A move has changed a link, for the activity `relink`: to the instance that its data named, or to none."""

    workflow_id: str
    role: str
    to: LinkedWorkflow | None
