"""The table of parts: the processes of an installation, in the order they start."""

import signal
import urllib.request
from dataclasses import replace
from pathlib import Path

from interlock.db.schema import VARIABLE
from interlock.supervisor import orphans
from interlock.supervisor.environment import PYTHON, environment
from interlock.supervisor.home import Home
from interlock.supervisor.processes.fork import CAN_FORK
from interlock.supervisor.processes.spec import Part
from interlock.supervisor.servers import postgres, valkey
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.broker.queues import DELIVERIES, WORK
from interlock.workers.settings import Settings
from interlock.workers.system import process_privacy
from interlock.workers.system.users import Account

NODE = (*PYTHON, "-m", "interlock.workers.node")
LATE_NODE = (*PYTHON, "-m", "interlock.workers.late_node")
# Longer than the workers' soft shutdown, which returns their messages to the queue.
NODE_STOP_SECONDS = 25.0
SERVER_PARTS = ("postgres", "valkey")
OWNER_URL = "INTERLOCK_OWNER_URL"
FORK_SERVER = "interlock.cli.fork_server.listener"
API = "interlock.console"
BACKUPS = "interlock.supervisor.backup.schedule"
BACKUPS_STOP_SECONDS = 30.0  # a drill that is given up stops its PostgreSQL and deletes what it restored


# Its own are without what a task is about and what came of it. The last one opens the task's page.
FLOWER_COLUMNS = "name,args,state,result,received,runtime,worker,uuid"
NODES = ("triggers", "effects", "deliveries", "gates", "work")
KINDS = (*SERVER_PARTS, *NODES, "beat", "flower", "metrics", "api", "backups", "commands")


def parts(
    home: Home, settings: Settings, servers: Servers, account: Account | None, without: frozenset[str]
) -> list[Part]:
    """All parts of this run, in the order they start, except those whose kind or name is in `without`."""
    rows = [*server_parts(home, settings, servers, account), *celery_parts(home, settings, servers)]
    return [part for part in rows if not without & {part.name, _kind(part.name)}]


def _kind(name: str) -> str:
    """The kind of a part: of `triggers2` and `effects-mail` it is `triggers` and `effects`."""
    return name.partition("-")[0].rstrip("0123456789")


def server_parts(home: Home, settings: Settings, servers: Servers, account: Account | None) -> list[Part]:
    """The embedded servers of this run, without those that the user provides."""
    parts = []
    if settings.database_url is None:
        parts.append(_postgres(home, settings, servers, account))
    if settings.broker_url is None:
        parts.append(_valkey(home, settings, servers, account))
    return parts


def _postgres(home: Home, settings: Settings, servers: Servers, account: Account | None) -> Part:
    data, port = Path(servers.postgres_data or ""), servers.postgres_port or 0
    return Part(
        name="postgres",
        command=postgres.command(postgres.binaries(home, account), data, settings.host, port),
        environment={**postgres.ENVIRONMENT, orphans.MARK: str(home.path)},
        waits_for=lambda pid: postgres.waits_for(servers, data, pid),
        stop_signal=signal.SIGINT,  # fast shutdown: rolls back, writes a checkpoint
        stop_seconds=15.0,
        last_signal=signal.SIGQUIT,  # immediate shutdown: recovers at the next start
        before=lambda: orphans.end_backends(data),
        account=account,
        directory=data,
    )


def _valkey(home: Home, settings: Settings, servers: Servers, account: Account | None) -> Part:
    data, port = Path(servers.redis_data or ""), servers.redis_port or 0
    return Part(
        name="valkey",
        command=(str(valkey.binary(home, account)), "-"),
        environment={**postgres.ENVIRONMENT, orphans.MARK: str(home.path)},
        waits_for=lambda pid: valkey.waits_for(servers, pid),
        stop_seconds=5.0,
        stdin=valkey.configuration(data, settings.host, port, servers.redis_password),
        account=account,
        directory=data,
    )


def part_environment(home: Home, settings: Settings, servers: Servers) -> dict[str, str]:
    """The environment of every Celery part, with the secrets, to keep them out of `ps`."""
    return {
        **{name: value for name, value in environment(settings).items() if name != OWNER_URL},
        "DATABASE_URL": servers.database_url,
        "BROKER_URL": servers.broker_url,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(home.scratch),  # killed pools leave directories here, which the next start deletes
        orphans.MARK: str(home.path),
    }


def prepare_environment(home: Home, settings: Settings, servers: Servers) -> dict[str, str]:
    """The environment of `interlock migrate`, which alone acts as the schema's owner."""
    url = settings.owner_url or servers.database_url if settings.database_url else servers.owner_url
    return {**part_environment(home, settings, servers), OWNER_URL: url}


def celery_parts(home: Home, settings: Settings, servers: Servers) -> list[Part]:
    """Worker nodes, beat, Flower, the exporter, the API, the schedule of backups and the fork server of commands."""
    base = part_environment(home, settings, servers)
    triggers = [
        _node(home, base, f"triggers{number}", "triggers,sweeps", ("--pool", "solo"))
        for number in range(1, settings.trigger_nodes + 1)
    ]
    return [
        *triggers,
        _pool(home, base, "effects", "effects,evidence", settings.effect_processes),
        *(_pool(home, base, f"effects-{each}", each, settings.effect_processes) for each in settings.effect_queues),
        _deliveries(home, base, settings),
        _pool(home, base, "gates", "gates", settings.gate_processes),
        _work(home, base, settings),
        _beat(home, base),
        _flower(home, base, settings, servers),
        _metrics(home, base, settings, servers),
        _api(home, base, settings, servers),
        *([_backups(home, base)] if settings.backup_every_seconds and settings.database_url is None else []),
        *([_commands(home, base)] if CAN_FORK else []),
    ]


