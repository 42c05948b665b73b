"""Every setting, its default and its environment variable (`INTERLOCK_…`), in one place.

`DATABASE_URL` and `BROKER_URL` are read under those plain names too, because hosting platforms set them. Without them,
the embedded servers of `INTERLOCK_HOME` are used: `interlock up` writes their addresses into `servers.json`, from where
all other processes read them.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from interlock.workflows.effects import QUEUE_NAME, QUEUES
from interlock.workflows.errors import BadInput, NotRunning, OthersHome
from interlock.workflows.input import names
from interlock.workflows.input.limits import LIMIT_BYTES
from interlock.workflows.output.escaping import shown
from interlock.workflows.output.schema_messages import schema_message
from interlock.workflows.output.urls import shown_url

SERVERS_FILE = "servers.json"
REDIS = ("redis://", "rediss://", "unix://")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
BROKERS = (*REDIS, "amqp://", "amqps://", "pyamqp://")

COMMAND_LINE = re.compile(r"""(?:[^;'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""", re.DOTALL)
OUTSIDE = Path("/var/lib/interlock")  # for data whose user cannot get into the home


Port = Annotated[int | None, Field(ge=1, le=65_535)]


class Settings(BaseSettings):
    """What an operator may set; everything has a working default."""

    model_config = SettingsConfigDict(
        env_prefix="INTERLOCK_", env_ignore_empty=True, extra="ignore", populate_by_name=True
    )

    home: Path = Field(Path(".interlock"), description="data directory of the embedded servers, logs and pid files")
    database_url: str | None = Field(
        None,
        validation_alias=AliasChoices("INTERLOCK_DATABASE_URL", "DATABASE_URL"),
        description="your own PostgreSQL (15 or newer); unset: the embedded one",
    )
    owner_url: str | None = Field(
        None,
        description="that PostgreSQL for the login of `interlock migrate` and `audit rebuild`; unset: DATABASE_URL",
    )
    broker_url: str | None = Field(
        None,
        validation_alias=AliasChoices("INTERLOCK_BROKER_URL", "BROKER_URL"),
        description="your own Redis (6.2 or newer), Valkey or RabbitMQ; unset: the embedded Valkey",
    )
    redis_url: str | None = Field(
        None,
        description="Redis for event bus, stream and the partitions' flags; unset: the broker, if it is a Redis",
    )

    project: Annotated[str, AfterValidator(lambda value: names.project(value, "INTERLOCK_PROJECT"))] = Field(
        names.DEFAULT_PROJECT,
        description="project in which commands and clients look up and create instances, unless they name another",
    )

    host: str = Field("127.0.0.1", description="address the embedded servers, Flower and the exporter listen on")
    postgres_port: Port = Field(None, description="port; unset: a free one is chosen and kept")
    redis_port: Port = Field(None, description="port; unset: a free one is chosen and kept")
    flower_port: Port = Field(None, description="port; unset: a free one is chosen and kept")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="more host names under which Flower, the exporter and the API answer, besides localhost and their "
        "own address, separated by commas; requests under other names are refused, since a web page can make "
        "a browser send them",
    )
    metrics_port: Port = Field(
        None, description="port; unset: under `interlock up` a free one is chosen and kept; alone, 9464"
    )
    api_host: str = Field("127.0.0.1", description="address the HTTP API listens on")
    api_port: Port = Field(
        None, description="port; unset: under `interlock up` a free one is chosen and kept; alone, 8080"
    )
    api_tls_certificate: Path | None = Field(
        None, description="PEM file of the API's certificate and its chain; unset: HTTP without TLS"
    )
    api_tls_key: Path | None = Field(None, description="PEM file of its private key; unset: in the same file")
    api_url: str = Field(
        "", description="where `interlock mcp serve` finds the API; empty: that of `interlock up` here"
    )
    api_token: SecretStr | None = Field(None, description="the token that `interlock mcp serve` presents")
    api_rate: float = Field(
        500.0,
        ge=0,
        description="requests a second that the API takes of one token; twice as many at once after a pause; 0: any",
    )
    api_plan_folders: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="directories of this machine, separated by commas, in which a plan that is submitted over HTTP may "
        "have its folder and repository and what it lists under `reads`; none: such plans may name no path",
    )
    run_as: str = Field(
        "interlock",
        description="user that PostgreSQL and Valkey run as when root starts them; the default user is created if "
        "missing",
    )
    commands_run_as: str = Field(
        "interlock-commands",
        description="user that commands of tasks, gates and effects run as when root starts Interlock; the default "
        "user is created if missing",
    )

    sandbox: Literal["auto", "require", "off"] = Field(
        "auto",
        description="whether commands of plans run in a sandbox (docs/sandbox.md). `auto`: if the machine allows it; "
        "`require`: otherwise they are refused; `off`: never. A plan may be stricter",
    )
    sandbox_reads: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="directories that commands in a sandbox may read, besides `/usr` and the Python that Interlock "
        "runs on, separated by commas; list other places of programs here",
    )
    command_memory_bytes: int | None = Field(
        None, ge=1, description="memory that a command's processes may hold together; unset: half of the machine's"
    )
    command_processes: int = Field(1024, ge=1, description="processes and threads that a command may have at once")
    command_file_bytes: int = Field(8_589_934_592, ge=1, description="largest file that a command may write")
    command_disk_bytes: int = Field(
        17_179_869_184, ge=1, description="bytes that a command may write to disk; never more than half of what is free"
    )
    command_tmp_bytes: int = Field(
        1_073_741_824,
        ge=1,
        description="size of a command's own `/tmp` in a sandbox, in memory",
    )
    dumpable: bool = Field(
        False,
        description="whether processes of the same user may inspect workers, beat, Flower, the exporter and the "
        "supervisor, and these dump core: for `py-spy` and `gdb` without root. Commands without a sandbox "
        "may inspect them then, too. Linux only",
    )

    trigger_nodes: int = Field(2, ge=1, description="Celery worker nodes that apply triggers, one process each")
    effect_processes: int = Field(2, ge=1, description="pool processes of the node that runs effects")
    effect_queues: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="more Celery queues, which effects of your own may name (`@effect(queue=…)`), separated by commas; "
        "under `interlock up` each has a node of its own, with INTERLOCK_EFFECT_PROCESSES processes",
    )
    delivery_threads: int = Field(
        16, ge=1, description="subscriptions whose events the node of deliveries delivers at once"
    )
    subscription_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="hosts of your own network that subscriptions may deliver to, as HOST or HOST:PORT, separated by "
        "commas; all others must have a public address and https",
    )
    gate_processes: int = Field(
        2,
        ge=1,
        description="pool processes of the node that runs gates: the number of gates that run at once",
    )

    work_processes: int = Field(
        2,
        ge=1,
        description="pool processes of the node that carries out tasks, each of them a worker",
    )
    capabilities: Annotated[tuple[str, ...], NoDecode] = Field(
        ("python", "git", "shell"), description="capabilities that these workers offer to tasks, separated by commas"
    )
    drain_seconds: float = Field(
        5.0, ge=0, description="on SIGTERM, running tasks get this long to finish; then they are given back"
    )
    heartbeat_seconds: float = Field(60.0, gt=0, description="longest time between two heartbeats of a worker")
    heartbeats_missed: int = Field(2, ge=1, description="missed heartbeats after which a busy worker is unresponsive")
    recovery_seconds: float = Field(300.0, gt=0, description="a worker silent this long is shut down for good")
    starving_seconds: float = Field(
        60.0, gt=0, description="a free worker that leaves a fitting task waiting this long is reported by `doctor`"
    )

    definitions: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="modules with more definitions (a `WORKFLOWS` dict each), separated by commas; imported from "
        "Python's installation or `PYTHONPATH`, never from the current folder",
    )
    notify_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="apprise URLs that notices are sent to (json://, slack://, mailto://), separated by commas"
    )

    operators: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="first operators of a new database, besides the user who migrates it, separated by commas; read "
        "only then",
    )

    task_timeout_seconds: float = Field(1800.0, gt=0, description="time limit of tasks that are created without one")
    job_timeout_seconds: float = Field(86_400.0, gt=0, description="time limit of jobs that are created without one")
    task_retries: int = Field(
        3, ge=0, le=100, description="retries of tasks that are created without a number of retries"
    )
    max_attempts: int = Field(8, ge=1, description="attempts before a request that keeps failing is dead")
    backoff_base_seconds: float = Field(
        0.5,
        gt=0,
        description="longest wait before the first retry; doubled for each further one",
    )
    backoff_cap_seconds: float = Field(600.0, gt=0, description="no retry waits longer than this")
    bounce_limit: int = Field(
        100,
        ge=0,
        le=10_000,
        description="an instance that agents move more often than this from one state to the same other, within the "
        "next setting, gets a brake; 0: never",
    )
    bounce_seconds: float = Field(
        3600.0, gt=0, le=604_800, description="the period in which moves back and forth are counted"
    )
    effect_lease_seconds: float = Field(60.0, gt=0, description="a worker silent this long loses its effect")
    breaker_failure_threshold: int = Field(5, ge=1, description="failures in a row that open a tool's circuit breaker")
    breaker_cooldown_seconds: float = Field(60.0, gt=0, description="how long a breaker stays open")
    breaker_success_threshold: int = Field(1, ge=1, description="trial calls that must succeed to close a breaker")
    breaker_trial_seconds: float = Field(
        120.0,
        gt=0,
        description="a trial call that has not ended after this time, for example because its caller died, is given "
        "to another caller",
    )
    phases: Path | None = Field(
        None,
        description="file of `phases`, as in a plan, for all plans: they may declare no others; unset: each declares "
        "its own",
    )
    secrets_env: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="variables of a worker's own environment that plans may name (`env_from: env:NAME`)"
    )
    secrets: Path | None = Field(
        None, description="directory of files that plans may name (`env_from: file:PATH`), each with mode 0600"
    )
    secrets_commands: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="`NAME=/path/to/program`, separated by commas: programs that plans may name as `env_from: "
        "command:NAME`; each prints its value",
    )
    tool_checks: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="`TOOL=/path/to/program`, separated by commas: programs that `playbook run reset-breaker` runs "
        "with `--version` to check that a tool works",
    )
    stuck_task_seconds: float = Field(
        1800.0, ge=0, description="a task that runs this long, and longer than its own `timeout`, is stuck; 0: never"
    )
    stuck_workstream_seconds: float = Field(
        3600.0, ge=0, description="a workstream that executes this long without progress is stuck; 0: never"
    )
    stuck_due_seconds: float = Field(
        60.0,
        ge=0,
        description="work that is due this long and not taken, or that no worker can take, is stuck; 0: never",
    )
    stuck_seconds: float = Field(
        86_400.0,
        ge=0,
        description="any other instance that is this long in a state that is neither terminal nor at rest is stuck; "
        "0: never",
    )
    worktrees: Path | None = Field(None, description="directory of workstreams' worktrees; unset: HOME/worktrees")
    task_output: Path | None = Field(
        None, description="directory where workers keep what tasks print; unset: HOME/output"
    )
    task_output_bytes: int = Field(
        8_388_608,
        ge=1024,
        description="what is kept of the output of one attempt at a task; of more, the middle is left out",
    )
    keep_output_days: float = Field(
        30.0, ge=0, description="output of tasks older than this is deleted by the machine that has it"
    )
    archive: Path | None = Field(None, description="directory where failed workstreams are kept; unset: HOME/archive")
    state: Path | None = Field(None, description="directory of the journal `transitions.jsonl`; unset: HOME/.state")
    journal: bool = Field(True, description="whether the journal is written")
    journal_bytes: int = Field(
        67_108_864,
        ge=1,
        description="size at which a part of the journal is closed and a new one begun",
    )
    journal_daily: bool = Field(True, description="whether the journal begins a new part each day (UTC)")
    signing: Path | None = Field(
        None, description="directory of the key that signs anchors, and of trusted public keys; unset: HOME/keys"
    )
    audit: Path | None = Field(None, description="directory of anchors and exports; unset: HOME/audit")
    anchor_seconds: float = Field(3600.0, gt=0, description="time between two anchors, if any chain changed")
    anchor_directories: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="directories that each anchor is copied to, besides INTERLOCK_AUDIT, separated by commas; better "
        "on other machines. They must exist",
    )
    anchor_commands: str | None = Field(
        None,
        description="command lines, separated by `;`, that each get each anchor's signed checkpoint on their standard "
        "input, and `INTERLOCK_ANCHOR_NUMBER` in their environment; run without a shell, for at most 30 s",
    )
    verify_seconds: float = Field(
        86_400.0, ge=0, description="time in which all of history is verified once by itself; 0: never"
    )
    export_seconds: float = Field(
        86_400.0,
        gt=0,
        description="time between two exports of history, if there are new events",
    )
    backup_directory: Path | None = Field(
        None,
        description="directory of backups, better on another disk. Unset: HOME/backups, with a smaller retention",
    )
    backup_every_seconds: float = Field(
        86_400.0,
        ge=0,
        description="time between two backups that `interlock up` takes of the embedded PostgreSQL; 0: never",
    )
    backup_keep_last: int | None = Field(
        None,
        ge=1,
        description="the newest backups: so many are kept, however old they are; see the next. Unset: 7, in "
        "HOME/backups 3",
    )
    backup_keep_days: float | None = Field(
        None,
        ge=0,
        description="younger backups are all kept; older ones are deleted, except for the newest (see above). Unset: "
        "7, in HOME/backups 0",
    )
    backup_drill_seconds: float = Field(
        604_800.0,
        ge=0,
        description="time after which `interlock up` restores and verifies a backup that it has just taken, to prove "
        "that it can be used; 0: never",
    )
    stream_maxlen: int = Field(100_000, ge=1, description="approximate number of events kept in the Redis stream")
    keep_finished_days: float = Field(
        30.0, ge=0, description="finished requests and effects older than this are pruned; history never is"
    )
    keep_effects_days: float | None = Field(
        None, ge=0, description="finished effects older than this are pruned; unset: as finished requests"
    )
    archive_after_days: float = Field(
        90.0,
        ge=0,
        description="instances that ended longer ago are moved into the archive with their history; 0: never",
    )
    context_limit_bytes: int = Field(
        262_144, ge=1, le=LIMIT_BYTES, description="largest context or metadata, as JSON; 1 MiB at most"
    )

    @field_validator(
        *(
            "allowed_hosts",
            "anchor_directories",
            "api_plan_folders",
            "definitions",
            "effect_queues",
            "notify_urls",
            "capabilities",
            "operators",
            "sandbox_reads",
            "subscription_hosts",
        ),
        *("tool_checks", "secrets_env", "secrets_commands"),
        mode="before",
    )
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("effect_queues")
    @classmethod
    def _own_queues(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [each for each in value if not QUEUE_NAME.fullmatch(each) or each in QUEUES]:
            raise ValueError(
                "expected names of at most 50 lower-case letters, digits, _ and -, other than "
                f"{', '.join(sorted(QUEUES))}; wrong: {wrong[0]}"
            )
        return value

    @field_validator("database_url", "owner_url", "broker_url", "redis_url")
    @classmethod
    def _readable_url(cls, value: str | None) -> str | None:
        try:
            for each in (value or "").split(";"):  # kombu takes several
                _ = urlsplit(each).port
        except ValueError:
            raise ValueError("is not a URL; in a password write @ as %40, : as %3A and / as %2F") from None
        return value

    @field_validator("tool_checks", "secrets_commands")
    @classmethod
    def _programs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [each for each in value if "=" not in each or not each.partition("=")[2].startswith("/")]:
            raise ValueError(f"expected NAME=/path/to/program, separated by commas; wrong: {wrong[0]}")
        return value

    @field_validator("anchor_commands")
    @classmethod
    def _named_programs(cls, value: str | None) -> str | None:
        try:
            lines = command_lines(value or "x")
        except ValueError as error:
            raise ValueError(f"is no command line: {error}") from None
        if not all(lines) or not lines:
            raise ValueError("names no program")
        return value

    @field_validator("broker_url")
    @classmethod
    def _known_broker(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(BROKERS):
            raise ValueError(f"must begin with one of {', '.join(BROKERS)}")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, else the environment: files, of which there are none, would double the time of each start."""
        return init_settings, env_settings

    @property
    def programs_of_tools(self) -> dict[str, str]:
        """Tool -> the program that checks it."""
        return dict(each.split("=", 1) for each in self.tool_checks)

    @property
    def programs_of_secrets(self) -> dict[str, str]:
        """Name -> the program that prints the secret."""
        return dict(each.split("=", 1) for each in self.secrets_commands)

    @property
    def silent_seconds(self) -> float:
        """How long a busy worker may be silent before it is unresponsive."""
        return self.heartbeat_seconds * self.heartbeats_missed

    @property
    def servers_file(self) -> Path:
        """The file where `interlock up` records the embedded servers' addresses."""
        return self.home / SERVERS_FILE

    @property
    def worktrees_directory(self) -> Path:
        """The parent directory of all worktrees, which are at RUN/WORKSTREAM."""
        return (self.worktrees or self.home / "worktrees").absolute()

    @property
    def output_directory(self) -> Path:
        """The parent directory of what tasks printed."""
        return (self.task_output or self.home / "output").absolute()

    @property
    def archive_directory(self) -> Path:
        """The parent directory of failed workstreams' archives, which are at RUN/WORKSTREAM."""
        return (self.archive or self.home / "archive").absolute()

    @property
    def state_directory(self) -> Path:
        """The journal's directory."""
        return (self.state or self.home / ".state").absolute()

    @property
    def signing_directory(self) -> Path:
        """The signing key's directory."""
        return (self.signing or self.home / "keys").absolute()

    @property
    def audit_directory(self) -> Path:
        """The parent directory of anchors and exports."""
        return (self.audit or self.home / "audit").absolute()

    @property
    def anchor_copy_directories(self) -> list[Path]:
        """The directories that anchors are copied to."""
        return [each.absolute() for each in self.anchor_directories]

    @property
    def backups_directory(self) -> Path:
        """The parent directory of backups."""
        return (self.backup_directory or self.home / "backups").absolute()

    @property
    def backup_retention(self) -> tuple[int, float]:
        """How many of the newest backups are kept whatever their age, and for how many days all are."""
        last, days = (7, 7.0) if self.backup_directory else (3, 0.0)
        return (
            last if self.backup_keep_last is None else self.backup_keep_last,
            days if self.backup_keep_days is None else self.backup_keep_days,
        )

    def resolved_database_url(self) -> str:
        """The PostgreSQL to use, in SQLAlchemy's psycopg 3 form. Raises `NotRunning` if none is known."""
        return _for_psycopg(self.database_url or self._embedded("database_url"))

    def resolved_owner_url(self) -> str:
        """The same for the schema's owner, who alone may migrate it."""
        return _for_psycopg(self.owner_url or self.database_url or self._embedded("owner_url"))

    def resolved_broker_url(self) -> str:
        """The broker to use, in kombu's form. Raises `NotRunning` if none is known."""
        return self.broker_url or self._embedded("broker_url")

    def resolved_redis_url(self) -> str | None:
        """The Redis of the event bus and the partitions' flags; None if the broker is RabbitMQ and no Redis is set."""
        url = self.redis_url or self.resolved_broker_url()
        return url if url.startswith(REDIS) else None

    def resolved_api_url(self) -> str | None:
        """Where the HTTP API answers: INTERLOCK_API_URL, else that of `interlock up` here; None: it is not known."""
        with suppress(NotRunning):
            return self.api_url or self._embedded("api_url") or None
        return None

    def _embedded(self, key: str) -> str:
        try:
            address = json.loads(self.servers_file.read_text())[key]
        except PermissionError as refused:
            raise OthersHome(self.servers_file) from refused
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as missing:
            raise NotRunning(self.home.absolute()) from missing
        if not isinstance(address, str):
            raise NotRunning(self.home.absolute())
        return address


def command_lines(value: str) -> list[list[str]]:
    """The words of several command lines, which `;` outside of quotes separates. `ValueError`: a quote is open."""
    shlex.split(value)  # of the whole: each quote has its other one
    return [shlex.split(each) for each in COMMAND_LINE.findall(value)]


def _for_psycopg(url: str) -> str:
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    if not url.startswith("postgresql+psycopg://"):
        driver = url.partition("://")[0]
        raise BadInput(
            f"DATABASE_URL begins with {driver}://: Interlock's own driver is psycopg 3, so write postgresql://"
            if driver.startswith("postgresql+")
            else "DATABASE_URL must begin with postgresql://"
        )
    return url


def misspelt(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, the setting that was probably meant) of each `INTERLOCK_…` that is no setting but looks like one."""
    prefix = str(Settings.model_config["env_prefix"])
    known = [f"{prefix}{name.upper()}" for name in Settings.model_fields]
    for name in names:
        if name.upper().startswith(prefix) and name.upper() not in known:
            from interlock.workflows.spelling import meant  # noqa: PLC0415 - likewise

            own = [each.removeprefix(prefix) for each in known]
            if near := meant(name.upper().removeprefix(prefix), own, cutoff=0.8):
                yield name, f"{prefix}{near}"


@cache
def settings() -> Settings:
    """This process's settings, read from the environment once. Variables that look misspelt are logged."""
    for name, meant in misspelt(os.environ):
        import structlog  # noqa: PLC0415 - slow, and rarely needed

        structlog.get_logger().warning("setting_unknown", variable=name, did_you_mean=meant)
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][0])
        name = where if where.isupper() else f"INTERLOCK_{where.upper()}"
        if name not in os.environ and (plain := name.removeprefix("INTERLOCK_")) in os.environ:
            name = plain
        value = shown_url(first["input"]) if where.lower().endswith(("_url", "_urls")) else repr(first["input"])
        raise BadInput(f"{name}: {schema_message(first)}; got {shown(value)}") from None  # the cause quotes the value
