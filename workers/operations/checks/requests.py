"""Checks of requests on their way: backlog, effects, partitions and the relay."""

from collections.abc import Iterator, Mapping
from time import sleep

from interlock.db.connection import transaction
from interlock.db.core import history, requests, stalled_partitions
from interlock.db.operations import health
from interlock.workers.operations.checks.finding import LATE_SECONDS, Finding
from interlock.workers.operations.checks.processes import late_sweeps
from interlock.workers.relay.destinations import destinations
from interlock.workers.runtime import Runtime
from interlock.workflows.output.counts import number_of

ROUND_SECONDS = 1.0  # most rounds hold their partition for some milliseconds


def check_backlog(runtime: Runtime) -> Iterator[Finding]:
    """Requests and effects that wait, are late, or are dead."""
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
        message = f"{number_of(waits['dead_effects'], 'effect')} used up their attempts"
        yield Finding("effects", "warn", message, "interlock dead; interlock redrive --all --reason WHY")
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
        (tried, f"{number_of(tried, 'request')} used up their attempts", "interlock redrive --all --reason WHY"),
        (quarantined, f"{quarantined} are quarantined", "once the cause is fixed: interlock redrive ID --reason WHY"),
        (unreadable, f"{unreadable} cannot be read", "interlock quarantine request ID --reason WHY"),
    ]
    reported = [(message, cure) for count, message, cure in counts if count]
    cure = "; ".join(["interlock dead", *(cure for _, cure in reported)])
    return Finding("dead", "warn", ", ".join(message for message, _ in reported), cure)


def check_partitions(runtime: Runtime) -> Iterator[Finding]:
    """Partitions in which nothing is applied."""
    with transaction(runtime.database) as connection:
        stalled, late = stalled_partitions.stalled(connection), late_sweeps(connection).get("partitions")
    for row in stalled:
        name = f"{row['workflow_type']}/{row['entity_id']} {row['trigger']}"
        how = "; its requests are now being applied one by one" if row["alone"] else ""
        message = f"partition {row['partition']} is blocked: its oldest request, {row['request_id']} ({name}), "
        message += f"has not been applied for {row['seconds']:.0f} s{how}"
        yield Finding("partitions", "fail", message, "interlock playbook show partition-stuck")
    held = [*_held(runtime)]
    yield from held
    if stalled or held:
        return
    if late is None:
        yield Finding("partitions", "ok", "no partition is blocked")
    else:
        message = f"unknown: the sweep `partitions`, which checks this, {late}"
        yield Finding("partitions", "warn", message, "see `beat` and `workers`; interlock status")


def _held(runtime: Runtime) -> Iterator[Finding]:
    """The sessions that keep partitions from being applied: others' at once, Interlock's after longer than a round."""
    with transaction(runtime.database) as connection:
        before = health.lock_holders(connection)
    if not before:
        return
    sleep(ROUND_SECONDS)
    with transaction(runtime.database) as connection:
        after = health.lock_holders(connection)
    for pid, row in after.items():
        held = sorted({*row["partitions"]} & {*(before[pid]["partitions"] if pid in before else ())})
        if not held:
            continue
        message = f"session {pid} of {row['login']} (application {row['application'] or 'unnamed'}) holds the locks of "
        message += f"{len(held)} of {requests.PARTITIONS} partitions: nothing is applied there meanwhile"
        if row["engine"]:
            cure = f"wait, unless it is no part of Interlock at work: SELECT pg_terminate_backend({pid})"
            yield Finding("partitions", "warn", message, cure)
        else:
            cure = f"as a superuser: SELECT pg_terminate_backend({pid}); ALTER ROLE {row['login']} NOLOGIN"
            yield Finding("partitions", "fail", message, cure)


def check_relay(runtime: Runtime) -> Iterator[Finding]:
    """How far the relay is behind."""
    with transaction(runtime.database) as connection:
        lags = {each.name: history.lag_seconds(connection, each.name) for each in destinations(runtime)}
    message = ", ".join(f"{name} {lag:.1f} s behind" for name, lag in lags.items())
    if max(lags.values()) > LATE_SECONDS:
        cure = "interlock status: is beat running? `relay_failed` in the log of the `triggers` node gives the reason"
        yield Finding("relay", "warn", message, cure)
    else:
        yield Finding("relay", "ok", message)
