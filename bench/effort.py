"""The amount of measurement: `FULL` for figures to publish, `QUICK` to see whether something broke."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Numbers of rounds and sizes, by default the full ones. A round measures each side once, one after the other."""

    rounds: int = 5
    singles: int = 3_000  # messages per round, each enqueued by itself
    plain_steps: int = 1_500  # messages per round for plain transitions and Celery, which are several times slower
    bulk: int = 20_000  # triggers per round, enqueued together
    pgbench_seconds: int = 3
    latency_seconds: float = 12.0  # duration of a round
    past_events: int = 1_000_000  # history rows of the database with a past
    timers: int = 100_000
    crowd: int = 100_000  # number of instances, for which no Python objects may remain
    decisions: int = 100_000
    run_tasks: int = 1_000  # tasks of the small run; the large one has ten times as many
    workers: int = 100_000  # live workers
    commands: int = 60  # per round, each in a sandbox and without one
    rest_seconds: float = 60.0  # duration of a round


FULL = Effort()
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
