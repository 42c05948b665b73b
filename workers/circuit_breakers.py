"""Calls a tool through its circuit breaker, which all processes share (docs/spec/breaker.md).

A task's command was let through as the task was claimed (`calling_for_claim`). Any other call asks the breaker itself:

    with calling(runtime, project, "pytest") as call:
        finished = run(command)
        if finished.exit_code not in (0, 1):
            call.failed(f"exit code {finished.exit_code}")

An exception that leaves the block is a failure, too. A successful call through a closed breaker without failures costs
two statements and writes nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.request_rows import by_state, internal
from interlock.db.orchestration import breakers
from interlock.db.orchestration.breakers import Breaker, Count
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.definition import Deadline
from interlock.workflows.errors import BadInput, InterlockError, UnknownInstance
from interlock.workflows.input import names
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered

LOOKS = 4  # CLOSED → OPEN → HALF_OPEN → CLOSED may all be due; after more looks the loop would not end
ERROR_LIMIT = 2_000


class BreakerOpen(InterlockError):
    """The tool failed too often and is not called for now. Ask again after `seconds`, or have an operator look at it.

    Attributes:
        tool_id: the tool.
        seconds: until its breaker lets a call through again, or until another caller's trial ends at the latest.
    """

    def __init__(self, project: str, tool_id: str, seconds: float) -> None:
        super().__init__(
            f"the circuit breaker of {tool_id!r} is open: ask again in {ceil(seconds)} s "
            f"({offered('breaker', 'show', tool_id, project=project)} says why)"
        )
        self.tool_id, self.seconds = tool_id, seconds


@dataclass(slots=True)
class Call:
    """One call that was let through. `token`: its trial's, if the breaker is half-open."""

    breaker: Breaker
    token: UUID | None = None
    error: str | None = None
    learnt: bool = True

    def failed(self, why: str) -> None:
        """Report that the tool failed without an exception."""
        self.error = why[:ERROR_LIMIT] or "failed"

    def void(self) -> None:
        """Report that nothing was learnt about the tool, as when the call was aborted: it does not count."""
        self.learnt = False


@door
@contextmanager
def calling(
    runtime: Runtime, project: str, tool_id: str, *, by: str = "system", lease_seconds: float | None = None
) -> Iterator[Call]:
    """Let one call of a tool through its breaker, and count how it ends.

    Args:
        runtime: this process's connections.
        project, tool_id: whose breaker; a missing one is created with the settings' thresholds.
        by: who calls, for the events that follow.
        lease_seconds: how long the call may take; a trial that takes longer is given to another caller. Default: the
            setting `breaker_trial_seconds`.

    Yields:
        The call. Its `failed` reports a failure without an exception; `void` excludes it from the count.

    Raises:
        BreakerOpen: the breaker is OPEN, or HALF_OPEN and another caller has the trial; the block was not run.
        Exception: whatever the block raises, counted as a failure.
    """
    call = _admit(
        runtime, project, names.name("tool id", tool_id), lease_seconds or runtime.settings.breaker_trial_seconds
    )
    with _counted(runtime, call, by):
        yield call


@contextmanager
def calling_for_claim(runtime: Runtime, project: str, tool_id: str, *, by: str, claim_id: int) -> Iterator[Call]:
    """Count how a task's call of its tool ends. Its claim has let it through already (BREAKER-11).

    Args:
        runtime, project, tool_id, by: as for `calling`.
        claim_id: the task's claim. A trial that it took ends with it, whatever becomes of this process.

    Yields:
        The call, as `calling` does.

    Raises:
        Exception: whatever the block raises, counted as a failure.
    """
    breaker = breakers.look(runtime.statements, project, tool_id)
    if breaker is None:
        _create(runtime, project, tool_id)
        breaker = known(runtime, project, tool_id)
    half_open = breaker.state == "HALF_OPEN"
    token = breakers.trial_of_claim(runtime.statements, breaker.breaker_id, claim_id) if half_open else None
    call = Call(breaker, token)
    with _counted(runtime, call, by):
        yield call


