"""Runs the effects that users declared with `@effect`: calls the function, watches it, and takes what it returns."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Generic
from uuid import UUID

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from pydantic import BaseModel

from interlock.db.core.effects import ClaimedEffect
from interlock.workers.effects import http_call
from interlock.workers.effects.lease import Lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.watcher import WATCHER
from interlock.workers.engine.trigger_request import RESERVED, check_names, check_spent
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows import typed
from interlock.workflows.definition import Definition
from interlock.workflows.effects import DeclaredEffect, Endpoint
from interlock.workflows.errors import BadInput, InterlockError, StaleLease
from interlock.workflows.guard_context import Context, Data
from interlock.workflows.input import limits

log = structlog.get_logger()

WATCH_SECONDS = 2.0  # how soon it is noticed that an instance has moved on
WRITE_SECONDS = 1.0  # between two writes of progress


class EffectCancelled(InterlockError):
    """The effect's instance has moved on, so nobody waits for its outcome. Undo what is half done, and return."""


class EffectNotBegun(EffectCancelled):
    """The instance had moved on before the effect's function was called: this was no attempt."""


class EffectTimeout(InterlockError):
    """An attempt took longer than its effect's `timeout`, or sent no heartbeat in time. It is tried again."""


@dataclass(frozen=True, slots=True)
class EffectInstance(Generic[Context]):
    """The instance that an effect is for.

    Attributes:
        id: its UUID.
        type: of its definition.
        entity_id: its name.
        project: in which the name is unique.
        definition_version: of its definition.
        state: in which the move that asked for the effect left it.
        version: at which it was then: the number of its moves.
        context: its data, as the model that its definition names, if it names one.
    """

    id: UUID
    type: str
    entity_id: str
    project: str
    definition_version: str
    state: str
    version: int
    context: Context


@dataclass(slots=True)
class EffectCall(Generic[Context, Data]):
    """One attempt at an effect: what a function under `@effect` is called with.

    Where a definition names models, `EffectCall[Context, Data]` has them as `instance.context` and `data` (TYPED-5).

    Attributes:
        instance: the instance that it is for.
        name: the effect's name.
        trigger: of the move that asked for it; `create`: the instance was created.
        by: who fired that trigger.
        from_state: the state before that move; None: the instance was created.
        data: that trigger's data, as the model that the definition names for it, if it names one.
        idempotency_key: the same for each attempt, and for no other effect. Pass it to whatever is called, so that a
            repetition can be told.
        token: grows with each attempt: a receiver can refuse a lower one than it has seen.
        attempt: 1 for the first one.
        progress: what an earlier attempt passed to `heartbeat` last; None: nothing.
    """

    instance: EffectInstance[Context]
    name: str
    trigger: str
    by: str
    from_state: str | None
    data: Data
    idempotency_key: str
    token: int
    attempt: int
    progress: Mapping[str, Any] | None
    _lease: Lease = field(repr=False)
    _awaited: bool = field(repr=False)  # whether it tells its instance an outcome
    _heard: float = field(default_factory=monotonic, repr=False)
    _written: float = field(default=float("-inf"), repr=False)
    _unsaved: Mapping[str, Any] | None = field(default=None, repr=False)
    _stopped: InterlockError | None = field(default=None, repr=False)

    def heartbeat(self, progress: Mapping[str, Any] | None = None) -> None:
        """Say that the function is at work, and how far it is. May be called often: it writes once a second at most.

        Args:
            progress: JSON of at most 64 KiB, for people (`interlock effect show`) and for a later attempt.

        Raises:
            EffectCancelled: the instance has moved on: nobody waits for the outcome. Stop.
            EffectTimeout: the heartbeat came too late. Stop.
            StaleLease: another attempt has begun. Stop: this one's outcome is not taken.
            BadInput: the progress is no JSON object of acceptable size.
        """
        self._heard = monotonic()
        if progress is not None:
            if not isinstance(progress, Mapping):
                raise BadInput(f"progress must be a mapping, not {type(progress).__name__}")
            limits.checked("progress", progress, limits.RESULT_BYTES)
            self.progress = self._unsaved = progress
        if self._heard - self._written >= WRITE_SECONDS:
            self._written = self._heard
            self._save()
        if self._stopped is not None:
            raise self._stopped

    @property
    def cancelled(self) -> bool:
        """Whether the instance has moved on, or the lease is lost: `heartbeat` would raise."""
        return self._stopped is not None

    def _save(self) -> None:
        """Renew the lease, and write the newest progress."""
        if self._stopped is None:
            self._hold(lambda: self._lease.renew(self._unsaved))
            self._unsaved = None

    def _hold(self, renew: Callable[[], None]) -> None:
        try:
            renew()
        except StaleLease as stale:
            self._stopped = stale
        else:
            if self._awaited and self._lease.superseded:
                self._stopped = _moved_on(self.instance)

    @contextmanager
    def _watched(self, heartbeat_seconds: float | None, stop: Callable[[], object]) -> Iterator[None]:
        """Renew the lease during the block; call `stop` once, from a thread, if the function must stop."""

        def look() -> bool:
            if heartbeat_seconds is not None and monotonic() - self._heard > heartbeat_seconds:
                self._stopped = self._stopped or EffectTimeout(f"no heartbeat for {heartbeat_seconds:g} s")
            elif self._stopped is None:
                self._hold(self._lease.tick)
            if self._stopped is not None:
                log.warning("effect_stopped", name=self.name, error=str(self._stopped))
                stop()
            return self._stopped is None

        pause = self._lease.pause_seconds
        with WATCHER.looking(look, min(pause, heartbeat_seconds or pause)):
            yield


