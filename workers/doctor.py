"""Look at every part and say what is wrong, why it matters, and which command would help."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from redis.exceptions import RedisError
from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import DBAPIError

from beat.schedule import BY_NAME, OVERDUE_PERIODS, OVERDUE_SECONDS
from db import (
    anchors,
    definitions,
    deprecations,
    health,
    history,
    invariants,
    migrate,
    operators,
    roster,
    stuck,
    sweeps,
    versions,
)
from db.connect import transaction
from workers.crew.member import AGENT, EXECUTE
from workers.deprecations import says as told
from workers.destinations import destinations
from workers.journal_health import inspect
from workers.runtime import Runtime
from workflows.errors import NotRunning
from workflows.export import checksum

OLDEST_SUPPORTED_POSTGRES = 150_000
OLDEST_SUPPORTED_REDIS = (6, 2)
LATE_SECONDS = 10.0  # a due trigger older than this is not on its way any more
PING_SECONDS = 1.0
CONTRADICTIONS = 10  # entities named at most
OVERDUE_ANCHORS = 3  # periods
STARVING = 10  # workers, and tasks, named at most

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's answer; `cure` is the command or setting that would help."""

    check: str
    level: Level
    says: str
    cure: str = ""


def examine(runtime: Runtime) -> list[Finding]:
    """Run every check. Nothing is changed, and a part that is down is a finding, not an error."""
    findings: list[Finding] = []
    for name, check in CHECKS:
        try:
            findings += check(runtime)
        except (DBAPIError, RedisError, OSError, NotRunning) as error:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            findings.append(Finding(name, "fail", f"no answer: {reason}", "interlock status; interlock up --detach"))
    return findings


