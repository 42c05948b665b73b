"""Call a tool through its circuit breaker, shared by every process that calls it (SSOT 2.4).

    with calling(runtime, project_id, "pytest") as call:
        finished = run(command)
        if finished.exit_code not in (0, 1):
            call.failed(f"exit code {finished.exit_code}")

An exception out of the block is a failure too. A call of a closed breaker costs two reads and writes nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from db import breakers, requests
from db.breakers import Breaker, Count
from db.connect import transaction
from workers import births
from workers.births import Birth
from workers.firing import named
from workers.lanes import Drain
from workers.overrides.operation import Order
from workers.overrides.others import reset_breaker
from workers.runtime import Runtime
from workers.settings import Settings
from workflows.definition import Deadline
from workflows.errors import InterlockError, UnknownInstance

LOOKS = 4  # CLOSED → OPEN → HALF_OPEN → CLOSED may all be owed; one who found more of them would be spinning
ERROR_LIMIT = 2_000


class BreakerOpen(InterlockError):
    """The tool failed too often and is left alone for now. Ask again after `seconds`, or have an operator look at it.

    Attributes:
        tool_id: the tool.
        seconds: until its breaker lets a call through again, or until another caller's trial is over at the latest.
    """

    def __init__(self, tool_id: str, seconds: float) -> None:
        super().__init__(
            f"the circuit breaker of {tool_id!r} is open: ask again in {ceil(seconds)} s "
            f"(`interlock breaker show {tool_id}` says why)"
        )
        self.tool_id, self.seconds = tool_id, seconds


@dataclass(slots=True)
class Call:
    """One call that was let through; `token` is its trial's where the breaker is half-open."""

    breaker: Breaker
    token: UUID | None = None
    error: str | None = None
    learnt: bool = True

    def failed(self, why: str) -> None:
        """Say that the tool failed, where that is no exception."""
        self.error = why[:ERROR_LIMIT] or "failed"

    def void(self) -> None:
        """Say that nothing was learnt of the tool, as when the call was broken off: it counts neither way."""
        self.learnt = False


@contextmanager
def calling(
    runtime: Runtime, project_id: UUID, tool_id: str, *, by: str = "system", lease_seconds: float | None = None
) -> Iterator[Call]:
    """Let one call of a tool through its breaker, and count how it ends.

    Args:
        runtime: this process's connections.
        project_id, tool_id: whose breaker; one that does not exist yet is created with the settings' thresholds.
        by: who calls, for the events that follow.
        lease_seconds: how long the call may take; a trial that takes longer is given to another caller. Unset: the
            setting `breaker_trial_seconds`.

    Yields:
        The call, whose `failed` tells a failure that is no exception, and `void` that it shall not count.

    Raises:
        BreakerOpen: the breaker is OPEN, or HALF_OPEN and another caller has the trial; the block was not run.
        Exception: whatever the block raises, counted as a failure.
    """
    call = _admit(
        runtime, project_id, named("tool id", tool_id), lease_seconds or runtime.settings.breaker_trial_seconds
    )
    try:
        yield call
    except Exception as error:
        call.failed(f"{type(error).__name__}: {error}")
        _report(runtime, call, by)
        raise
    except BaseException:  # interrupted: nothing was learnt of the tool
        _give_up(runtime, call)
        raise
    if call.learnt:
        _report(runtime, call, by)
    else:
        _give_up(runtime, call)


def known(runtime: Runtime, project_id: UUID, tool_id: str) -> Breaker:
    """A tool's breaker, as it stands.

    Raises:
        UnknownInstance: it has none: nobody called it yet.
    """
    if breaker := breakers.look(runtime.statements, project_id, tool_id):
        return breaker
    raise UnknownInstance(f"no circuit breaker of {tool_id!r} in project {project_id}: nobody called it yet")


def reset(runtime: Runtime, project_id: UUID, tool_id: str, *, by: str, reason: str) -> Breaker:
    """Close a tool's breaker by hand (SSOT 5.3.3); the breaker, closed, with no failures.

    Args:
        runtime: this process's connections.
        project_id, tool_id: whose breaker.
        by, reason: the operator, and why.

    Raises:
        UnknownInstance: the tool has no breaker.
        NotAnOperator: `by` is none.
    """
    reset_breaker(runtime, known(runtime, project_id, tool_id).breaker_id, Order(by, reason))
    return known(runtime, project_id, tool_id)