def call(runtime: Runtime, claimed: ClaimedEffect, declared: DeclaredEffect) -> EffectOutcome:
    """Carry out a declared effect once.

    Returns:
        Its outcome.

    Raises:
        EffectCancelled: the instance has moved on.
        StaleLease: the lease was lost.
        Exception: the function's own, or of the reason why its result is not taken.
    """
    made = _made(runtime, claimed, declared)
    if made._awaited and claimed["instance_version"] > claimed["version"]:
        raise EffectNotBegun(str(_moved_on(made.instance)))
    try:
        data, kept = _acted(runtime, made, declared)
    except SystemExit as gone:
        raise InterlockError(f"it ended its process: exit code {gone.code}") from gone
    except SoftTimeLimitExceeded:
        raise EffectTimeout(f"not done after {declared.timeout_seconds:g} s") from None
    finally:
        if made._unsaved is not None:
            made._save()
    if isinstance(made._stopped, StaleLease | EffectCancelled):
        raise made._stopped
    if done := claimed["done_trigger"]:
        check_names("the outcome of the effect", data)
        check_spent(data)
        _definition(runtime, claimed).require_data(done, data)
    return EffectOutcome(done, data, kept)


def _acted(runtime: Runtime, made: EffectCall, declared: DeclaredEffect) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The data for its trigger, and what its row keeps."""
    act = declared.act
    if isinstance(act, Endpoint):
        answer = _sent(runtime.settings, made, declared, act)
        return _data(answer["body"]), answer
    if inspect.iscoroutinefunction(inspect.unwrap(act)):
        returned = _result(_run_async(made, declared, act))
    else:
        with made._watched(declared.heartbeat_seconds, _nothing):
            returned = _result(act(made))
    return returned, returned


def _sent(settings: Settings, made: EffectCall, declared: DeclaredEffect, endpoint: Endpoint) -> Mapping[str, Any]:
    body, key, seconds = _event(made), made.idempotency_key, declared.timeout_seconds

    with made._watched(None, _nothing):
        return http_call.post(settings, endpoint, body, key=key, token=made.token, timeout_seconds=seconds)


def _data(answer: object) -> Mapping[str, Any]:
    """What is data of an HTTP call's answer. The call has succeeded: names that are not its receiver's are left out."""
    data = {name: said for name, said in answer.items() if name not in RESERVED} if isinstance(answer, dict) else {}
    with suppress(BadInput):
        check_spent(data)
        return data
    return {name: said for name, said in data.items() if name != "spent"}


def _nothing() -> None:
    """A sync function learns of it by its next heartbeat."""


def _event(made: EffectCall) -> Mapping[str, Any]:
    """What an HTTP call says, in the form of Standard Webhooks: type, timestamp, data."""
    instance = made.instance
    data = {
        "effect": made.name,
        "attempt": made.attempt,
        "id": instance.id,
        "type": instance.type,
        "entity_id": instance.entity_id,
        "project": instance.project,
        "definition_version": instance.definition_version,
        "version": instance.version,
        "trigger": made.trigger,
        "by": made.by,
        "from_state": made.from_state,
        "state": instance.state,
        "context": instance.context,
        "metadata": made.data,
    }
    return {"type": f"{instance.type}.{made.name}", "timestamp": datetime.now(UTC).isoformat(), "data": data}


def _definition(runtime: Runtime, claimed: ClaimedEffect) -> Definition:
    return runtime.catalogue.get(claimed["payload"]["type"], claimed["definition_version"])


def _read(
    context_model: typed.Model | None,
    data_model: typed.Model | None,
    context: Mapping[str, Any],
    data: Mapping[str, Any],
) -> tuple[Any, Any]:
    """The models of a context and of a trigger's data; both as they are where there is no model."""
    try:
        return typed.read_context(context_model, context), typed.read_data(data_model, data)
    except typed.Misfit as misfit:
        raise BadInput(f"its instance's context, or its trigger's data, does not fit its model: {misfit}") from misfit


