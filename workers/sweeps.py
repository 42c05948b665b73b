"""Runs sweeps in a worker, each once per period however many ask, and publishes what they found."""

import time
from collections.abc import Callable, Mapping

from celery.exceptions import SoftTimeLimitExceeded
from sqlalchemy.exc import DBAPIError

from interlock.beat import heartbeats, sweeps
from interlock.beat.schedule import BY_NAME
from interlock.db.connection import retryable, single_statements, transaction
from interlock.db.core import archive, counters, requests, schedules, stalled_partitions, subscriptions, sweep_runs
from interlock.workers import brakes
from interlock.workers.audit import anchor_copies, anchors, exports
from interlock.workers.audit.verification import compare_evidence, verify_some
from interlock.workers.operations.archiver import archive_ended, rules_of
from interlock.workers.operations.stuck.sweep import report
from interlock.workers.relay.destinations import destinations
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.stalled_partitions import rescue

PRUNE_SECONDS = 30.0  # per run: after a longer one, the task's time limit would kill it in mid-batch
SUBSCRIPTIONS = 500  # that one run wakes
ARCHIVE_SECONDS = 30.0  # per run; the next continues where it stopped


def run(runtime: Runtime, *names: str) -> dict[str, int]:
    """Run the sweeps that are due, in this order. If one fails, the others still run.

    Returns:
        Name -> how much it found, for those that no other message ran in their present period.

    Raises:
        KeyError: no such sweep.
        DBAPIError: the database is unreachable; the next period tries again.
        ExceptionGroup: the errors, once all sweeps have run.
    """
    found, took, faults = dict[str, int](), dict[str, float](), list[Exception]()
    with single_statements(runtime.database) as connection:
        claimed = sweep_runs.begin(connection, {name: BY_NAME[name].every_seconds for name in names})
    for name in filter(claimed.__contains__, names):
        began = time.monotonic()
        try:
            found[name] = SWEEPS[name](runtime)
        except Exception as fault:  # raised below
            fault.add_note(f"in the sweep {name!r}")
            faults.append(fault)
            if isinstance(fault, SoftTimeLimitExceeded) or retryable(fault):
                break  # no time, or no database, for the others either: they wait for the next period
        took[name] = time.monotonic() - began
    try:
        with single_statements(runtime.database) as connection:
            sweep_runs.end(connection, {name: (found[name], took[name]) for name in found})
    except DBAPIError as fault:
        faults.append(fault)
    if faults:
        raise ExceptionGroup(f"{len(faults)} of {len(names)} sweeps failed", faults)
    return found


def _dispatch(runtime: Runtime) -> int:
    with single_statements(runtime.database) as connection:
        due = sweeps.dispatch(connection, silent_seconds=runtime.settings.silent_seconds)
    runtime.wakeups.partitions(due.partitions)
    runtime.wakeups.overdue_effects(due.effects)
    runtime.wakeups.runs(str(run_id) for run_id in due.runs)
    runtime.wakeups.work(due.free_workers)
    return due.woken + len(due.partitions)


def _schedules(runtime: Runtime) -> int:
    with single_statements(runtime.database) as connection:
        if not schedules.any_due(connection):
            return 0
    from interlock.workers.schedules.firing import fire_due  # noqa: PLC0415 - nodes without schedules never need it

    return fire_due(runtime)


def _partitions(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        stalled = stalled_partitions.watch(connection)
    for partition in stalled:
        rescue(runtime, partition)
    return len(stalled)


def _heartbeats(runtime: Runtime) -> int:
    chosen, relieved = runtime.settings, 0
    while True:  # a transaction per batch, so that no heartbeat waits long behind it
        with transaction(runtime.database) as connection:
            found, fired = heartbeats.heartbeats(
                connection, silent_seconds=chosen.silent_seconds, gone_seconds=chosen.recovery_seconds
            )
        runtime.wakeups.partitions(fired)
        relieved += found
        if found == 0:
            return relieved


def _leases(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        again = sweeps.leases(connection, max_attempts=runtime.settings.max_attempts, own_attempts=runtime.own_attempts)
    runtime.wakeups.effects(again)
    return len(again)


def _subscriptions(runtime: Runtime) -> int:
    with single_statements(runtime.database) as connection:
        due = subscriptions.due(connection, limit=SUBSCRIPTIONS)
    runtime.wakeups.deliveries(due)
    return len(due)


def _metrics(runtime: Runtime) -> int:
    folded = 0
    while True:
        with transaction(runtime.database) as connection:
            batch = counters.fold(connection)
        folded += batch
        if batch < counters.FOLD_BATCH:
            return folded


def _jobs(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        fired, waiting = sweeps.end_stranded(connection), sweeps.servable_jobs(connection)
    for job in waiting:
        with transaction(runtime.database) as connection:
            fired += sweeps.start_job(connection, job)
    with transaction(runtime.database) as connection:
        partitions = requests.partitions_due(connection) if fired else ()
    runtime.wakeups.partitions(partitions)
    return fired


def _stuck(runtime: Runtime) -> int:
    found, effects_due = report(runtime)
    runtime.wakeups.effects(effects_due)
    return found


def _anchor(runtime: Runtime) -> int:
    try:
        return anchors.anchor(runtime) if anchors.due(runtime) else 0
    finally:
        anchor_copies.copy_all(runtime)


def _export(runtime: Runtime) -> int:
    done = exports.export(runtime) if exports.due(runtime) else None
    return done.events if done else 0


def _archive(runtime: Runtime) -> int:
    rules = rules_of(runtime.settings)
    if rules is None:
        return 0
    with transaction(runtime.database) as connection:
        after = archive.position(connection)
    done = archive_ended(runtime.database, rules, after=after, budget_seconds=ARCHIVE_SECONDS)
    with transaction(runtime.database) as connection:
        archive.store_position(connection, done.after)
    return done.instances


def _prune(runtime: Runtime) -> int:
    chosen, pruned, until = runtime.settings, 0, time.monotonic() + PRUNE_SECONDS
    while True:  # a transaction per batch, so that nothing waits long behind it
        with transaction(runtime.database) as connection:
            batch = sweeps.prune(
                connection, keep_days=chosen.keep_finished_days, keep_effects_days=chosen.keep_effects_days
            )
        pruned += batch
        if batch == 0 or time.monotonic() > until:
            return pruned


SWEEPS: Mapping[str, Callable[[Runtime], int]] = {
    "dispatch": _dispatch,
    "schedules": _schedules,
    "partitions": _partitions,
    "heartbeats": _heartbeats,
    "leases": _leases,
    "relay": lambda runtime: relay(runtime.database, destinations(runtime)),
    "subscriptions": _subscriptions,
    "metrics": _metrics,
    "jobs": _jobs,
    "brakes": brakes.sweep,
    "stuck": _stuck,
    "verify": verify_some,
    "evidence": compare_evidence,
    "anchor": _anchor,
    "export": _export,
    "archive": _archive,
    "prune": _prune,
}
