"""Celery messages that say "look": only hints, so sending one may fail, and one too many does no harm.

While a hint for a lane still waits in the broker another one is not needed: whoever takes it will find everything that
was committed by then. A flag in Redis tells. It is raised after the trigger's commit and lowered before the worker's
last look, so a trigger that saw the flag up is always seen.
"""

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import RowMapping

log = structlog.get_logger()

T = TypeVar("T")

LONG_EFFECTS = frozenset({"run_gate"})  # by name: those that may take hours
FLAG_MILLISECONDS = 5_000  # a flag whose hint was lost holds nothing up for longer than this
WORK_HINTS = 32  # each brings a worker process that takes tasks until none fits; more would find nothing
COMMIT_SECONDS = 0.01  # a commit that takes longer is hinted at anew: no worker would still look for its trigger
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 0.02, 0.003  # so long, and so often, does a worker that came too early
QUIET_SECONDS = 1.0  # after the broker failed, do not try it again for each trigger

Hint = RowMapping | Mapping[str, Any]  # lane, request_id, workflow_type, entity_id, trigger, triggered_by


class Hints:
    """Sends hints and keeps the lanes' flags. Where the broker is not Redis, every trigger gets its own hint."""

    def __init__(self, app: Celery, redis: "Redis | None") -> None:
        self._app = app
        self._redis = redis
        self._quiet_until = 0.0

    def lanes(self, hints: Iterable[Hint]) -> None:
        """Send one hint for each lane that has none waiting; never raises."""
        oldest = {hint["lane"]: hint for hint in reversed(list(hints)) if hint["status"] == "pending"}
        if not oldest or monotonic() < self._quiet_until:
            return
        try:
            for lane in self._raise_flags({lane: _flag(lane) for lane in oldest}):
                self._send(oldest[lane])
        except (RedisError, OperationalError, OSError) as error:
            self._quieten(error)

    def ahead(self, hint: Hint) -> None:
        """Send the hint of a trigger that is being committed, whether or not one waits for its lane; never raises.

        It has nothing to do with the lane's flag, which costs its raiser and its lowerer a round trip each: the worker
        is told that it may come too early, and looks for this one trigger.
        """
        if monotonic() < self._quiet_until:
            return
        try:
            self._send(hint, early=True)
        except (RedisError, OperationalError, OSError) as error:
            self._quieten(error)

    def again(self, lane: int) -> None:
        """Send a hint for what is left in a lane when a worker's turn is over."""
        self.lanes(
            [
                {
                    "lane": lane,
                    "status": "pending",
                    "request_id": f"lane-{lane}-again",
                    "workflow_type": "lane",
                    "entity_id": str(lane),
                    "trigger": "continue",
                    "triggered_by": "system",
                }
            ]
        )

    def effects(self, rows: Iterable[RowMapping]) -> None:
        """Send a hint for each effect that has none waiting; never raises."""
        flags = {(str(row["id"]), str(row["name"])): _effect_flag(str(row["id"])) for row in rows}
        if not flags or monotonic() < self._quiet_until:
            return
        try:
            for effect_id, name in self._raise_flags(flags):
                task = "interlock.gate" if name in LONG_EFFECTS else "interlock.effect"
                self._app.send_task(task, args=[effect_id], shadow=f"effect.{name}", retry=False)
        except (RedisError, OperationalError, OSError) as error:
            self._quieten(error)

    def runs(self, run_ids: Iterable[str]) -> None:
        """Send a hint for the scheduler of each run that has none waiting; never raises."""
        flags = {run_id: _run_flag(run_id) for run_id in run_ids}
        if not flags or monotonic() < self._quiet_until:
            return
        try:
            for run_id in self._raise_flags(flags):
                self._app.send_task(
                    "interlock.schedule", args=[run_id], shadow="run.schedule", argsrepr=f"(run {run_id})", retry=False
                )
        except (RedisError, OperationalError, OSError) as error:
            self._quieten(error)

    def work(self, count: int) -> None:
        """Tell workers that tasks wait, one message for each up to `WORK_HINTS`; never raises."""
        if not count or monotonic() < self._quiet_until:
            return
        try:
            for _ in range(min(count, WORK_HINTS)):
                self._app.send_task("interlock.work", shadow="work", retry=False)
        except (RedisError, OperationalError, OSError) as error:
            self._quieten(error)

    def lower(self, lane: int) -> None:
        """Say that no hint for the lane waits any more; never raises (the flag would run out by itself)."""
        self._lower(_flag(lane))

    def lower_run(self, run_id: str) -> None:
        """Say that no hint for the run's scheduler waits any more; never raises."""
        self._lower(_run_flag(run_id))

    def lower_effect(self, effect_id: str) -> None:
        """Say that no hint for the effect waits any more; never raises."""
        self._lower(_effect_flag(effect_id))

    def _lower(self, flag: str) -> None:
        if self._redis is None:
            return
        try:
            self._redis.delete(flag)
        except RedisError as error:
            log.warning("flag_not_lowered", flag=flag, error=str(error))

    def _raise_flags(self, flags: Mapping[T, str]) -> list[T]:
        if self._redis is None or not flags:
            return list(flags)
        if len(flags) == 1:  # a pipeline would cost a single trigger more than its own round trip
            ((one, flag),) = flags.items()
            return [one] if self._redis.set(flag, 1, nx=True, px=FLAG_MILLISECONDS) else []
        with self._redis.pipeline(transaction=False) as pipe:
            for flag in flags.values():
                pipe.set(flag, 1, nx=True, px=FLAG_MILLISECONDS)
            return [each for each, raised in zip(flags, pipe.execute(), strict=True) if raised]

    def _send(self, hint: Hint, *, early: bool = False) -> None:
        name = f"{hint['workflow_type']}.{hint['trigger']}"
        says = f"{hint['workflow_type']}/{hint['entity_id']} {hint['trigger']} by {hint['triggered_by']}"
        self._app.send_task(
            "interlock.apply",
            args=[hint["lane"], hint["request_id"], early],
            task_id=str(task_id(hint["request_id"])),
            shadow=name,
            argsrepr=f"({says})",
            retry=False,
        )

    def _quieten(self, error: Exception) -> None:
        # The trigger is in PostgreSQL: the dispatch sweep sends the hint once the broker is back.
        self._quiet_until = monotonic() + QUIET_SECONDS
        log.warning("broker_unreachable", error=str(error), consequence="triggers are accepted and applied later")


def task_id(request_id: str) -> UUID:
    """The Celery task id of a request's hint: the request's own UUID, or one derived from its name."""
    try:
        return UUID(request_id)
    except ValueError:
        return uuid5(NAMESPACE_URL, f"interlock:{request_id}")


def _flag(lane: int) -> str:
    return f"interlock:hinted:{lane}"


def _effect_flag(effect_id: str) -> str:
    return f"interlock:hinted:effect:{effect_id}"


def _run_flag(run_id: str) -> str:
    return f"interlock:hinted:run:{run_id}"
