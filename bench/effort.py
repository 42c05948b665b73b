"""The amount of measurement: `FULL` for figures to publish, `QUICK` to see whether something broke."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Numbers of rounds and sizes. A round measures each side once, one after the other."""

    rounds: int
    singles: int  # messages per round, each enqueued by itself
    plain_steps: int  # messages per round for plain transitions and Celery, which are several times slower
    bulk: int  # triggers per round, enqueued together
    pgbench_seconds: int
    latency_seconds: float  # duration of a round
    past_events: int  # history rows of the database with a past
    timers: int
    crowd: int  # number of instances, for which no Python objects may remain
    decisions: int
    run_tasks: int  # tasks of the small run; the large one has ten times as many
    workers: int  # live workers
    commands: int  # per round, each in a sandbox and without one
    rest_seconds: float  # duration of a round


FULL = Effort(
    rounds=5,
    singles=3_000,
    plain_steps=1_500,
    bulk=20_000,
    pgbench_seconds=3,
    latency_seconds=12.0,
    past_events=1_000_000,
    timers=100_000,
    crowd=100_000,
    decisions=100_000,
    run_tasks=1_000,
    workers=100_000,
    commands=60,
    rest_seconds=60.0,
)
QUICK = Effort(
    rounds=2,
    singles=1_000,
    plain_steps=500,
    bulk=6_000,
    pgbench_seconds=2,
    latency_seconds=4.0,
    past_events=100_000,
    timers=100_000,
    crowd=10_000,
    decisions=20_000,
    run_tasks=200,
    workers=20_000,
    commands=15,
    rest_seconds=15.0,
)