def _pool(home: Home, base: dict[str, str], name: str, queues: str, processes: int) -> Part:
    # SIGQUIT is a soft shutdown, which puts messages back (docs/celery.md). Nodes without a pool get SIGTERM, a warm
    # shutdown: their current task is short and finishes.
    return replace(_node(home, base, name, queues, ("-c", str(processes))), stop_signal=signal.SIGQUIT)


def _node(home: Home, base: dict[str, str], name: str, queues: str, pool: tuple[str, ...]) -> Part:
    worker = (
        "worker",
        "-n",
        f"{name}-{home.tag}@%h",  # several homes and several machines may share one broker
        "-Q",
        queues,
        *pool,
        "--without-gossip",  # nodes need not receive each other's heartbeats
        "--without-mingle",  # nor synchronize with each other at their start
        "--heartbeat-interval",  # for Flower, which considers a node alive for twice this time
        "10",
        "-E",
    )
    part = _reporting(home, name, (*NODE, *worker), base)
    return replace(part, stop_seconds=NODE_STOP_SECONDS)


def _deliveries(home: Home, base: dict[str, str], settings: Settings) -> Part:
    threads = ("--pool", "threads", "-c", str(settings.delivery_threads))
    node = _node(home, base, "deliveries", DELIVERIES, threads)
    return replace(node, command=(*LATE_NODE, *node.command[len(NODE) :]))


def _work(home: Home, base: dict[str, str], settings: Settings) -> Part:
    node = _pool(home, base, "work1", WORK, settings.work_processes)
    return replace(node, stop_seconds=NODE_STOP_SECONDS + settings.drain_seconds)


def _beat(home: Home, base: dict[str, str]) -> Part:
    return _reporting(home, "beat", (*NODE, "beat", "--schedule", str(home.beat_schedule)), base)


def _flower(home: Home, base: dict[str, str], settings: Settings, servers: Servers) -> Part:
    login = f"{servers.flower_user}:{servers.flower_password}"
    # Without --conf it would run a flowerconfig.py of its working directory.
    where = (f"--address={settings.host}", f"--port={servers.flower_port}")
    options = (*where, "--read-only", "--conf=/dev/null", f"--tasks-columns={FLOWER_COLUMNS}")
    return Part(
        name="flower",
        command=(*NODE, "flower", *options),
        environment={**base, "FLOWER_BASIC_AUTH": login},
        waits_for=lambda _pid: answers(f"{servers.flower_url}/healthcheck"),
    )


def _metrics(home: Home, base: dict[str, str], settings: Settings, servers: Servers) -> Part:
    command = (*NODE, "metrics", "--host", settings.host, "--port", str(servers.metrics_port))
    if settings.database_url is None:  # it cannot tell by its own DATABASE_URL that there are backups to watch
        base = base | {"INTERLOCK_BACKUP_DIRECTORY": str(settings.backups_directory)}
    return _reporting(home, "metrics", command, base)


def _api(home: Home, base: dict[str, str], settings: Settings, servers: Servers) -> Part:
    command = (*PYTHON, "-m", API, "--host", settings.api_host, "--port", str(servers.api_port))
    return _reporting(home, "api", command, base)


def _backups(home: Home, base: dict[str, str]) -> Part:
    return replace(_reporting(home, "backups", (*PYTHON, "-m", BACKUPS), base), stop_seconds=BACKUPS_STOP_SECONDS)


def _commands(home: Home, base: dict[str, str]) -> Part:
    """Its forks run what their callers ask for, so it has neither the supervisor's memory nor its environment.

    The mark is in the command line, because the forks, which `interlock down` does not end, keep its environment.
    """
    mark, directory = process_privacy.marked(home.path, process_privacy.SUPERVISOR), home.ready_file("commands").parent
    kept = {name: base[name] for name in (VARIABLE, "PYTHONPATH", "PYTHONSAFEPATH") if name in base}
    command = (*PYTHON, *mark, "-m", FORK_SERVER, str(directory))
    return replace(_reporting(home, "commands", command, {**kept, "LC_ALL": "C.UTF-8"}), executed=True)


def _reporting(home: Home, name: str, command: tuple[str, ...], environment: dict[str, str]) -> Part:
    """A part that creates a file once it is ready."""
    ready = home.ready_file(name)
    return Part(
        name=name,
        command=command,
        environment={**environment, "INTERLOCK_READY_FILE": str(ready)},
        waits_for=lambda _pid: None if ready.exists() else "has not reported ready yet",
        before=lambda: ready.unlink(missing_ok=True),
    )


def answers(url: str) -> str | None:
    """None if our HTTP server answers `url` with success, else the reason."""
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own loopback address
            return None
    except OSError as refused:
        return f"no answer: {refused}"
