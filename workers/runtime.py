"""A process's connections and other resources, made on first use. A fork makes its own: it inherits none."""

# ruff: noqa: PLC0415 - a client that only reads needs neither broker nor engine, and should not wait for their import
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from time import sleep
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from sqlalchemy import Engine

from interlock.db.connection import make_engine
from interlock.workers.settings import Settings, settings
from interlock.workflows.catalogue import Catalogue, catalogue
from interlock.workflows.effects import require_queues

if TYPE_CHECKING:
    from celery import Celery
    from redis import Redis

    from interlock.workers.broker.pubsub import Bus
    from interlock.workers.broker.wakeup_sender import WakeupSender
    from interlock.workers.broker.wakeups import Wakeups
    from interlock.workers.engine.applier import Applier, RetryPolicy, Round

T = TypeVar("T")


@dataclass(frozen=True)
class Runtime:
    """One process's connections and definitions, composed from its settings."""

    settings: Settings

    def __post_init__(self) -> None:
        _MADE[id(self)] = self

    @cached_property
    def catalogue(self) -> Catalogue:
        """The definitions this process knows."""
        found = catalogue(self.settings.definitions)
        require_queues(self.settings.effect_queues)
        return found

    @cached_property
    def database(self) -> Engine:
        """The pool of connections to PostgreSQL."""
        return make_engine(self.settings.resolved_database_url())

    @cached_property
    def owned(self) -> Engine:
        """The same database, for the schema's owner: to migrate it."""
        return make_engine(self.settings.resolved_owner_url())

    @cached_property
    def statements(self) -> Engine:
        """A pool for work that is one statement: accepting a single trigger."""
        return make_engine(self.settings.resolved_database_url(), single_statements=True)

    @cached_property
    def app(self) -> "Celery":
        """The Celery app, to send wake-ups."""
        from interlock.workers.broker.app import make_app

        return make_app(self.settings)

    @cached_property
    def redis(self) -> "Redis | None":
        """The Redis of the event bus; None if the broker is RabbitMQ and no Redis was named."""
        url = self.settings.resolved_redis_url()
        if url is None:
            return None
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError as RedisConnectionError
        from redis.retry import Retry

        # Accepting a trigger must not wait long for Redis: one retry with a new connection, none after a time-out.
        again = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
        return Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1, retry=again)

    @cached_property
    def wakeups(self) -> "Wakeups":
        """Sends Celery messages."""
        from interlock.workers.broker.wakeups import Wakeups

        return Wakeups(self.app, self.redis)

    @cached_property
    def wakeup_sender(self) -> "WakeupSender":
        """Sends a producer's wake-ups."""
        from interlock.workers.broker.wakeup_sender import WakeupSender

        return WakeupSender(self.wakeups)

    @cached_property
    def bus(self) -> "Bus":
        """Announces committed moves."""
        from interlock.workers.broker.pubsub import Bus

        return Bus(self.redis)

    @cached_property
    def applier(self) -> "Applier":
        """The engine."""
        from interlock.workers.engine.applier import Applier

        return Applier(self.database, self.catalogue, self.retry_policy)

    @property
    def own_attempts(self) -> dict[str, int]:
        """Name -> how often it is tried at most, of the declared effects."""
        usual = self.settings.max_attempts
        return {name: each.max_attempts(usual) for name, each in self.catalogue.effects.items()}

    @property
    def retry_policy(self) -> "RetryPolicy":
        """When a failing request or effect is tried again."""
        from interlock.workers.engine.applier import RetryPolicy

        chosen = self.settings
        return RetryPolicy(chosen.max_attempts, chosen.backoff_base_seconds, chosen.backoff_cap_seconds)

    def publish(self, done: "Round", *, scheduled: Iterable[UUID] = ()) -> None:
        """After a commit: announce its moves, send wake-ups for what became due, and log it.

        Args:
            done: what was committed.
            scheduled: runs whose scheduler has read these moves already, in the same commit.
        """
        self.bus.announce(done.moves)
        self.wakeups.partitions(done.woken)
        self.wakeups.effects(done.effects_due)
        self.wakeups.runs(done.runs - {str(each) for each in scheduled})
        done.report()

    def pause(self, seconds: float) -> None:
        """Wait."""
        sleep(seconds)

    def blocking(self, call: Callable[[], T]) -> T:
        """Make a call that may take long; returns what it returns."""
        return call()

    def end_sending(self) -> None:
        """Wait until wake-ups are sent that were handed over, or for two seconds; no thread is left for them."""
        self.wakeup_sender.close()

    def close(self) -> None:
        """Close every connection."""
        opened = vars(self)
        if "wakeup_sender" in opened:
            self.end_sending()
        for pool in ("database", "owned", "statements"):
            if pool in opened:
                opened[pool].dispose()
        if self.__dict__.get("redis") is not None:
            opened["redis"].close()
        if "app" in opened:
            self.app.close()

    def forget(self) -> None:
        """In a fork: drop the connections without closing them, because the parent process still uses them."""
        for name in [name for name in vars(self) if name not in {"settings", "catalogue"}]:
            made = vars(self).pop(name)
            if isinstance(made, Engine):
                made.dispose(close=False)


_MADE: "weakref.WeakValueDictionary[int, Runtime]" = weakref.WeakValueDictionary()


_LEFT: list[object] = []  # kombu's pools of the parent process: closing one of their connections would cut it there


def _forget_all() -> None:
    for made in list(_MADE.values()):
        made.forget()
    if (kombu := sys.modules.get("kombu.pools")) is not None:
        for pools in (kombu.connections, kombu.producers):
            _LEFT.append(dict(pools))
            pools.clear()


os.register_at_fork(after_in_child=_forget_all)


@cache
def runtime() -> Runtime:
    """This process's runtime."""
    return Runtime(settings())
