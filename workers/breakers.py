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
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from uuid_utils.compat import uuid7

from db import breakers, requests
from db.breakers import Breaker, Count
from db.connect import transaction
from workers import births
from workers.births import Birth
from workers.firing import named
from workers.lanes import Drain
from workers.runtime import Runtime
from workflows.definition import Deadline
from workflows.errors import InterlockError, UnknownInstance

LOOKS = 4  # CLOSED → OPEN → HALF_OPEN → CLOSED may all be owed; one who found more of them would be spinning
ERROR_LIMIT = 2_000
ABOVE = {"OPEN": ("cooldown_expires", "success"), "HALF_OPEN": ("success",)}  # what leads to CLOSED


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

    def failed(self, why: str) -> None:
        """Say that the tool failed, where that is no exception."""
        self.error = why[:ERROR_LIMIT] or "failed"


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
        The call, whose `failed` tells a failure that is no exception.

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
    _report(runtime, call, by)


def known(runtime: Runtime, project_id: UUID, tool_id: str) -> Breaker:
    """A tool's breaker, as it stands.

    Raises:
        UnknownInstance: it has none: nobody called it yet.
    """
    if breaker := breakers.look(runtime.statements, project_id, tool_id):
        return breaker
    raise UnknownInstance(f"no circuit breaker of {tool_id!r} in project {project_id}: nobody called it yet")


def reset(runtime: Runtime, project_id: UUID, tool_id: str, *, by: str, reason: str) -> Breaker:
    """Close a breaker by hand (SSOT 5.3.3): it takes the machine's own way, so an open one is half-open for an instant.

    Args:
        runtime: this process's connections.
        project_id, tool_id: whose breaker.
        by: the operator, kept in the events' metadata.
        reason: why, kept there too.

    Returns:
        The breaker, CLOSED, with no failures.

    Raises:
        UnknownInstance: the tool has no breaker.
        BadInput: `by` is no name.
    """
    says = {"operator": named("by", by), "reason": reason, "manual": True}
    breaker = _standing(runtime, project_id, tool_id)
    for _ in range(LOOKS):
        breakers.succeeded(runtime.statements, breaker.breaker_id)  # a closed one forgets its failures
        with transaction(runtime.database) as connection:
            steps = enumerate(ABOVE.get(breaker.state, ()))
            rows = [_request(breaker, step, by, says, after=number) for number, step in steps]
            requests.accept(connection, [row | {"request_id": str(uuid7())} for row in rows])
        _apply(runtime, breaker)
        breaker = _standing(runtime, project_id, tool_id)
        if breaker.state == "CLOSED":
            break
    return breaker


def _standing(runtime: Runtime, project_id: UUID, tool_id: str) -> Breaker:
    """A tool's breaker, once what is owed has been applied."""
    for _ in range(LOOKS):
        breaker = known(runtime, project_id, tool_id)
        if not breaker.owed:
            return breaker
        _apply_owed(runtime, breaker)
    return known(runtime, project_id, tool_id)


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


def _request(breaker: Breaker, trigger: str, by: str, says: Mapping[str, Any], *, after: int = 0) -> dict[str, Any]:
    """A trigger bound to the breaker as it was seen (`after` so many moves): of two alike only one is ever accepted."""
    request_id = _request_id(breaker, trigger, after=after)
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": breaker.breaker_id,
        "trigger": trigger,
        "triggered_by": by,
        "metadata": says,
        "origin": "agent",
        "bound_version": breaker.version + after,
    }


def _request_id(breaker: Breaker, trigger: str, *, after: int = 0) -> str:
    timer = births.timer(breaker.breaker_id, breaker.version + after, Deadline(0.0, trigger))
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
    chosen = runtime.settings
    context = {
        "tool_id": tool_id,
        "failure_threshold": chosen.breaker_failure_threshold,
        "cooldown_seconds": chosen.breaker_cooldown_seconds,
        "success_threshold": chosen.breaker_success_threshold,
    }
    definition = runtime.catalogue.get("circuit_breaker")
    with transaction(runtime.database) as connection:
        births.deliver(connection, [Birth(definition, tool_id, project_id, "system", context)])
