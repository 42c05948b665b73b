"""`accept`: durable accepts of triggers by one producer, while no worker runs."""

import time
from collections.abc import Callable

from bench.effort import Effort
from bench.finding import Finding
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage

WARM_UP = 500


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Durable accepts per second: one by one, each in its own commit, and by one call with a thousand per commit."""
    plant = Plant(stage, stage.side("accept"))
    plant.populate()
    plant.accept(WARM_UP)
    figures = [(_rate(plant.accept, effort.singles), _rate(plant.accept_many, effort.bulk)) for _ in rounds]
    plant.close()
    one_by_one, together = zip(*figures, strict=True)
    return [
        Finding("accept", "fire, no worker", "/s", one_by_one),
        Finding("accept.bulk", "fire_many, no worker", "/s", together),
    ]


def _rate(accept: Callable[[int], float], triggers: int) -> float:
    began = accept(triggers)
    return triggers / (time.perf_counter() - began)
