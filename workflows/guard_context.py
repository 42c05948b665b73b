"""One question put to a machine: may this trigger fire here, given these facts? Built by the engine, read by guards."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Linked:
    """Another instance that this one is linked to, as guards see it."""

    type: str
    entity_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Override:
    """An operator takes a move whatever its guards say (SSOT 5.2). The machine's moves bind operators too.

    Attributes:
        to: the state it must lead to.
        allowed: who fires it is an operator now.
    """

    to: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A trigger, the instance it is meant for, and the facts its guards asked for.

    Attributes:
        state, version: where the instance stands and how many moves it has made.
        context: the instance's own data (the author of a pull request, the quorum of an approval).
        trigger, by, metadata: what was asked, by whom (agent, user or `system`), with what data.
        bound_version: a timer holds only while the instance still stands where it was armed; None for anything else.
        granted: the approval this trigger was held for has been given.
        linked: role -> the instances linked in that role.
        votes: who else already fired this trigger here and is still held.
        row: the instance's typed row (SSOT 6) as it is before the move: its counts, its worker, its limits.
        override: where an operator wants it to go; None for anybody else's trigger.
    """

    state: str
    version: int
    context: Mapping[str, Any]
    trigger: str
    by: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    bound_version: int | None = None
    granted: bool = False
    linked: Mapping[str, tuple[Linked, ...]] = field(default_factory=dict)
    votes: frozenset[str] = frozenset()
    row: Mapping[str, Any] = field(default_factory=dict)
    override: Override | None = None
