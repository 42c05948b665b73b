"""Run a sweep in a worker: once per period whoever asks, then publish what it found."""

import time
from collections.abc import Callable, Mapping

from beat import silence, sweeps
from beat.schedule import BY_NAME
from db import archive, metrics, requests, roster, scheduling
from db import sweeps as runs
from db.connect import transaction
from workers.archiving import archive_ended, rules_of
from workers.auditing import anchors, exports
from workers.destinations import destinations
from workers.relay import relay
from workers.runtime import Runtime
from workers.stuck.sweep import report

PRUNE_SECONDS = 30.0  # of one run: longer than a sweep may take it would be killed in the middle of a batch
ARCHIVE_SECONDS = 30.0  # of one run; the next goes on where it stopped


def run(runtime: Runtime, name: str) -> int | None:
    """Run a sweep of the schedule; what it found, or None where another run had this period.

    Raises:
        KeyError: no such sweep.
        DBAPIError: the database is away; the next period tries again.
    """
    with transaction(runtime.database) as connection:
        if not runs.begin(connection, name, every_seconds=BY_NAME[name].every_seconds):
            return None
    found = SWEEPS[name](runtime)
    with transaction(runtime.database) as connection:
        runs.end(connection, name, found=found)
    return found


def _dispatch(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        woken, lanes, effects_due = sweeps.dispatch(connection)
    runtime.hints.lanes(lanes)
    runtime.hints.effects(effects_due)
    return woken + len(lanes)


def _schedule(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        found = scheduling.runs_signalled(connection, limit=sweeps.RUN_HINTS)
    runtime.hints.runs(str(run_id) for run_id in found)
    return len(found)


def _work(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        silent_seconds = runtime.settings.silent_seconds
        free = roster.free_hands(connection, silent_seconds=silent_seconds, limit=sweeps.WORK_HINTS)
    runtime.hints.work(free)
    return free


def _heartbeats(runtime: Runtime) -> int:
    chosen, relieved = runtime.settings, 0
    while True:  # a transaction a batch: nobody's heartbeat waits for long behind it
        with transaction(runtime.database) as connection:
            found, fired = silence.heartbeats(
                connection, silent_seconds=chosen.silent_seconds, gone_seconds=chosen.recovery_seconds
            )
        runtime.hints.lanes(fired)
        relieved += found
        if found == 0:
            return relieved


def _leases(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        again = sweeps.leases(connection, max_attempts=runtime.settings.max_attempts)
    runtime.hints.effects(again)
    return len(again)


def _relay(runtime: Runtime) -> int:
    return relay(runtime.database, destinations(runtime))


def _metrics(runtime: Runtime) -> int:
    folded = 0
    while True:
        with transaction(runtime.database) as connection:
            batch = metrics.fold(connection)
        folded += batch
        if batch < metrics.FOLD_BATCH:
            return folded


def _jobs(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        asked = sweeps.jobs(connection)
        lanes = requests.lanes_due(connection) if asked else ()
    runtime.hints.lanes(lanes)
    return asked


def _stuck(runtime: Runtime) -> int:
    found, effects_due = report(runtime)
    runtime.hints.effects(effects_due)
    return found


def _anchor(runtime: Runtime) -> int:
    return anchors.anchor(runtime) if anchors.due(runtime) else 0


def _export(runtime: Runtime) -> int:
    done = exports.export(runtime) if exports.due(runtime) else None
    return done.events if done else 0


def _archive(runtime: Runtime) -> int:
    rules = rules_of(runtime.settings)
    if rules is None:
        return 0
    with transaction(runtime.database) as connection:
        after = archive.place(connection)
    done = archive_ended(runtime.database, rules, after=after, budget_seconds=ARCHIVE_SECONDS)
    with transaction(runtime.database) as connection:
        archive.note_place(connection, done.after)
    return done.instances


def _prune(runtime: Runtime) -> int:
    chosen, pruned, until = runtime.settings, 0, time.monotonic() + PRUNE_SECONDS
    while True:  # a transaction a batch: nothing waits for long behind it
        with transaction(runtime.database) as connection:
            batch = sweeps.prune(
                connection, keep_days=chosen.keep_finished_days, keep_effects_days=chosen.keep_effects_days
            )
        pruned += batch
        if batch == 0 or time.monotonic() > until:
            return pruned


SWEEPS: Mapping[str, Callable[[Runtime], int]] = {
    "dispatch": _dispatch,
    "schedule": _schedule,
    "work": _work,
    "heartbeats": _heartbeats,
    "leases": _leases,
    "relay": _relay,
    "metrics": _metrics,
    "jobs": _jobs,
    "stuck": _stuck,
    "anchor": _anchor,
    "export": _export,
    "archive": _archive,
    "prune": _prune,
}
