"""Every setting, its default and its environment variable (`INTERLOCK_…`), in one place.

`DATABASE_URL` and `BROKER_URL` are read under those plain names too, because that is what hosting platforms set.
Without them, the embedded servers of `INTERLOCK_HOME` are used: `interlock up` writes where they listen into
`servers.json`, and everything else reads it from there.
"""

import json
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from workflows.errors import BadInput, NotRunning, OthersHome

SERVERS_FILE = "servers.json"
REDIS = ("redis://", "rediss://", "unix://")
BROKERS = (*REDIS, "amqp://", "amqps://", "pyamqp://")


class Settings(BaseSettings):
    """What an operator may set; everything has a working default."""

    model_config = SettingsConfigDict(env_prefix="INTERLOCK_", extra="ignore", populate_by_name=True)

    home: Path = Field(Path(".interlock"), description="data directory of the embedded servers, logs and pid files")
    database_url: str | None = Field(
        None,
        validation_alias=AliasChoices("INTERLOCK_DATABASE_URL", "DATABASE_URL"),
        description="your own PostgreSQL (15 or newer); unset: the embedded one",
    )
    broker_url: str | None = Field(
        None,
        validation_alias=AliasChoices("INTERLOCK_BROKER_URL", "BROKER_URL"),
        description="your own Redis (6.2 or newer), Valkey or RabbitMQ; unset: the embedded Valkey",
    )
    redis_url: str | None = Field(
        None,
        description="Redis of the event bus, the stream and the lanes' flags; unset: the broker, where it speaks Redis",
    )

    host: str = Field("127.0.0.1", description="address the embedded servers, Flower and the exporter listen on")
    postgres_port: int | None = Field(None, description="unset: a free one, kept from then on")
    redis_port: int | None = Field(None, description="unset: a free one, kept from then on")
    flower_port: int | None = Field(None, description="unset: a free one, kept from then on")
    metrics_port: int | None = Field(
        None, description="unset: under `interlock up` a free one, kept from then on; alone, 9464"
    )
    run_as: str = Field("nobody", description="the user PostgreSQL and Valkey run as when root starts them")

    trigger_nodes: int = Field(2, ge=1, description="Celery worker nodes that apply triggers, a process each")
    effect_processes: int = Field(2, ge=1, description="pool processes of the node that runs effects")
    gate_processes: int = Field(2, ge=1, description="pool processes of the node that runs gates: so many at once")

    work_processes: int = Field(2, ge=1, description="pool processes of the node that carries out tasks: a worker each")
    capabilities: Annotated[tuple[str, ...], NoDecode] = Field(
        ("python", "git", "shell"), description="what these workers offer to tasks, separated by commas"
    )
    drain_seconds: float = Field(
        5.0, ge=0, description="on SIGTERM, running tasks get this long to finish; then they are given back"
    )
    heartbeat_seconds: float = Field(60.0, gt=0, description="workers say at least this often that they are alive")
    heartbeats_missed: int = Field(2, ge=1, description="so many missed by a busy worker make it unresponsive")
    recovery_seconds: float = Field(300.0, gt=0, description="a worker silent this long is shut down for good")
    starving_seconds: float = Field(
        60.0, gt=0, description="a free worker that leaves a fitting task waiting this long is reported by `doctor`"
    )

    definitions: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="modules with more definitions (a `WORKFLOWS` dict each), separated by commas"
    )
    notify_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="apprise URLs that get notices (json://, slack://, mailto://), separated by commas"
    )

    operators: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="who may override, beside who migrates a new database, separated by commas; read only then"
    )

    task_timeout_seconds: float = Field(
        1800.0, gt=0, description="how long a task may run that says nothing of it when it is created"
    )
    task_retries: int = Field(
        3, ge=0, le=100, description="how often a task is tried again that says nothing of it when it is created"
    )
    max_attempts: int = Field(8, ge=1, description="attempts before a request that keeps failing is dead")
    backoff_base_seconds: float = Field(0.5, gt=0, description="first retry waits up to this; doubled each time")
    backoff_cap_seconds: float = Field(600.0, gt=0, description="no retry waits longer than this")
    effect_lease_seconds: float = Field(60.0, gt=0, description="a worker silent this long loses its effect")
    breaker_failure_threshold: int = Field(5, ge=1, description="failures in a row that open a tool's circuit breaker")
    breaker_cooldown_seconds: float = Field(60.0, gt=0, description="how long it stays open")
    breaker_success_threshold: int = Field(1, ge=1, description="trial calls that must succeed to close it")
    breaker_trial_seconds: float = Field(
        120.0, gt=0, description="a trial call that takes longer than this, or whose caller died, is given to another"
    )
    stuck_task_seconds: float = Field(1800.0, ge=0, description="a task that runs this long is stuck; 0: never")
    stuck_workstream_seconds: float = Field(
        3600.0, ge=0, description="a workstream that executes this long is stuck; 0: never"
    )
    stuck_due_seconds: float = Field(
        60.0, ge=0, description="what is due so long and not taken, or can be taken by nobody, is stuck; 0: never"
    )
    stuck_seconds: float = Field(
        86_400.0, ge=0, description="anything else that is neither at an end nor at rest this long is stuck; 0: never"
    )
    worktrees: Path | None = Field(None, description="where workstreams' worktrees stand; unset: HOME/worktrees")
    archive: Path | None = Field(None, description="where failed workstreams are kept; unset: HOME/archive")
    state: Path | None = Field(None, description="where the journal `transitions.jsonl` is written; unset: HOME/.state")
    journal: bool = Field(True, description="whether it is written at all")
    journal_bytes: int = Field(67_108_864, ge=1, description="a part of the journal that gets larger is set aside")
    journal_daily: bool = Field(True, description="each day (UTC) has a part of its own")
    signing: Path | None = Field(
        None, description="where the key that signs anchors lies, and public keys to believe; unset: HOME/keys"
    )
    audit: Path | None = Field(None, description="where anchors and exports are filed; unset: HOME/audit")
    anchor_seconds: float = Field(3600.0, gt=0, description="the chains' heads are signed so often, if any changed")
    export_seconds: float = Field(86_400.0, gt=0, description="history is exported so often, if there is more of it")
    stream_maxlen: int = Field(100_000, ge=1, description="events kept in the Redis stream (about)")
    keep_finished_days: float = Field(
        30.0, ge=0, description="finished requests and effects older than this are pruned; history never is"
    )
    keep_effects_days: float | None = Field(
        None, ge=0, description="effects done longer ago are pruned; unset: as finished requests"
    )
    archive_after_days: float = Field(
        90.0, ge=0, description="what ended longer ago is moved into the archive, history and all; 0: never"
    )
    context_limit_bytes: int = Field(262_144, ge=1, description="largest context or metadata, as JSON")

    @field_validator("definitions", "notify_urls", "capabilities", "operators", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("broker_url")
    @classmethod
    def _known_broker(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(BROKERS):
            raise ValueError(f"must begin with one of {', '.join(BROKERS)}")
        return value

    @property
    def silent_seconds(self) -> float:
        """How long a busy worker may be silent before it is unresponsive."""
        return self.heartbeat_seconds * self.heartbeats_missed

    @property
    def servers_file(self) -> Path:
        """Where `interlock up` records the embedded servers' addresses."""
        return self.home / SERVERS_FILE

    @property
    def worktrees_directory(self) -> Path:
        """Below which each workstream's worktree stands, as RUN/WORKSTREAM."""
        return (self.worktrees or self.home / "worktrees").absolute()

    @property
    def archive_directory(self) -> Path:
        """Below which what a failed workstream left is kept, as RUN/WORKSTREAM."""
        return (self.archive or self.home / "archive").absolute()

    @property
    def state_directory(self) -> Path:
        """Where the journal lies."""
        return (self.state or self.home / ".state").absolute()

    @property
    def signing_directory(self) -> Path:
        """Where the signing key lies."""
        return (self.signing or self.home / "keys").absolute()

    @property
    def audit_directory(self) -> Path:
        """Below which anchors and exports are filed."""
        return (self.audit or self.home / "audit").absolute()

    def resolved_database_url(self) -> str:
        """The PostgreSQL to use, in SQLAlchemy's psycopg 3 form. Raises `NotRunning` where none is known."""
        url = self.database_url or self._embedded("database_url")
        for prefix in ("postgres://", "postgresql://"):
            if url.startswith(prefix):
                return "postgresql+psycopg://" + url.removeprefix(prefix)
        if not url.startswith("postgresql+psycopg://"):
            raise BadInput("DATABASE_URL must begin with postgresql://")
        return url

    def resolved_broker_url(self) -> str:
        """The broker to use, as kombu writes it. Raises `NotRunning` where none is known."""
        return self.broker_url or self._embedded("broker_url")

    def resolved_redis_url(self) -> str | None:
        """The Redis of the event bus and the lane flags; None where the broker is RabbitMQ and none is set."""
        url = self.redis_url or self.resolved_broker_url()
        return url if url.startswith(REDIS) else None

    def _embedded(self, key: str) -> str:
        try:
            return str(json.loads(self.servers_file.read_text())[key])
        except PermissionError as refused:
            raise OthersHome(self.servers_file) from refused
        except (OSError, ValueError, KeyError, TypeError) as missing:
            raise NotRunning(self.home.absolute()) from missing


@cache
def settings() -> Settings:
    """This process's settings, read from the environment once."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][0])
        name = where if where.isupper() else f"INTERLOCK_{where.upper()}"
        raise BadInput(f"{name}: {first['msg']}; got {first['input']!r}") from error