def _database(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        server = health.server(connection)
        old = server["number"] < OLDEST_SUPPORTED_POSTGRES
        yield Finding(
            "database", "fail" if old else "ok", f"PostgreSQL {server['version']}", "use 15 or newer" if old else ""
        )
        if server["fsync"] != "on" or server["synchronous_commit"] == "off":
            yield Finding("durability", "warn", "commits are not flushed to disk", "SET fsync, synchronous_commit = on")
        yield _schema(connection)
        yield _recorded(connection, runtime)
        off = health.unprotected(connection)
        says = f"protecting triggers are switched off: {', '.join(off)}" if off else "history is protected"
        cure = "ALTER TABLE … ENABLE ALWAYS TRIGGER …, then `interlock audit verify`" if off else ""
        yield Finding("protection", "fail" if off else "ok", says, cure)


def _schema(connection: Connection) -> Finding:
    current, newest = migrate.revision(connection)
    if current == newest:
        return Finding("schema", "ok", f"revision {current}")
    return Finding("schema", "fail", f"revision {current}, newest {newest}", "interlock migrate")


def _recorded(connection: Connection, runtime: Runtime) -> Finding:
    recorded = {(row["type"], row["version"]): row["checksum"] for row in definitions.listed(connection)}
    differing = [
        f"{each.type} {each.version}"
        for each in runtime.catalogue
        if recorded.get((each.type, each.version)) != checksum(each)
    ]
    if differing:
        return Finding(
            "definitions", "fail", f"not recorded as this process knows them: {differing}", "interlock migrate"
        )
    return Finding("definitions", "ok", f"{len(recorded)} recorded")


def _changes(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        announced = deprecations.listed(connection)
        lost = [
            f"{type_} {version} ({live} live)"
            for type_, version, live in versions.live_versions(connection)
            if (type_, version) not in runtime.catalogue
        ]
    if lost:
        says = f"instances live under versions that this process does not know: {', '.join(lost)}"
        yield Finding("changes", "fail", says, "INTERLOCK_DEFINITIONS; or interlock definitions migrate")
    used = [row for row in announced if row["live"] and not row["removed_at"]]
    for row in used[:STARVING]:
        says = f"{told(dict(row))}; {row['live']} instances are there, used {row['uses']} times since"
        yield Finding("changes", "warn", says, row["guide"] or "interlock definitions deprecated")
    if not (used or lost):
        yield Finding("changes", "ok", f"{len(announced)} deprecations, none of them in use")


def _backlog(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        waits = health.backlog(connection)
    oldest = max(waits["oldest_pending_seconds"] or 0.0, waits["oldest_overdue_seconds"] or 0.0)
    says = f"{waits['pending']} pending, oldest {oldest:.1f} s; {waits['waiting']} held; {waits['retrying']} in retry"
    late = oldest > LATE_SECONDS
    yield Finding(
        "backlog", "fail" if late else "ok", says, "interlock status: are workers and beat up?" if late else ""
    )
    if waits["dead"]:
        yield Finding(
            "dead", "warn", f"{waits['dead']} requests used up their attempts", "interlock dead; interlock redrive"
        )
    if waits["dead_effects"]:
        yield Finding(
            "effects",
            "warn",
            f"{waits['dead_effects']} effects used up their attempts",
            "interlock dead; interlock redrive",
        )
    if (untaken := waits["oldest_untaken_effect_seconds"] or 0.0) > LATE_SECONDS:
        says = f"an effect has been due for {untaken:.0f} s, and none of its kind is at work"
        yield Finding("effects", "fail", says, "interlock status: are the nodes `effects` and `gates` up?")
    if waits["expired_leases"]:
        yield Finding(
            "leases", "warn", f"{waits['expired_leases']} leases ran out and were not taken back", "is beat up?"
        )


def _relay(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        lags = {each.name: history.lag_seconds(connection, each.name) for each in destinations(runtime)}
    says = ", ".join(f"{name} {lag:.1f} s behind" for name, lag in lags.items())
    if max(lags.values()) > LATE_SECONDS:
        yield Finding("relay", "warn", says, "is beat up? `relay_failed` in the log of the triggers' node says why")
    else:
        yield Finding("relay", "ok", says)


def _beat(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        ages = {row["name"]: float(row["age_seconds"]) for row in sweeps.last_runs(connection)}
        age_of_all = definitions.age_seconds(connection)  # one that never ran is as late as the installation is old
    silent = [
        f"{name} ({ages[name]:.0f} s ago)" if name in ages else f"{name} (never)"
        for name, sweep in BY_NAME.items()
        if ages.get(name, age_of_all) > max(OVERDUE_PERIODS * sweep.every_seconds, OVERDUE_SECONDS)
    ]
    if silent:
        cure = "interlock status; start beat: celery -A workers.main beat"
        yield Finding("beat", "fail", f"sweeps have not run: {', '.join(silent)}", cure)
    else:
        yield Finding("beat", "ok", f"{len(ages)} sweeps on time")


def _redis(runtime: Runtime) -> Iterator[Finding]:
    if runtime.redis is None:
        yield Finding("redis", "warn", "no Redis: no event bus, no stream", "set INTERLOCK_REDIS_URL")
        return
    info = runtime.redis.info()
    version = str(info.get("valkey_version") or info["redis_version"])
    old = "valkey_version" not in info and tuple(map(int, version.split(".")[:2])) < OLDEST_SUPPORTED_REDIS
    yield Finding("redis", "fail" if old else "ok", f"version {version}", "use Redis 6.2 or newer" if old else "")
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        says = f"maxmemory-policy is {info['maxmemory_policy']}: hints may be evicted"
        yield Finding("redis", "warn", says, "CONFIG SET maxmemory-policy noeviction")


def _workers(runtime: Runtime) -> Iterator[Finding]:
    try:
        answers = runtime.app.control.inspect(timeout=PING_SECONDS).ping() or {}
    except Exception as error:  # kombu raises what its transport raises: any of them means no answer
        yield Finding("workers", "fail", f"the broker does not answer: {error}", "interlock status")
        return
    if not answers:
        yield Finding("workers", "fail", "no worker answers", "interlock up --detach")
        return
    with transaction(runtime.database) as connection:
        waited = health.backlog(connection)["oldest_pending_seconds"] or 0.0
    if waited > LATE_SECONDS:  # to answer is not to consume
        says = f"{len(answers)} nodes answer, yet a due trigger has waited {waited:.0f} s: they take nothing"
        yield Finding("workers", "fail", says, "interlock playbook show worker-takes-nothing")
    else:
        yield Finding("workers", "ok", f"{len(answers)} nodes answer: {', '.join(sorted(answers))}")


def _crew(runtime: Runtime) -> Iterator[Finding]:
    chosen = runtime.settings
    with transaction(runtime.database) as connection:
        states = roster.count_by_state(connection)
        starving = roster.starving(
            connection,
            silent_seconds=chosen.silent_seconds,
            waited_seconds=chosen.starving_seconds,
            limit=STARVING,
        )
        unservable = roster.unservable(connection, waited_seconds=LATE_SECONDS, limit=STARVING)
    for row in starving:
        says = f"worker {row['name']} is alive but takes nothing: {row['task']} has waited {row['seconds']:.0f} s"
        cure = f"restart its process: `interlock worker show {row['name']}` has its host and pid"
        yield Finding("crew", "warn", says, cure)
    if states.get("unresponsive"):
        says = f"{states['unresponsive']} workers do not answer; what they held was given back"
        yield Finding("crew", "warn", says, "interlock worker list --state unresponsive")
    for row in unservable:
        more = f" (and {row['tasks'] - 1:,} more)" if row["tasks"] > 1 else ""
        says = f"no worker could ever take {row['task']}{more}, queued for {row['seconds']:.0f} s: {_wanting(row)}"
        cure = "INTERLOCK_CAPABILITIES, `interlock worker register NAME --can …`, or mend the plan"
        yield Finding("crew", "warn", says, cure)
    if not (starving or unservable):
        known = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        yield Finding("crew", "ok", known or "no worker is registered")


def _wanting(row: RowMapping) -> str:
    """What keeps everybody from a task."""
    lacking = list(row["lacking"])
    if EXECUTE in lacking:
        return "no worker process is registered"
    if AGENT in lacking:
        return "no agent is registered"
    if lacking:
        return f"nobody offers {', '.join(lacking)}"
    return "nobody offers all it requires and may take it (affinity)"


def _journal(runtime: Runtime) -> Iterator[Finding]:
    if not runtime.settings.journal:
        yield Finding("journal", "ok", "not kept (INTERLOCK_JOURNAL)")
        return
    with transaction(runtime.database) as connection:
        yield from (Finding("journal", *trouble) for trouble in inspect(connection, runtime.settings.state_directory))


def _anchors(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        seconds = anchors.uncovered_seconds(connection)
    if seconds > OVERDUE_ANCHORS * runtime.settings.anchor_seconds:
        says = f"no anchor for {seconds / 3600:.1f} h, though history went on: a tail that is cut would not show"
        yield Finding("anchors", "warn", says, "interlock audit anchor says what is in the way")
    else:
        yield Finding("anchors", "ok", f"the newest event waits for one since {seconds:.0f} s")


def _operators(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        ends = [row["until"] for row in operators.grants(connection)]
    if not ends:
        says = "nobody is an operator: nothing can be overridden, rolled back or migrated"
        yield Finding("operators", "warn", says, "interlock operator grant NAME")
    elif None not in ends:
        says = f"from {max(ends):%Y-%m-%d %H:%M} UTC on nobody is an operator: every grant ends"
        yield Finding("operators", "warn", says, "interlock operator grant NAME, without --until")
    else:
        yield Finding("operators", "ok", f"{len(ends)} may override")


def _invariants(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        found = invariants.broken(connection, limit=CONTRADICTIONS)
    for row in found:
        says = f"{row['workflow_type']} {row['entity_id']} {row['says']} ({row['rule']})"
        yield Finding("invariants", "fail", says, "interlock audit verify; interlock playbook show invalid-state")
    if not found:
        yield Finding("invariants", "ok", "no entity contradicts another")


def _stuck(runtime: Runtime) -> Iterator[Finding]:
    with transaction(runtime.database) as connection:
        found = stuck.kept(connection)
    says = ", ".join(f"{count} {type_}" for type_, count in sorted(found.items()))
    if says:
        yield Finding("stuck", "warn", f"stand still for too long: {says}", "interlock stuck")
    else:
        yield Finding("stuck", "ok", "nothing stands still")


CHECKS: tuple[tuple[str, Callable[[Runtime], Iterator[Finding]]], ...] = (
    ("database", _database),
    ("changes", _changes),
    ("backlog", _backlog),
    ("relay", _relay),
    ("beat", _beat),
    ("redis", _redis),
    ("workers", _workers),
    ("crew", _crew),
    ("journal", _journal),
    ("anchors", _anchors),
    ("operators", _operators),
    ("stuck", _stuck),
    ("invariants", _invariants),
)
