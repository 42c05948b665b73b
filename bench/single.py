"""`single`: triggers fired one by one, from durable accept to last commit, against Celery's empty task end to end."""

from bench.effort import Effort
from bench.empty import Empty
from bench.finding import Bar, Finding, interleaved
from bench.nodes import interlock_nodes, plain_node
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage

WARM_UP = 600


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Both sides have one producer (this process), the same number of messages, and two processes that handle them."""
    ours, theirs = stage.side("single"), stage.side("single_empty", empty=True)
    with interlock_nodes(stage, ours), plain_node(stage, "bench.empty", theirs):
        plant, empty = Plant(stage, ours), Empty(theirs.broker_url)
        plant.populate()
        sent = effort.singles
        plant.single(WARM_UP)
        empty.single(WARM_UP)
        figures = interleaved(rounds, lambda: sent / plant.single(sent), lambda: sent / empty.single(sent))
        completed, expected = empty.completed(), WARM_UP + sent * len(figures[0])
        if completed != expected:
            raise RuntimeError(f"{completed} empty tasks completed of {expected} sent")
        plant.close()
        empty.close()
    return [
        Finding(
            "single",
            "single triggers, accept to commit : Celery's empty task",
            "/s",
            *figures,
            bar=Bar("≥", 1.15),
            note=f"{sent:,} a round, one producer, two nodes : prefork -c 2; ours durable and with worker events",
        )
    ]
