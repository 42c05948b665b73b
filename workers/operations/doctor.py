"""Checks every part of an installation: what is wrong, why it matters, and which command would help."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from redis.exceptions import RedisError
from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import DBAPIError

from interlock.beat.schedule import BY_NAME, OVERDUE_PERIODS, OVERDUE_SECONDS
from interlock.db import migrate
from interlock.db.audit import anchors, verification
from interlock.db.connection import transaction
from interlock.db.core import definitions, deprecations, history, requests, stalled_partitions, sweep_runs
from interlock.db.operations import health, instance_migration, invariants, operators, protections, stuck
from interlock.db.orchestration import workers
from interlock.db.schema import SCHEMA
from interlock.workers.broker import nodes
from interlock.workers.broker.queues import SWEEPS, TRIGGERS
from interlock.workers.engine.deprecations import deprecation_warning
from interlock.workers.isolation import in_force
from interlock.workers.operations.stuck.facts import span
from interlock.workers.pool.registration import AGENT, EXECUTE
from interlock.workers.relay.destinations import destinations
from interlock.workers.relay.journal_check import inspect
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import NotRunning
from interlock.workflows.output.suggestions import offered
from interlock.workflows.output.urls import without_users

OLDEST_SUPPORTED_POSTGRES = 150_000
OLDEST_SUPPORTED_REDIS = (6, 2)
LATE_SECONDS = 10.0  # a due trigger older than this is overdue, not on its way
SWEPT_SECONDS = 120.0  # a node that ran a sweep within this time is expected to answer
NEEDED = frozenset({TRIGGERS, SWEEPS})  # queues without which nothing moves
CONTRADICTIONS = 10  # at most this many entities are named
OVERDUE_ANCHORS = 3  # periods
STARVING = 10  # at most this many workers, and tasks, are named

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `cure`: the command or setting that would help."""

    check: str
    level: Level
    message: str
    cure: str = ""


def examine(runtime: Runtime) -> list[Finding]:
    """Run every check. Nothing is changed, and a part that is down is a finding, not an error."""
    findings: list[Finding] = []
    for name, check in CHECKS:
        try:
            findings += check(runtime)
        except (DBAPIError, RedisError, OSError, NotRunning) as error:
            reason = without_users(str(getattr(error, "orig", None) or error).strip().splitlines()[0])
            findings.append(Finding(name, "fail", f"no answer: {reason}", "interlock status; interlock up --detach"))
    return findings


