"""Creates instances: the row, its links, the deadline of the initial state, and the effects of creation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from secrets import token_hex
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from uuid_utils.compat import uuid7

from interlock.db.core import effects, instances, requests
from interlock.db.core.request_rows import by_state, internal, own_id
from interlock.db.fast_path import Row
from interlock.workers.settings import Settings
from interlock.workflows.definition import Deadline, Definition, Effect
from interlock.workflows.effects import limit_key_of, queue_of
from interlock.workflows.input.arguments import FreeObject, record

PART = 1_000  # instances per statement
RANDOM_BYTES = 3  # of the end of a name that was taken
NAME_LEFT = 100 - 1 - 2 * RANDOM_BYTES  # of a name's 100 characters


@record
@dataclass(frozen=True, slots=True)
class Birth:
    """An instance to be created in the initial state of its definition.

    `proof`: the token that it is asked for with (`token:ID`), which PostgreSQL judges; None: with none.
    """

    definition: Definition
    entity_id: str
    project: str
    created_by: str
    context: FreeObject
    id: UUID = field(default_factory=uuid7)
    proof: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """What `deliver` wrote: the ids of the new instances, and the effects that can run after the commit."""

    new: set[UUID]
    effects_due: Sequence[Row]


def deliver(connection: Connection, births: Sequence[Birth]) -> Delivered:
    """Create instances. If the project already has an instance of that type and entity id, it is left unchanged.

    Args:
        connection: the caller's transaction; everything is written in it.
        births: any number, written 1,000 per statement. They may link to each other.

    Raises:
        UnknownInstance: a context names a link target that does not exist.
        BadInput: an effect of a birth has no valid limit key.
    """
    new = {each for part in _parts(births) for each in instances.create(connection, [_row(birth) for birth in part])}
    born = [birth for birth in births if birth.id in new]
    for part in _parts(born):  # after all rows exist, so that any of them can be a link target
        instances.link(connection, [link for birth in part for link in links(birth)])
    requests.accept(connection, [timer(birth.id, 0, deadline) for birth in born if (deadline := _deadline(birth))])
    wanted = [
        intent(
            effect,
            workflow_id=birth.id,
            version=0,
            metadata=_creation_metadata(birth),
            limit_key=limit_key_of(effect.name, birth.context),
        )
        for birth in born
        for effect in birth.definition.birth_effects
    ]
    return Delivered(new, effects.intend(connection, wanted))


def deliver_anyhow(connection: Connection, birth: Birth) -> tuple[Birth, Delivered]:
    """Create an instance of Interlock's own, whoever has taken its name: if it is taken, it gets a random end.

    Others can guess such a name (`TASK^1`, `GATE~2`), and must not stop Interlock by creating it first.

    Args:
        connection: see `deliver`.
        birth: the instance; the caller knows that it does not exist yet.

    Returns:
        The instance as it was created, and what `deliver` returned.
    """
    delivered = deliver(connection, [birth])
    if birth.id not in delivered.new:
        birth = replace(birth, entity_id=f"{birth.entity_id[:NAME_LEFT]}-{token_hex(RANDOM_BYTES)}")
        delivered = deliver(connection, [birth])
    return birth, delivered


def _parts(births: Sequence[Birth]) -> Iterator[Sequence[Birth]]:
    return (births[start : start + PART] for start in range(0, len(births), PART))


def timer(
    instance_id: UUID, version: int, deadline: Deadline, *, trace: str | None = None, due: datetime | None = None
) -> dict[str, Any]:
    """The request that fires a state's deadline, unless the instance leaves the state.

    Args:
        instance_id, version: the instance, and the version at which it is in that state.
        deadline: of the state.
        trace: of what caused it.
        due: when the deadline fires, if it has begun before; None: it begins now.
    """
    return internal(
        own_id(instance_id, version, deadline.trigger),
        instance_id,
        deadline.trigger,
        by="system",
        right=by_state(version),
        origin="timer",
        delay_seconds=deadline.seconds,
        not_before=due,
        trace=trace,
    )


def intent(
    effect: Effect,
    *,
    workflow_id: UUID,
    version: int,
    metadata: Mapping[str, Any],
    limit_key: str | None = None,
    trace: str | None = None,
) -> dict[str, Any]:
    """The row of an effect to run after the commit. `metadata`, its payload, describes the move that caused it."""
    return {
        "id": uuid7(),
        "workflow_id": workflow_id,
        "version": version,
        "name": effect.name,
        "queue": queue_of(effect.name),
        "payload": metadata,
        "done_trigger": effect.done,
        "failed_trigger": effect.failed,
        "exclusive": _key(effect, workflow_id, metadata),
        "limit_key": limit_key,
        "trace": trace,
    }


def _key(effect: Effect, workflow_id: UUID, metadata: Mapping[str, Any]) -> str | None:
    """The key that only one running effect may hold: a field of the context, or the instance's own id."""
    if effect.exclusive is None or effect.exclusive == "id":
        return effect.exclusive and str(workflow_id)
    return str(metadata["context"][effect.exclusive])


def _row(birth: Birth) -> dict[str, Any]:
    return {
        "id": birth.id,
        "workflow_type": birth.definition.type,
        "definition_version": birth.definition.version,
        "current_state": birth.definition.initial,
        "entity_id": birth.entity_id,
        "project": birth.project,
        "context": birth.context,
        "created_by": birth.created_by,
        "born_proof": birth.proof,
    }


def links(birth: Birth) -> list[dict[str, Any]]:
    """The rows of the links that a context names, as its definition declares them."""
    return [
        {
            "source_id": birth.id,
            "role": link.role,
            "inverse": link.inverse,
            "open": link.open,
            "project": birth.project,
            "type": link.type,
            "target": target,
            "target_id": instances.as_uuid(str(target)),
        }
        for link in birth.definition.links
        for target in _targets(birth.context.get(link.context_key))
    ]


def _targets(named: object) -> list[object]:
    """The link targets in a context field, which holds one instance, a list of instances, or nothing."""
    if isinstance(named, list):
        return named
    return [named] if named else []


def _deadline(birth: Birth) -> Deadline | None:
    deadline = birth.definition.deadlines.get(birth.definition.initial)
    return deadline.resolved(birth.context) if deadline else None


def _creation_metadata(birth: Birth) -> dict[str, Any]:
    return {
        "type": birth.definition.type,
        "entity_id": birth.entity_id,
        "state": birth.definition.initial,
        "trigger": "create",
        "by": birth.created_by,
        "context": birth.context,
    }


def with_terms(settings: Settings, definition: Definition, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's context with its retry limit and its timeout in seconds, a job's with its timeout (TASK-8, JOB-12).

    Args:
        settings: the creating process's. Changing them later does not change existing tasks.
        definition: of the instance to be created. Tasks of the legacy lineage (0.x) have their own defaults.
        context: from the plan or the creator.

    Returns:
        The context; that of other types unchanged.
    """
    if definition.version.startswith("0."):
        return context
    of_type: Mapping[str, Mapping[str, float]] = {
        "task": {"max_retries": settings.task_retries, "timeout_sec": settings.task_timeout_seconds},
        "job": {"timeout_sec": settings.job_timeout_seconds},
    }
    terms = of_type.get(definition.type, {})
    return {**context, **{name: value for name, value in terms.items() if context.get(name) is None}}
