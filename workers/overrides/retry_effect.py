"""A dead effect is tried again, once what was wrong outside is mended (EFFECT-10)."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import effects, instances
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.redrive import record
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused
from interlock.workflows.input.arguments import door


class NoSuchEffect(Refused):
    """No effect has that id. `interlock effect list` shows those that there are; old ones are deleted."""


class CannotRetry(Refused):
    """The effect is not dead, or its failure was told and its instance has moved on. Nothing was changed."""


@door
def find_effect(runtime: Runtime, effect_id: str) -> Mapping[str, Any]:
    """An effect, with its instance's name, and what it declares, if this process knows that.

    Raises:
        NoSuchEffect: there is none of that id.
    """
    with transaction(runtime.database) as connection:
        row = effects.get(connection, _id(effect_id))
    if row is None:
        raise NoSuchEffect(f"no effect has the id {effect_id}; `interlock effect list` shows them")
    own = runtime.catalogue.effects.get(row["name"])
    terms = own and {
        "retries": own.max_attempts(runtime.settings.max_attempts) - 1,
        "timeout": own.timeout_seconds,
        "heartbeat": own.heartbeat_seconds,
        "place": own.place,
    }
    return dict(row) | {"declared": terms}


@door
def retry_effect(runtime: Runtime, effect_id: str, order: OverrideOrder) -> Mapping[str, Any]:
    """Give a dead effect a new set of attempts. An event (GOVERN-12) and its payload say who did it and why.

    Raises:
        NoSuchEffect: there is none of that id.
        NotAnOperator: the person is not one.
        CannotMove, StillDeciding: as `at_once`.
        CannotRetry: it is not dead, or its failure was told and its instance has moved on.
    """
    seen = find_effect(runtime, effect_id)
    with at_once(runtime) as acting:
        connection = acting.connection
        require_operator(connection, order.by, "effect retry", seen["workflow_id"], project=seen["project"])
        subject = instances.find(connection, seen["workflow_id"], seen["project"])
        name = f"{subject['workflow_type']}/{subject['entity_id']}"
        if seen["failed_trigger"] and subject["version"] > seen["version"]:  # as `interlock.awaited`
            definition = runtime.catalogue.get(subject["workflow_type"], subject["definition_version"])
            legal = ", ".join(definition.legal(subject["current_state"])) or "nothing: it has ended"
            raise CannotRetry(
                f"nobody waits for this effect any more: {name} has moved on, and is in {subject['current_state']!r}. "
                f"Legal there: {legal}"
            )
        revived = effects.redrive(connection, [seen["id"]], by=order.by, reason=order.reason)
        if not revived:
            raise CannotRetry(f"effect {effect_id} of {name} is {seen['status']}; only a dead one can be tried again")
        record(acting, [], [str(seen["id"])], order, project=seen["project"])
    runtime.wakeups.effects(revived)
    return find_effect(runtime, effect_id)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NoSuchEffect(f"{text!r} is no id of an effect; `interlock effect list` shows them") from None