def _made(runtime: Runtime, claimed: ClaimedEffect, declared: DeclaredEffect) -> EffectCall:
    payload, context, data = claimed["payload"], claimed["payload"]["context"], claimed["metadata"] or {}
    if not isinstance(declared.act, Endpoint):  # an HTTP call sends the JSON that is stored
        definition = _definition(runtime, claimed)
        own = definition.data.get(payload["trigger"]) if claimed["from_state"] else None  # a creation is no trigger
        context, data = _read(definition.context, own, context, data)
    instance = EffectInstance(
        id=claimed["workflow_id"],
        type=payload["type"],
        entity_id=payload["entity_id"],
        project=claimed["project"],
        definition_version=claimed["definition_version"],
        state=payload["state"],
        version=claimed["version"],
        context=context,
    )
    return EffectCall(
        instance,
        name=declared.name,
        trigger=payload["trigger"],
        by=payload["by"],
        from_state=claimed["from_state"],
        data=data,
        idempotency_key=str(claimed["id"]),
        token=claimed["token"],
        attempt=claimed["attempts"],
        progress=claimed["progress"],
        _lease=Lease(runtime, claimed, most_seconds=WATCH_SECONDS),
        _awaited=claimed["done_trigger"] is not None,
    )


def _run_async(made: EffectCall, declared: DeclaredEffect, function: Callable[..., Any]) -> object:
    async def watched() -> object:
        task = asyncio.ensure_future(function(made))
        loop = asyncio.get_running_loop()
        with made._watched(declared.heartbeat_seconds, lambda: loop.call_soon_threadsafe(task.cancel)):
            try:
                async with asyncio.timeout(declared.timeout_seconds) as limit:
                    return await task
            except TimeoutError:
                if limit.expired():
                    raise EffectTimeout(f"not done after {declared.timeout_seconds:g} s") from None
                raise
            except asyncio.CancelledError:
                raise made._stopped or InterlockError("it cancelled itself") from None

    return asyncio.run(watched())


def _result(returned: object) -> Mapping[str, Any]:
    if returned is None:
        return {}
    if isinstance(returned, BaseModel):
        return returned.model_dump(mode="json", by_alias=True)
    if isinstance(returned, Mapping):
        return dict(returned)
    raise BadInput(f"it returned {type(returned).__name__}: return a mapping, the data of its trigger, or None")


def _moved_on(instance: EffectInstance[Any]) -> EffectCancelled:
    return EffectCancelled(
        f"{instance.type} {instance.entity_id} has moved on since it was {instance.state!r}, version {instance.version}"
    )
