"""How much is measured: `FULL` for figures to publish, `QUICK` to see whether something broke."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds and sizes. A round measures each side once, one after the other."""

    rounds: int
    singles: int  # messages of a round, each enqueued by itself
    adr_steps: int  # messages of a round for the ADR's code, several times slower
    bulk: int  # triggers of a round, enqueued together
    pgbench_seconds: int
    latency_seconds: float  # of a round
    past_events: int  # history rows of a database with a past
    timers: int
    crowd: int  # instances that must cost no Python object each
    decisions: int
    run_tasks: int  # of the small run; the large one has ten times as many
    workers: int  # that are all alive


FULL = Effort(
    rounds=5,
    singles=3_000,
    adr_steps=1_500,
    bulk=20_000,
    pgbench_seconds=3,
    latency_seconds=12.0,
    past_events=1_000_000,
    timers=100_000,
    crowd=100_000,
    decisions=100_000,
    run_tasks=1_000,
    workers=100_000,
)
QUICK = Effort(
    rounds=2,
    singles=1_000,
    adr_steps=500,
    bulk=6_000,
    pgbench_seconds=2,
    latency_seconds=4.0,
    past_events=100_000,
    timers=100_000,
    crowd=10_000,
    decisions=20_000,
    run_tasks=200,
    workers=20_000,
)
