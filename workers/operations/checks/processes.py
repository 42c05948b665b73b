"""Checks of the processes: beat, Redis, nodes, workers and the sandbox."""

from collections.abc import Iterator

from sqlalchemy import Connection, RowMapping

from interlock.beat.schedule import BY_NAME, OVERDUE_PERIODS, OVERDUE_SECONDS
from interlock.db.connection import transaction
from interlock.db.core import definitions, sweep_runs
from interlock.db.operations import health
from interlock.db.orchestration import workers
from interlock.workers.broker import nodes
from interlock.workers.broker.queues import SWEEPS, TRIGGERS
from interlock.workers.isolation import in_force
from interlock.workers.operations.checks.finding import LATE_SECONDS, Finding
from interlock.workers.pool.registration import AGENT, EXECUTE
from interlock.workers.runtime import Runtime
from interlock.workflows.output.suggestions import offered

OLDEST_SUPPORTED_REDIS = (6, 2)
SWEPT_SECONDS = 120.0  # a node that ran a sweep within this time is expected to answer
NEEDED = frozenset({TRIGGERS, SWEEPS})  # queues without which nothing moves
STARVING = 10  # at most this many workers, and tasks, are named


def late_sweeps(connection: Connection) -> dict[str, str]:
    """The overdue sweeps -> a text on how late each is."""
    ages = {row["name"]: float(row["age_seconds"]) for row in sweep_runs.last_runs(connection)}
    age_of_all = definitions.age_seconds(connection)  # a sweep that never ran is as late as the installation is old
    return {
        name: f"has not run for {ages[name]:.0f} s" if name in ages else "has never run"
        for name, sweep in BY_NAME.items()
        if ages.get(name, age_of_all) > max(OVERDUE_PERIODS * sweep.every_seconds, OVERDUE_SECONDS)
    }


def check_beat(runtime: Runtime) -> Iterator[Finding]:
    """Sweeps that are late."""
    with transaction(runtime.database) as connection:
        late = late_sweeps(connection)
    if not late:
        yield Finding("beat", "ok", "every sweep is on time")
        return
    message = f"sweeps are late: {', '.join(f'{name} {how}' for name, how in late.items())}"
    try:
        untaken = nodes.waiting(runtime.app, SWEEPS)
    except Exception:  # `check_workers` reports that the broker does not answer
        yield Finding("beat", "fail", message, "interlock status")
        return
    if untaken:  # beat works: its messages are in the queue
        message = f"no node consumes the queue `{SWEEPS}`, where beat's messages wait ({untaken}); {message}"
        yield Finding("beat", "fail", message, "interlock playbook show worker-takes-nothing")
    else:
        cure = "interlock status: is beat running? interlock playbook show beat-is-dead"
        yield Finding("beat", "fail", message, cure)


def check_redis(runtime: Runtime) -> Iterator[Finding]:
    """The version of Redis, and whether it may evict wake-ups."""
    if runtime.redis is None:
        message = "no Redis is set: there is no event bus and no event stream"
        yield Finding("redis", "warn", message, "set INTERLOCK_REDIS_URL")
        return
    info = runtime.redis.info()
    version = str(info.get("valkey_version") or info["redis_version"])
    old = "valkey_version" not in info and tuple(map(int, version.split(".")[:2])) < OLDEST_SUPPORTED_REDIS
    yield Finding("redis", "fail" if old else "ok", f"version {version}", "use Redis 6.2 or newer" if old else "")
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        message = f"maxmemory-policy is {info['maxmemory_policy']}: Redis may evict wake-ups"
        yield Finding("redis", "warn", message, "CONFIG SET maxmemory-policy noeviction")


def check_workers(runtime: Runtime) -> Iterator[Finding]:
    """Whether nodes answer for every queue that is needed."""
    with transaction(runtime.database) as connection:
        swept = any(each["age_seconds"] < SWEPT_SECONDS for each in sweep_runs.last_runs(connection))
    try:
        answers = nodes.queues_by_node(runtime.app, needed=NEEDED, expected=swept)
    except Exception as error:  # kombu raises what its transport raises: any of them means no answer
        yield Finding("workers", "fail", f"the broker does not answer: {error}", "interlock status")
        return
    if not answers:
        yield Finding("workers", "fail", "no worker answers", "interlock up --detach")
        return
    if untaken := NEEDED - frozenset().union(*answers.values()):
        queues = ", ".join(f"`{queue}`" for queue in sorted(untaken))
        message = f"no node that consumes {queues} answers; these nodes do: {', '.join(sorted(answers))}"
        yield Finding("workers", "fail", message, "interlock status; interlock playbook show worker-takes-nothing")
        return
    with transaction(runtime.database) as connection:
        waited = health.backlog(connection)["oldest_pending_seconds"] or 0.0
    if waited > LATE_SECONDS:  # a node may answer without consuming
        message = f"{len(answers)} nodes answer, but a due trigger has waited {waited:.0f} s: no node consumes it"
        yield Finding("workers", "fail", message, "interlock playbook show worker-takes-nothing")
    else:
        yield Finding("workers", "ok", f"{len(answers)} nodes answer: {', '.join(sorted(answers))}")


def check_crew(runtime: Runtime) -> Iterator[Finding]:
    """Workers that are silent or starving, and tasks that no worker can run."""
    chosen = runtime.settings
    with transaction(runtime.database) as connection:
        states = workers.count_by_state(connection)
        starving = workers.starving(
            connection,
            silent_seconds=chosen.silent_seconds,
            waited_seconds=chosen.starving_seconds,
            limit=STARVING,
        )
        unservable = workers.unservable(connection, waited_seconds=LATE_SECONDS, limit=STARVING)
    for row in starving:
        message = f"worker {row['name']} is alive but claims no task: {row['task']} has waited {row['seconds']:.0f} s"
        cure = f"restart its process: {offered('worker', 'show', row['name'])} shows its host and pid"
        yield Finding("crew", "warn", message, cure)
    if states.get("unresponsive"):
        message = f"{states['unresponsive']} workers do not answer; their tasks were returned to the queue"
        yield Finding("crew", "warn", message, "interlock worker list --state unresponsive")
    for row in unservable:
        more = f" (and {row['tasks'] - 1:,} more)" if row["tasks"] > 1 else ""
        message = f"no worker can run {row['task']}{more}, queued for {row['seconds']:.0f} s: {_wanting(row)}"
        cure = "set INTERLOCK_CAPABILITIES, `interlock worker register NAME --can …`, or correct the plan"
        yield Finding("crew", "warn", message, cure)
    if not (starving or unservable):
        known = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        yield Finding("crew", "ok", known or "no worker is registered")


def _wanting(row: RowMapping) -> str:
    """The reason why no worker can take a task."""
    lacking = list(row["lacking"])
    if EXECUTE in lacking:
        return "no worker process is registered"
    if AGENT in lacking:
        return "no agent is registered"
    if lacking:
        return f"no worker offers {', '.join(lacking)}"
    return "no worker offers all its capabilities and is allowed by its affinity"


def check_sandbox(runtime: Runtime) -> Iterator[Finding]:
    """Whether commands run in a sandbox."""
    for each in in_force.reported(runtime.settings):
        yield Finding("sandbox", each.level, each.message, each.cure)
