"""Run a sweep in a worker: once per period whoever asks, then publish what it found."""

from collections.abc import Callable, Mapping

from beat import silence, sweeps
from beat.schedule import BY_NAME
from db import requests, roster, scheduling
from db import sweeps as runs
from db.connect import transaction
from workers.relay import relay
from workers.runtime import Runtime


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
    if runtime.redis is None:
        return 0
    return relay(runtime.database, runtime.redis, maxlen=runtime.settings.stream_maxlen)


def _jobs(runtime: Runtime) -> int:
    with transaction(runtime.database) as connection:
        asked = sweeps.jobs(connection)
        lanes = requests.lanes_due(connection) if asked else ()
    runtime.hints.lanes(lanes)
    return asked


def _prune(runtime: Runtime) -> int:
    pruned = 0
    while True:  # a transaction a batch: nothing waits for long behind it
        with transaction(runtime.database) as connection:
            batch = sweeps.prune(connection, keep_days=runtime.settings.keep_finished_days)
        pruned += batch
        if batch == 0:
            return pruned


SWEEPS: Mapping[str, Callable[[Runtime], int]] = {
    "dispatch": _dispatch,
    "schedule": _schedule,
    "work": _work,
    "heartbeats": _heartbeats,
    "leases": _leases,
    "relay": _relay,
    "jobs": _jobs,
    "prune": _prune,
}
