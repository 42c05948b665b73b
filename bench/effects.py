"""`effects`: an effect that does nothing, from its wake-up to its recorded end, against Celery's empty task."""

import time
from uuid import UUID

import psycopg
import structlog

from bench.effort import Effort
from bench.empty import Empty
from bench.finding import Bar, Finding, interleaved
from bench.nodes import effects_node, plain_node
from bench.progress import Rounds
from bench.stage import Stage
from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.schema import in_schema
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.engine.creation import intent
from interlock.workers.runtime import Runtime
from interlock.workflows.definition import Effect

WARM_UP = 300
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 120.0
PAYLOAD = {"type": "story", "entity_id": "S", "state": "analysis", "trigger": "create", "by": "bench", "context": {}}
LEFT = in_schema("SELECT EXISTS (SELECT FROM interlock.effects WHERE status IN ('pending', 'leased'))")


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Both sides have one producer (this process), the same number of messages, and two pool processes."""
    ours, theirs = stage.side("effects"), stage.side("effects_empty", empty=True)
    with effects_node(stage, ours), plain_node(stage, "bench.empty", theirs):
        acts, empty = Acts(stage, ours), Empty(theirs.broker_url)
        sent = effort.plain_steps
        acts.run(WARM_UP)
        empty.single(WARM_UP)
        figures = interleaved(rounds, lambda: sent / acts.run(sent), lambda: sent / empty.single(sent))
        acts.close()
        empty.close()
    return [
        Finding(
            "effects",
            "an empty effect through a worker : Celery's empty task",
            "/s",
            *figures,
            bar=Bar("≥", 0.5),
            note=f"{sent:,} a round, prefork -c 2 on both sides; ours under a lease, durable, with worker events",
        )
    ]


class Acts:
    """Effects that do nothing, as one side of a comparison; this process is the producer."""

    def __init__(self, stage: Stage, side: Servers) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))  # 30: warnings and above
        self.runtime = Runtime(stage.settings(side).model_copy(update={"definitions": ("bench.nothing",)}))
        self._database = psycopg.connect(side.database_url, autocommit=True)
        made: UUID = Client(self.runtime).create("story", "S", by="bench")["id"]
        self._story = made

    def run(self, count: int) -> float:
        """Ask for effects, then send their wake-ups one by one; the seconds from the first to the last effect's end."""
        wanted = [
            intent(Effect("bench_nothing"), workflow_id=self._story, version=0, metadata=PAYLOAD) for _ in range(count)
        ]
        with transaction(self.runtime.database) as connection:
            rows = effects.intend(connection, wanted)
        began = time.perf_counter()
        for row in rows:
            self.runtime.wakeups.effects([row])
        while self._database.execute(LEFT).fetchone() != (False,):
            if time.perf_counter() - began > PATIENCE_SECONDS:
                raise RuntimeError(f"effects are left after {PATIENCE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
        self.runtime.close()