def _database(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        server = health.server(connection)
        old = server["number"] < OLDEST_SUPPORTED_POSTGRES
        cure = "use 15 or newer" if old else ""
        yield Finding("database", "fail" if old else "ok", f"PostgreSQL {server['version']}", cure)
        if server["fsync"] != "on" or server["synchronous_commit"] == "off":
            cure = "set fsync = on and synchronous_commit = on in postgresql.conf"
            yield Finding("durability", "warn", "commits are not flushed to disk", cure)
        yield _login(connection)
        yield _schema(connection)
        yield _recorded(connection, runtime)
        yield _protection(connection)


def _protection(connection: Connection) -> Finding:
    off = protections.switched_off(connection)
    current, newest = migrate.revision(connection)
    gone = protections.missing(connection) if current == newest else []
    if not (off or gone):
        return Finding("protection", "ok", "every protecting trigger is on")
    named = [f"{table}.{trigger}" for table, triggers in off.items() for trigger in triggers]
    message = [f"protecting triggers are switched off: {', '.join(named)}"] if off else []
    message += [f"protecting triggers were dropped: {', '.join(gone)}"] if gone else []
    cure = [
        f"ALTER TABLE {SCHEMA}.{table} {', '.join(f'ENABLE ALWAYS TRIGGER {trigger}' for trigger in triggers)}"
        for table, triggers in off.items()
    ]
    cure += ["interlock playbook show audit-finding"] if gone else []
    return Finding("protection", "fail", "; ".join(message), "; ".join([*cure, "then `interlock audit verify`"]))


def _login(connection: Connection) -> Finding:
    role = health.login(connection)
    if not role["superuser"]:
        return Finding("role", "ok", f"{role['name']} is not a superuser")
    name = '"' + role["name"].replace('"', '""') + '"'
    message = f"Interlock logs in as {role['name']}, a superuser: its SQL can run programs on the database's machine"
    if role["first"]:  # PostgreSQL never lets this role lose the attribute
        cure = (
            "restore a `pg_dump --no-owner` into a new role's own database, and set DATABASE_URL to that: "
            "CREATE ROLE interlock_owner LOGIN PASSWORD '…'; CREATE DATABASE interlock_owned OWNER interlock_owner"
        )
    else:
        cure = f"as another superuser: ALTER ROLE {name} NOSUPERUSER"
    return Finding("role", "warn", message, cure)


def _schema(connection: Connection) -> Finding:
    current, newest = migrate.revision(connection)
    if current == newest:
        return Finding("schema", "ok", f"{SCHEMA}, revision {current}")
    return Finding("schema", "fail", f"{SCHEMA}, revision {current}, newest {newest}", "interlock migrate")


def _recorded(connection: Connection, runtime: Runtime) -> Finding:
    if differing := definitions.unrecorded(connection, runtime.catalogue):
        message = f"the database lacks these definitions, or has other content: {', '.join(differing)}"
        return Finding("definitions", "fail", message, "interlock migrate")
    return Finding("definitions", "ok", f"{len(definitions.listed(connection))} recorded")


def _changes(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        announced = deprecations.listed(connection)
        lost = [
            f"{type_} {version} ({live} live)"
            for type_, version, live in instance_migration.live_versions(connection)
            if (type_, version) not in runtime.catalogue
        ]
    if lost:
        message = f"instances use definition versions that this process does not have: {', '.join(lost)}"
        cure = "add their module to INTERLOCK_DEFINITIONS, or interlock definitions migrate"
        yield Finding("changes", "fail", message, cure)
    used = [row for row in announced if row["live"] and not row["removed_at"]]
    for row in used[:STARVING]:
        use = f"{row['live']} live instances use it, {row['uses']} uses since it was announced"
        message = f"{deprecation_warning(dict(row))}; {use}"
        yield Finding("changes", "warn", message, row["guide"] or "interlock definitions deprecated")
    if not (used or lost):
        yield Finding("changes", "ok", f"{len(announced)} deprecations, none in use")


def _backlog(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        waits, left = health.backlog(connection), requests.unrevived(connection)
    oldest = max(waits["oldest_pending_seconds"] or 0.0, waits["oldest_overdue_seconds"] or 0.0)
    message = (
        f"{waits['pending']} pending, oldest {oldest:.1f} s; {waits['waiting']} held; {waits['retrying']} retrying"
    )
    if oldest > LATE_SECONDS:
        yield Finding("backlog", "fail", message, "interlock status: are workers and beat running?")
    else:
        yield Finding("backlog", "ok", message)
    if waits["dead"]:
        yield _dead(waits["dead"], {why: len(ids) for why, ids in left.items()})
    if waits["dead_effects"]:
        message = f"{waits['dead_effects']} effects used up their attempts"
        yield Finding("effects", "warn", message, "interlock dead; interlock redrive --all")
    if (untaken := waits["oldest_untaken_effect_seconds"] or 0.0) > LATE_SECONDS:
        message = f"an effect has been due for {untaken:.0f} s, and no node is running any of its kind"
        yield Finding("effects", "fail", message, "interlock status: are the nodes `effects` and `gates` running?")
    if waits["expired_leases"]:
        message = f"{waits['expired_leases']} effects' leases expired and were not released"
        yield Finding("leases", "warn", message, "interlock status: is beat running?")


def _dead(dead: int, left: Mapping[str, int]) -> Finding:
    quarantined, unreadable = left[requests.QUARANTINED], left[requests.UNREADABLE]
    tried = dead - quarantined - unreadable
    counts = [
        (tried, f"{tried} requests used up their attempts", "interlock redrive --all"),
        (quarantined, f"{quarantined} are quarantined", "once the cause is fixed: interlock redrive ID"),
        (unreadable, f"{unreadable} cannot be read", "interlock quarantine request ID --reason WHY"),
    ]
    reported = [(message, cure) for count, message, cure in counts if count]
    cure = "; ".join(["interlock dead", *(cure for _, cure in reported)])
    return Finding("dead", "warn", ", ".join(message for message, _ in reported), cure)


def _partitions(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        stalled, late = stalled_partitions.stalled(connection), _late_sweeps(connection).get("partitions")
    for row in stalled:
        name = f"{row['workflow_type']}/{row['entity_id']} {row['trigger']}"
        how = "; its requests are now being applied one by one" if row["alone"] else ""
        message = f"partition {row['partition']} is blocked: its oldest request, {row['request_id']} ({name}), "
        message += f"has not been applied for {row['seconds']:.0f} s{how}"
        yield Finding("partitions", "fail", message, "interlock playbook show partition-stuck")
    if stalled:
        return
    if late is None:
        yield Finding("partitions", "ok", "no partition is blocked")
    else:
        message = f"unknown: the sweep `partitions`, which checks this, {late}"
        yield Finding("partitions", "warn", message, "see `beat` and `workers`; interlock status")


def _relay(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        lags = {each.name: history.lag_seconds(connection, each.name) for each in destinations(runtime)}
    message = ", ".join(f"{name} {lag:.1f} s behind" for name, lag in lags.items())
    if max(lags.values()) > LATE_SECONDS:
        cure = "interlock status: is beat running? `relay_failed` in the log of the `triggers` node gives the reason"
        yield Finding("relay", "warn", message, cure)
    else:
        yield Finding("relay", "ok", message)


def _late_sweeps(connection: Connection) -> dict[str, str]:
    """The overdue sweeps -> a text on how late each is."""
    ages = {row["name"]: float(row["age_seconds"]) for row in sweep_runs.last_runs(connection)}
    age_of_all = definitions.age_seconds(connection)  # a sweep that never ran is as late as the installation is old
    return {
        name: f"has not run for {ages[name]:.0f} s" if name in ages else "has never run"
        for name, sweep in BY_NAME.items()
        if ages.get(name, age_of_all) > max(OVERDUE_PERIODS * sweep.every_seconds, OVERDUE_SECONDS)
    }


def _beat(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        late = _late_sweeps(connection)
    if not late:
        yield Finding("beat", "ok", "every sweep is on time")
        return
    message = f"sweeps are late: {', '.join(f'{name} {how}' for name, how in late.items())}"
    try:
        untaken = nodes.waiting(runtime.app, SWEEPS)
    except Exception:  # `_workers` reports that the broker does not answer
        yield Finding("beat", "fail", message, "interlock status")
        return
    if untaken:  # beat works: its messages are in the queue
        message = f"no node consumes the queue `{SWEEPS}`, where beat's messages wait ({untaken}); {message}"
        yield Finding("beat", "fail", message, "interlock playbook show worker-takes-nothing")
    else:
        cure = "interlock status: is beat running? interlock playbook show beat-is-dead"
        yield Finding("beat", "fail", message, cure)


def _redis(runtime: Runtime) -> Iterator[Finding]:
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


def _workers(runtime: Runtime) -> Iterator[Finding]:
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


def _crew(runtime: Runtime) -> Iterator[Finding]:
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


def _journal(runtime: Runtime) -> Iterator[Finding]:
    if not runtime.settings.journal:
        yield Finding("journal", "ok", "switched off (INTERLOCK_JOURNAL)")
        return
    with transaction(runtime.database) as connection:
        yield from (Finding("journal", *trouble) for trouble in inspect(connection, runtime.settings.state_directory))


def _verification(runtime: Runtime) -> Iterator[Finding]:
    every_seconds = runtime.settings.verify_seconds
    with transaction(runtime.database) as connection:
        known, age = verification.known(connection), definitions.age_seconds(connection)
    ended = next((each for each in known if each["finished_at"]), None)
    age = ended["age_seconds"] if ended else age
    if found := [problem for each in known for problem in each["found"]]:
        first = f"{found[0]['instance']}" + ("" if found[0]["seq"] is None else f", event {found[0]['seq']}")
        message = f"history was changed in {sum(each['problems'] for each in known)} places, first {first}"
        yield Finding(
            "verification", "fail", f"{message}: {found[0]['message']}", "interlock playbook show audit-finding"
        )
    elif every_seconds == 0:
        yield Finding("verification", "ok", "history is verified on request only (INTERLOCK_VERIFY_SECONDS=0)")
    elif age > 2 * every_seconds:
        message = f"history was last verified as a whole {span(age)} ago"
        yield Finding("verification", "warn", message, "interlock audit verify; is beat up?")
    elif ended:
        yield Finding("verification", "ok", f"{ended['instances']} instances were verified {span(age)} ago")
    else:
        yield Finding("verification", "ok", "the first verification is under way")


def _anchors(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        seconds = anchors.uncovered_seconds(connection)
    if seconds > OVERDUE_ANCHORS * runtime.settings.anchor_seconds:
        message = (
            f"events of the last {seconds / 3600:.1f} h have no anchor: nothing would show that the newest were deleted"
        )
        yield Finding("anchors", "warn", message, "interlock audit anchor: makes one, or prints why it cannot")
    else:
        yield Finding("anchors", "ok", f"events of the last {seconds:.0f} s are not anchored yet")


def _operators(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        ends = [row["until"] for row in operators.grants(connection)]
    if not ends:
        message = "nobody is an operator: nothing can be overridden, rolled back or migrated"
        yield Finding("operators", "warn", message, "interlock operator grant NAME")
    elif None not in ends:
        message = f"every operator's grant expires: from {max(ends):%Y-%m-%d %H:%M} UTC nobody is an operator"
        yield Finding("operators", "warn", message, "interlock operator grant NAME, without --until")
    else:
        yield Finding("operators", "ok", f"{len(ends)} operators")


def _invariants(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        found = invariants.broken(connection, limit=CONTRADICTIONS)
    for row in found:
        message = f"{row['workflow_type']} {row['entity_id']} {row['message']} ({row['rule']})"
        yield Finding("invariants", "fail", message, "interlock audit verify; interlock playbook show invalid-state")
    if not found:
        yield Finding("invariants", "ok", "no instance contradicts another")


def _stuck(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        found = stuck.count_by_type(connection)
    message = ", ".join(f"{count} {type_}" for type_, count in sorted(found.items()))
    if message:
        yield Finding("stuck", "warn", f"stuck: {message}", "interlock stuck")
    else:
        yield Finding("stuck", "ok", "nothing is stuck")


def _sandbox(runtime: Runtime) -> Iterator[Finding]:
    for each in in_force.reported(runtime.settings):
        yield Finding("sandbox", each.level, each.message, each.cure)


CHECKS: tuple[tuple[str, Callable[[Runtime], Iterator[Finding]]], ...] = (
    ("database", _database),
    ("changes", _changes),
    ("backlog", _backlog),
    ("partitions", _partitions),
    ("relay", _relay),
    ("beat", _beat),
    ("redis", _redis),
    ("workers", _workers),
    ("sandbox", _sandbox),
    ("crew", _crew),
    ("journal", _journal),
    ("anchors", _anchors),
    ("verification", _verification),
    ("operators", _operators),
    ("stuck", _stuck),
    ("invariants", _invariants),
)
