"""Wake-ups: Celery messages that say "look". A lost one delays a trigger, and an extra one does no harm.

While a partition's wake-up waits in the broker no second one is needed: the worker that takes it finds everything that
was committed by then. A flag in Redis records this. A producer sets it after the commit; a worker clears it before its
last query, so a producer that finds the flag set knows that the query will see its trigger.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from time import monotonic
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import RowMapping

from interlock.workflows.effects import LONG, declared
from interlock.workflows.output.escaping import shown

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

KILLED_SECONDS = 30.0  # after its time-out, an effect that does not end is killed with its process
FLAG_MILLISECONDS = 5_000  # if the wake-up was lost, its flag expires after this time
DELIVERY_SECONDS = 30.0  # where no node takes deliveries, their wake-ups must not gather in the broker
WORK_WAKEUPS = 32  # each wakes a worker process that takes tasks until none fits; more would find nothing
COMMIT_SECONDS = 0.01  # if a commit takes longer, a second wake-up is sent: no worker would still look for its trigger
LOOK_SECONDS, LOOK_AGAIN_SECONDS = 0.02, 0.003  # how long and how often to look for an uncommitted trigger
QUIET_SECONDS = 1.0  # how long to send nothing after the broker failed

Wakeup = RowMapping | Mapping[str, Any]  # partition, request_id, workflow_type, entity_id, trigger, triggered_by


def _quietly(send: Callable[Concatenate["Wakeups", P], None]) -> Callable[Concatenate["Wakeups", P], None]:
    """Sends nothing for a while after the broker failed, and never raises: a sweep sends wake-ups once it is back."""

    @wraps(send)
    def sent(self: "Wakeups", /, *args: P.args, **kwargs: P.kwargs) -> None:
        if monotonic() < self._quiet_until:
            return
        try:
            send(self, *args, **kwargs)
        except (RedisError, OperationalError, OSError) as error:
            self._quiet_until = monotonic() + QUIET_SECONDS
            log.warning("broker_unreachable", error=str(error), consequence="triggers are accepted and applied later")

    return sent


class Wakeups:
    """Sends wake-ups and keeps the partitions' flags. Where the broker is not Redis, every trigger gets a wake-up."""

    def __init__(self, app: Celery, redis: "Redis | None") -> None:
        self._app = app
        self._redis = redis
        self._quiet_until = 0.0

    @_quietly
    def partitions(self, wakeups: Iterable[Wakeup]) -> None:
        """Send one wake-up for each partition that has none waiting; never raises."""
        oldest = {wakeup["partition"]: wakeup for wakeup in reversed(list(wakeups)) if wakeup["status"] == "pending"}
        for partition in self._raise_flags({partition: _flag(partition) for partition in oldest}):
            self._send(oldest[partition])

    @_quietly
    def ahead(self, wakeup: Wakeup) -> None:
        """Send the wake-up of a trigger that is being committed, even if one waits for its partition; never raises.

        It does not use the partition's flag, which costs a round trip to set and another to clear. The message tells
        the worker that it may be early, and the worker looks for this one trigger for a while.
        """
        self._send(wakeup, early=True)

    def again(self, partition: int) -> None:
        """Send a wake-up for the requests left in a partition when a worker's turn is over."""
        self.partitions(
            [
                {
                    "partition": partition,
                    "status": "pending",
                    "request_id": f"partition-{partition}-again",
                    "workflow_type": "partition",
                    "entity_id": str(partition),
                    "trigger": "continue",
                    "triggered_by": "system",
                }
            ]
        )

    @_quietly
    def effects(self, rows: Iterable[Wakeup]) -> None:
        """Send a wake-up for each of these effects, which have just become due; never raises.

        Args:
            rows: (id, name, queue, entity) of each, as `effects.intend` returns them.
        """
        for row in rows:
            self._effect(row)

    @_quietly
    def overdue_effects(self, rows: Iterable[Wakeup]) -> None:
        """Send a wake-up for each of these effects if the last one sent here is 5 s old; never raises.

        The flag names the attempt, so that no worker has to clear it.
        """
        found = {(str(row["id"]), row["token"]): row for row in rows}
        flags = {each: _flag(f"effect:{each[0]}:{each[1]}") for each in found}
        for each in self._raise_flags(flags):
            self._effect(found[each])

    def _effect(self, row: Wakeup) -> None:
        name = str(row["name"])
        limits, task = {}, "interlock.gate" if name in LONG else "interlock.effect"
        if own := declared().get(name):
            seconds = own.timeout_seconds
            limits = {"soft_time_limit": seconds, "time_limit": seconds + KILLED_SECONDS}
        said = {"shadow": f"effect.{name}", "argsrepr": f"({shown(row['entity'])})"}
        self._app.send_task(task, args=[str(row["id"])], queue=str(row["queue"]), retry=False, **said, **limits)

    @_quietly
    def runs(self, run_ids: Iterable[str]) -> None:
        """Send a wake-up for the scheduler of each run that has none waiting; never raises."""
        for run_id in self._raise_flags({run_id: _flag(f"run:{run_id}") for run_id in run_ids}):
            self._app.send_task(
                "interlock.schedule", args=[run_id], shadow="run.schedule", argsrepr=f"(run {run_id})", retry=False
            )

    @_quietly
    def work(self, count: int) -> None:
        """Tell workers that tasks wait, with one message per task, up to `WORK_WAKEUPS`; never raises."""
        for _ in range(min(count, WORK_WAKEUPS)):
            self._app.send_task("interlock.work", shadow="work", retry=False)

    @_quietly
    def deliveries(self, subscription_ids: Iterable[UUID]) -> None:
        """Send a wake-up for each subscription that has none waiting; never raises."""
        for each in self._raise_flags({each: _flag(f"delivery:{each}") for each in subscription_ids}):
            self._app.send_task(
                "interlock.deliver",
                args=[str(each)],
                shadow="subscription.deliver",
                argsrepr=f"(subscription {each})",
                expires=DELIVERY_SECONDS,
                retry=False,
            )

    def lower(self, what: int | str) -> None:
        """Clear the flag of a partition, `run:ID` or `delivery:ID`. Never raises: it would expire by itself."""
        if self._redis is None:
            return
        try:
            self._redis.delete(_flag(what))
        except RedisError as error:
            log.warning("flag_not_lowered", flag=_flag(what), error=str(error))

    def _raise_flags(self, flags: Mapping[T, str]) -> list[T]:
        if self._redis is None or not flags:
            return list(flags)
        if len(flags) == 1:  # for a single trigger, a pipeline costs more than a plain round trip
            ((one, flag),) = flags.items()
            return [one] if self._redis.set(flag, 1, nx=True, px=FLAG_MILLISECONDS) else []
        with self._redis.pipeline(transaction=False) as pipe:
            for flag in flags.values():
                pipe.set(flag, 1, nx=True, px=FLAG_MILLISECONDS)
            return [each for each, raised in zip(flags, pipe.execute(), strict=True) if raised]

    def _send(self, wakeup: Wakeup, *, early: bool = False) -> None:
        name = f"{wakeup['workflow_type']}.{wakeup['trigger']}"
        message = f"{wakeup['workflow_type']}/{wakeup['entity_id']} {wakeup['trigger']} by {wakeup['triggered_by']}"
        self._app.send_task(
            "interlock.apply",
            args=[wakeup["partition"], wakeup["request_id"], early],
            task_id=str(task_id(wakeup["request_id"])),
            shadow=name,
            argsrepr=f"({shown(message)})",  # for people, in Flower and in logs
            retry=False,
        )


def task_id(request_id: str) -> UUID:
    """The Celery task id of a request's wake-up: the request's own UUID, or one derived from its request_id."""
    try:
        return UUID(request_id)
    except ValueError:
        return uuid5(NAMESPACE_URL, f"interlock:{request_id}")


def _flag(what: int | str) -> str:
    return f"interlock:woken:{what}"
