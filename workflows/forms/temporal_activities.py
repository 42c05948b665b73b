"""The activities of the Temporal form: effects declared with `@effect`, and what its host gives. Needs `temporalio`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.exceptions import CancelledError

from interlock.workflows.definition import Definition
from interlock.workflows.effects import DeclaredEffect, Endpoint, declared
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.forms.parts import facts_needed
from interlock.workflows.forms.temporal_commands import FACTS, RELINK
from interlock.workflows.forms.temporal_values import EffectWanted

Activity = Callable[..., Any]


@dataclass(slots=True)
class TemporalCall:
    """What a function under `@effect` is called with, as `EffectCall` has it; `instance.id` is the workflow's id."""

    wanted: EffectWanted
    instance: "TemporalInstance" = field(init=False)

    def __post_init__(self) -> None:
        type_, _, version = self.wanted.definition.partition("@")
        self.instance = TemporalInstance(self.wanted, type_, version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wanted, name)  # name, trigger, by, from_state, data, idempotency_key

    @property
    def attempt(self) -> int:
        """1 for the first one."""
        return activity.info().attempt

    token = attempt

    @property
    def progress(self) -> Any:
        """What an earlier attempt passed to `heartbeat` last; None: nothing."""
        return next(iter(activity.info().heartbeat_details), None)

    def heartbeat(self, progress: Mapping[str, Any] | None = None) -> None:
        """Say that the function is at work, and how far it is; raises where its instance has moved on."""
        activity.heartbeat(*([] if progress is None else [progress]))
        if activity.is_cancelled():
            raise CancelledError("the instance has moved on")

    @property
    def cancelled(self) -> bool:
        """Whether the instance has moved on."""
        return activity.is_cancelled()


class TemporalInstance:
    """The instance of a `TemporalCall`, with the attributes of an `EffectInstance` that Temporal knows."""

    def __init__(self, wanted: EffectWanted, type_: str, version: str) -> None:
        self.id = self.entity_id = wanted.workflow_id
        self.type, self.definition_version = type_, version
        self.state, self.version, self.context = wanted.state, wanted.version, wanted.context


def activities(
    definitions: Sequence[Definition], effects: Mapping[str, Activity], facts: Activity | None, relink: Activity | None
) -> list[Activity]:
    """The activities that a worker of some definitions needs.

    Args:
        definitions: their machines.
        effects: name -> what carries the effect out, called with an `EffectWanted`; for those that are not declared.
        facts: answers `FactsWanted` with `FactsFound`; None: not given.
        relink: carries a `LinkChange` out; None: not given.

    Raises:
        InvalidDefinition: one is missing; the message names it.
    """
    wanted = {effect.name for each in definitions for effect in each.effects}
    own = {name: each for name, each in declared().items() if not isinstance(each.act, Endpoint)}
    given: dict[str, Activity | None] = {name: _of_effect(own[name]) for name in wanted & own.keys()}
    given |= {name: effects[name] for name in wanted & effects.keys()}
    asking = any(facts_needed(each, trigger) for each in definitions for trigger in each.triggers)
    relinking = any(move.relink for each in definitions for move in each.transitions)
    given |= ({FACTS: facts} if asking else {}) | ({RELINK: relink} if relinking else {})
    if missing := sorted((wanted - given.keys()) | {name for name, act in given.items() if act is None}):
        raise InvalidDefinition(f"these activities are needed, and not given: {', '.join(missing)}")
    return [activity.defn(name=name)(act) for name, act in given.items() if act is not None]


def _of_effect(effect: DeclaredEffect) -> Activity:
    if inspect.iscoroutinefunction(effect.act):

        async def run_async(wanted: EffectWanted) -> Any:
            return await effect.act(TemporalCall(wanted))  # type: ignore[operator]

        return run_async

    def run(wanted: EffectWanted) -> Any:
        return effect.act(TemporalCall(wanted))  # type: ignore[operator]

    return run
