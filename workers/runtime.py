"""What a process needs to work, made on first use and never before a fork: connections are not inherited."""

from dataclasses import dataclass
from functools import cache, cached_property

from celery import Celery
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from sqlalchemy import Engine

from db.connect import make_engine
from workers.app import make_app
from workers.bus import Bus
from workers.courier import Courier
from workers.engine import Applier, RetryPolicy, Round
from workers.hints import Hints
from workers.settings import Settings, settings
from workflows.catalogue import Catalogue, catalogue


@dataclass(frozen=True)
class Runtime:
    """One process's connections and definitions, composed from its settings."""

    settings: Settings

    @cached_property
    def catalogue(self) -> Catalogue:
        """The definitions this process knows."""
        return catalogue(self.settings.definitions)

    @cached_property
    def database(self) -> Engine:
        """The pool of connections to PostgreSQL."""
        return make_engine(self.settings.resolved_database_url())

    @cached_property
    def statements(self) -> Engine:
        """A pool for work that is one statement: accepting a single trigger."""
        return make_engine(self.settings.resolved_database_url(), single_statements=True)

    @cached_property
    def app(self) -> Celery:
        """The Celery app, as a producer of hints."""
        return make_app(self.settings)

    @cached_property
    def redis(self) -> "Redis | None":
        """The event bus's Redis, or None where the broker is RabbitMQ and no other was named."""
        url = self.settings.resolved_redis_url()
        if url is None:
            return None
        # Nobody waits long for Redis to accept a trigger: one new connection at once, and no second try of a time-out.
        again = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
        return Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1, retry=again)

    @cached_property
    def hints(self) -> Hints:
        """Sends Celery messages."""
        return Hints(self.app, self.redis)

    @cached_property
    def courier(self) -> Courier:
        """Sends a producer's hints."""
        return Courier(self.hints)

    @cached_property
    def bus(self) -> Bus:
        """Announces committed moves."""
        return Bus(self.redis)

    @cached_property
    def applier(self) -> Applier:
        """The engine."""
        return Applier(self.database, self.catalogue, self.retry_policy)

    @property
    def retry_policy(self) -> RetryPolicy:
        """When a failing request or effect is tried again."""
        chosen = self.settings
        return RetryPolicy(chosen.max_attempts, chosen.backoff_base_seconds, chosen.backoff_cap_seconds)

    def publish(self, done: Round) -> None:
        """After a commit: announce its moves, hint at what it woke, and log it."""
        self.bus.announce(done.moves)
        self.hints.lanes(done.woken)
        self.hints.effects(done.effects_due)
        self.hints.runs(done.runs)
        done.log()

    def close(self) -> None:
        """Give back every connection."""
        opened = vars(self)
        if "courier" in opened:
            self.courier.flush()
        for pool in ("database", "statements"):
            if pool in opened:
                opened[pool].dispose()
        if self.__dict__.get("redis") is not None:
            opened["redis"].close()
        if "app" in opened:
            self.app.close()


@cache
def runtime() -> Runtime:
    """This process's runtime."""
    return Runtime(settings())