def configure(
    runtime: Runtime,
    project_id: UUID,
    tool_id: str,
    *,
    failure_threshold: int | None = None,
    cooldown_seconds: float | None = None,
    success_threshold: int | None = None,
) -> Breaker:
    """Give a breaker another configuration (SSOT 2.4.4); what is None stays. It holds at once, also where it is open.

    Returns:
        The breaker as it stands then.

    Raises:
        UnknownInstance: the tool has no breaker.
    """
    before = known(runtime, project_id, tool_id)
    wanted = {
        "tool_id": tool_id,
        "failure_threshold": failure_threshold or before.failure_threshold,
        "cooldown_seconds": cooldown_seconds or before.cooldown_seconds,
        "success_threshold": success_threshold or before.success_threshold,
    }
    with transaction(runtime.database) as connection:
        breakers.configure(connection, project_id, wanted)
    return known(runtime, project_id, tool_id)


def configuration(chosen: Settings, said: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """A breaker's configuration: what is said of it, and what the settings say of any other (ruling 7)."""
    otherwise = {
        "failure_threshold": chosen.breaker_failure_threshold,
        "cooldown_seconds": chosen.breaker_cooldown_seconds,
        "success_threshold": chosen.breaker_success_threshold,
    }
    return otherwise | {name: value for name, value in said.items() if value is not None}


def _admit(runtime: Runtime, project_id: UUID, tool_id: str, lease_seconds: float) -> Call:
    for _ in range(LOOKS):
        breaker = breakers.look(runtime.statements, project_id, tool_id)
        if breaker is None:
            _create(runtime, project_id, tool_id)
        elif breaker.owed:
            _apply_owed(runtime, breaker)
        elif breaker.state == "CLOSED":
            return Call(breaker)
        elif breaker.state == "HALF_OPEN" and (token := _trial(runtime, breaker, lease_seconds)):
            return Call(breaker, token)
        else:
            raise BreakerOpen(tool_id, breaker.seconds_until_reset)
    raise BreakerOpen(tool_id, breaker.seconds_until_reset if breaker else 0.0)


def _trial(runtime: Runtime, breaker: Breaker, lease_seconds: float) -> UUID | None:
    return breakers.take_trial(runtime.statements, breaker.breaker_id, lease_seconds=lease_seconds)


def _report(runtime: Runtime, call: Call, by: str) -> None:
    """Count a call's end. The count that reaches a threshold and the trigger it fires are one commit."""
    if call.token is None and call.error is None:
        breakers.succeeded(runtime.statements, call.breaker.breaker_id)
        return
    with transaction(runtime.database) as connection:
        counted, trigger = _count(connection, call)
        if counted is None or not counted.reached:
            return
        says = {"failure_count": counted.failure_count, "error": call.error, "tool_id": call.breaker.tool_id}
        requests.accept(connection, [_request(call.breaker, trigger, by, says)])
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


def _request(breaker: Breaker, trigger: str, by: str, says: Mapping[str, Any]) -> dict[str, Any]:
    """A trigger bound to the breaker as it was seen: of two alike only one is ever accepted."""
    request_id = _request_id(breaker, trigger)
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": breaker.breaker_id,
        "trigger": trigger,
        "triggered_by": by,
        "metadata": says,
        "origin": "agent",
        "bound_version": breaker.version,
    }


def _request_id(breaker: Breaker, trigger: str) -> str:
    timer = births.timer(breaker.breaker_id, breaker.version, Deadline(0.0, trigger))
    return str(timer["request_id"])


def _apply_owed(runtime: Runtime, breaker: Breaker) -> None:
    """What the dispatch sweep would do within a second, done at once by who needs it."""
    if breaker.state == "OPEN":
        with transaction(runtime.database) as connection:
            breakers.wake(connection, _request_id(breaker, "cooldown_expires"))  # as the state's deadline named it
    _apply(runtime, breaker)


def _apply(runtime: Runtime, breaker: Breaker) -> None:
    Drain(runtime).lane(requests.lane_of(breaker.breaker_id))


def _create(runtime: Runtime, project_id: UUID, tool_id: str) -> None:
    """Two at once are harmless: a project has one breaker of a name."""
    context = {"tool_id": tool_id} | configuration(runtime.settings)
    definition = runtime.catalogue.get("circuit_breaker")
    with transaction(runtime.database) as connection:
        births.deliver(connection, [Birth(definition, tool_id, project_id, "system", context)])
