"""The input of one decision: a trigger, an instance and the facts that guards read. The engine builds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, Self
from uuid import UUID

from typing_extensions import TypeVar

# The models that a definition names for its context and for a trigger's data; without any, both are JSON objects.
Context = TypeVar("Context", default=Mapping[str, Any])
Data = TypeVar("Data", default=Mapping[str, Any])


ELSEWHERE = "an instance of another project"


class Linked(NamedTuple):
    """A linked instance, as guards see it. `foreign`: it is of another project."""

    type: str
    entity_id: str
    state: str
    id: UUID | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Override:
    """An operator makes a move without its guards (RECOVER-5); it must still be a move of the machine.

    Attributes:
        to: the state the move must lead to.
        allowed: whether the user who fires it is an operator at this moment.
    """

    to: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Case(Generic[Context, Data]):
    """A trigger, the instance it was fired on, and the facts that its guards need.

    Attributes:
        state, version: the instance's state and its number of moves.
        context: the instance's own data (the author of a pull request, the quorum of an approval); guards get it as the
            model that their definition names, if it names one (TYPED-5).
        trigger, by, metadata: the trigger, who fired it (agent, user or `system`), and its data; data too as its model.
        bound_version: the trigger is superseded if the instance has another version; None: it is not bound. Timers, for
            example, are bound to the version at which they were armed.
        if_version: the version for which its caller fired it; at another it is rejected (EVENT-16). None: for any.
        granted: whether the approval that the trigger was held for has been granted.
        linked: role -> the instances linked in that role.
        named: the instance that the data of a trigger names which changes a link; None: there is none of that name.
        votes: who has moved the instance with this trigger since it entered its state, in which it has stayed.
        held: whether this trigger is already held for an approval.
        row: the instance's typed row (CHECK-19) before the move: its counts, its worker, its limits.
        override: the state an operator wants; None for any other trigger.
    """

    state: str
    version: int
    context: Context
    trigger: str
    by: str
    metadata: Data = field(default_factory=dict)  # type: ignore[assignment]  # the default of `Data`
    bound_version: int | None = None
    if_version: int | None = None
    granted: bool = False
    linked: Mapping[str, tuple[Linked, ...]] = field(default_factory=dict)
    named: Linked | None = None
    votes: frozenset[str] = frozenset()
    held: bool = False
    row: Mapping[str, Any] = field(default_factory=dict)
    override: Override | None = None

    def told(self) -> Self:
        """The same, in which linked instances of other projects have no names: whoever is told may not see these."""
        if not any(each.foreign for linked in self.linked.values() for each in linked):
            return self
        return replace(self, linked={role: tuple(map(_unnamed, linked)) for role, linked in self.linked.items()})


def _unnamed(linked: Linked) -> Linked:
    return linked._replace(entity_id=ELSEWHERE, id=None) if linked.foreign else linked
