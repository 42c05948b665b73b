"""`bulk`: many triggers fired by one call and applied by workers, against `pgbench` doing the same writes."""

from bench import pgbench
from bench.effort import Effort
from bench.finding import Bar, Finding, interleaved
from bench.nodes import interlock_nodes
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage

WARM_UP = 2_000


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Ours: accept in batches, decide, apply in batches. Theirs: the best of two and four clients."""
    ours, theirs = stage.side("bulk"), stage.side("bulk_pgbench")
    pgbench.populate(theirs.database_url)
    with interlock_nodes(stage, ours):
        plant = Plant(stage, ours)
        plant.populate()
        fired, seconds = effort.bulk, effort.pgbench_seconds
        plant.bulk(WARM_UP)
        figures = interleaved(
            rounds, lambda: fired / plant.bulk(fired), lambda: pgbench.best(theirs.database_url, seconds)
        )
        plant.close()
    return [
        Finding(
            "bulk",
            "fire_many, accept to commit : pgbench, same writes",
            "/s",
            *figures,
            bar=Bar("≥", 2.0),
            note=f"{fired:,} a round; pgbench: prepared, one commit each, best of -c 2 and -c 4, {seconds} s each",
        )
    ]