@contextmanager
def _counted(runtime: Runtime, call: Call, by: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        call.failed(f"{type(error).__name__}: {error}")
        _report(runtime, call, by)
        raise
    except BaseException:  # interrupted: nothing was learnt about the tool
        _give_up(runtime, call)
        raise
    if call.learnt:
        _report(runtime, call, by)
    else:
        _give_up(runtime, call)


@door
def known(runtime: Runtime, project: str, tool_id: str) -> Breaker:
    """A tool's breaker, as it is now.

    Raises:
        UnknownInstance: it has none, because nobody called it yet.
    """
    if breaker := breakers.look(runtime.statements, project, tool_id):
        return breaker
    raise UnknownInstance(
        f"no circuit breaker of {tool_id!r} in project {project}: the tool has not been called there yet. "
        f"{offered('breaker', 'list', project=project)} shows those there are."
    )


@door
def listed(runtime: Runtime, *, project: str | None = None, limit: int = 100) -> list[Breaker]:
    """Breakers as they are now, by tool, of one project if given."""
    with transaction(runtime.database) as connection:
        page = breakers.page(connection, project=project, limit=limit)
    return [known(runtime, each["project"], each["tool_id"]) for each in page]


@door
def configure(
    runtime: Runtime,
    project: str,
    tool_id: str,
    *,
    by: str,
    reason: str,
    failure_threshold: int | None = None,
    cooldown_seconds: float | None = None,
    success_threshold: int | None = None,
) -> Breaker:
    """Change a breaker's configuration (BREAKER-7), at once, even while it is open, and record it (BREAKER-10).

    Args:
        runtime: this process's connections.
        project, tool_id: whose breaker.
        by, reason: who changes it, and why.
        failure_threshold: failures in a row that open it; None: as it is.
        cooldown_seconds: how long it stays open; None: as it is.
        success_threshold: successful trials that close it; None: as it is.

    Returns:
        The breaker after the change. A change that changes nothing is not recorded.

    Raises:
        UnknownInstance: the tool has no breaker.
        BadInput: the name, the reason or a value is not valid.
    """
    names.name("by", by)
    names.reason("reason", reason)
    wanted = dict(zip(breakers.CONFIGURED, (failure_threshold, cooldown_seconds, success_threshold), strict=True))
    if wrong := [name for name, value in wanted.items() if value is not None and value <= 0]:
        raise BadInput(f"{wrong[0]} must be more than 0; got {wanted[wrong[0]]}")
    known(runtime, project, tool_id)
    with transaction(runtime.database) as connection:
        breakers.configure(connection, project, tool_id, wanted, by=by, reason=reason)
    return known(runtime, project, tool_id)


@door
def configured(runtime: Runtime, breaker_id: UUID, *, limit: int = 100) -> list[dict[str, Any]]:
    """The newest `limit` changes of a breaker's configuration, oldest first: who, why, new and `old_` values."""
    with transaction(runtime.database) as connection:
        return [dict(row) for row in breakers.configured(connection, breaker_id, limit=limit)]


def configuration(chosen: Settings, explicit: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """A breaker's configuration: the given values, and the settings' for all others (BREAKER-7)."""
    defaults = {
        "failure_threshold": chosen.breaker_failure_threshold,
        "cooldown_seconds": chosen.breaker_cooldown_seconds,
        "success_threshold": chosen.breaker_success_threshold,
    }
    return defaults | {name: value for name, value in explicit.items() if value is not None}


def _admit(runtime: Runtime, project: str, tool_id: str, lease_seconds: float) -> Call:
    for _ in range(LOOKS):
        breaker = breakers.look(runtime.statements, project, tool_id)
        if breaker is None:
            _create(runtime, project, tool_id)
        elif breaker.owed:
            _apply_owed(runtime, breaker)
        elif breaker.state == "CLOSED":
            return Call(breaker)
        elif breaker.state == "HALF_OPEN" and (token := _trial(runtime, breaker, lease_seconds)):
            return Call(breaker, token)
        else:
            raise BreakerOpen(project, tool_id, breaker.seconds_until_reset)
    raise BreakerOpen(project, tool_id, breaker.seconds_until_reset if breaker else 0.0)


def _trial(runtime: Runtime, breaker: Breaker, lease_seconds: float) -> UUID | None:
    return breakers.take_trial(runtime.statements, breaker.breaker_id, lease_seconds=lease_seconds)


def _report(runtime: Runtime, call: Call, by: str) -> None:
    """Count a call's end. The count that reaches a threshold and the trigger that it fires are one commit."""
    if call.token is None and call.error is None:
        breakers.succeeded(runtime.statements, call.breaker.breaker_id)
        return
    with transaction(runtime.database) as connection:
        counted, trigger = _count(connection, call)
        if counted is None or not counted.reached:
            return
        metadata = {"failure_count": counted.failure_count, "error": call.error, "tool_id": call.breaker.tool_id}
        requests.accept(connection, [_request(call.breaker, trigger, by, metadata)])
    _apply(runtime, call.breaker)


def _count(connection: Connection, call: Call) -> tuple[Count | None, str]:
    breaker = call.breaker
    if call.token is None:
        return breakers.failed(connection, breaker.breaker_id, breaker.version), "failure_threshold_exceeded"
    if call.error is None:
        return breakers.trial_passed(connection, breaker.breaker_id, call.token), "success"
    return breakers.trial_failed(connection, breaker.breaker_id, call.token), "failure"


def _give_up(runtime: Runtime, call: Call) -> None:
    if call.token:
        with transaction(runtime.database) as connection:
            breakers.give_back(connection, call.breaker.breaker_id, call.token)


def _request(breaker: Breaker, trigger: str, by: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A trigger bound to the breaker's version as read: of two equal ones only one is accepted."""
    return internal(
        _request_id(breaker, trigger),
        breaker.breaker_id,
        trigger,
        by=by,
        right=by_state(breaker.version),
        origin="agent",
        metadata=metadata,
    )


def _request_id(breaker: Breaker, trigger: str) -> str:
    timer = creation.timer(breaker.breaker_id, breaker.version, Deadline(0.0, trigger))
    return str(timer["request_id"])


def _apply_owed(runtime: Runtime, breaker: Breaker) -> None:
    """Apply due triggers at once, because this caller needs them; the dispatch sweep would within a second."""
    if breaker.state == "OPEN":
        with transaction(runtime.database) as connection:
            breakers.wake(connection, _request_id(breaker, "cooldown_expires"))  # the deadline's request_id
    _apply(runtime, breaker)


def _apply(runtime: Runtime, breaker: Breaker) -> None:
    Drain(runtime).partition(requests.partition_of(breaker.breaker_id))


def _create(runtime: Runtime, project: str, tool_id: str) -> None:
    """Create a breaker. Two callers at once are harmless: a project has one breaker per tool."""
    context = {"tool_id": tool_id} | configuration(runtime.settings)
    definition = runtime.catalogue.get("circuit_breaker")
    with transaction(runtime.database) as connection:
        creation.deliver(connection, [Birth(definition, tool_id, project, "system", context)])
