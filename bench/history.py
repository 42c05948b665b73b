"""`history`: the same triggers on a database with a million past events and on one without."""

from contextlib import ExitStack

from bench import past
from bench.effort import Effort
from bench.finding import Bar, Finding, interleaved
from bench.nodes import interlock_nodes
from bench.plant import CYCLES, INSTANCES, Plant
from bench.progress import Rounds
from bench.stage import Stage

WARM_UP = 1_000


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Bulk and single triggers, on instances with 201 events each and on new ones."""
    deep, empty = stage.side("history_deep"), stage.side("history_empty")
    with ExitStack() as stack:
        ids = past.give(deep.database_url, effort.past_events, rounds.say)
        plants = [Plant(stage, side) for side in (deep, empty)]
        for plant, side in zip(plants, (deep, empty), strict=True):
            stack.callback(plant.close)
            stack.enter_context(interlock_nodes(stage, side))
        spread = ids[:: max(1, len(ids) // INSTANCES)][:INSTANCES]
        plants[0].take_over(spread, (), CYCLES["pr_review"][1])
        plants[1].populate(len(spread))
        for plant in plants:
            plant.bulk(WARM_UP)
        many, few = effort.bulk, effort.singles
        old, new = plants
        figures = interleaved(
            rounds,
            lambda: many / old.bulk(many),
            lambda: many / new.bulk(many),
            lambda: few / old.single(few),
            lambda: few / new.single(few),
        )
    message = f"with {past.EVENTS_EACH * len(ids):,} past events : with none"
    note = "ours is the database with a past, which also holds the settled request of each event"
    return [
        Finding("history.bulk", f"fire_many, {message}", "/s", *figures[:2], bar=Bar("≥", 0.9), note=note),
        Finding("history.single", f"single triggers, {message}", "/s", *figures[2:], bar=Bar("≥", 0.9)),
    ]
