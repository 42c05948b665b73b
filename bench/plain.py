"""`adr`: the same story triggers through Interlock and through ADR-010's code as printed (`bench.adr010`)."""

import time
from datetime import UTC, datetime
from uuid import UUID

from psycopg import connect
from redis import Redis
from sqlalchemy import create_engine, insert
from uuid_utils.compat import uuid7

from bench import adr010
from bench.effort import Effort
from bench.empty import drained
from bench.finding import Bar, Finding, interleaved
from bench.nodes import interlock_nodes, plain_node
from bench.plant import CYCLES, INSTANCES, PATIENCE_SECONDS, POLL_SECONDS, Plant, turns
from bench.progress import Rounds
from bench.stage import Stage
from supervisor.servers import Servers

WARM_UP = 2 * INSTANCES  # both lead-in triggers of each story


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Both with one producer sending one message a trigger, 500 stories, and two processes that take them."""
    ours, theirs = stage.side("adr_ours"), stage.side("adr_theirs", empty=True)
    with interlock_nodes(stage, ours), plain_node(stage, "bench.adr010", theirs):
        plant, printed = Plant(stage, ours, "story"), Printed(theirs)
        plant.populate()
        sent = effort.adr_steps
        plant.single(WARM_UP)
        printed.single(WARM_UP)
        figures = interleaved(rounds, lambda: sent / plant.single(sent), lambda: sent / printed.single(sent))
        plant.close()
        printed.close()
    return [
        Finding(
            "adr",
            "single triggers : ADR-010's code as printed",
            "/s",
            *figures,
            bar=Bar("≥", 2.0),
            note=f"{sent:,} a round, stories between implementation and review, one producer, two nodes : prefork -c 2",
        )
    ]


class Printed:
    """ADR-010's code as one side of a comparison."""

    def __init__(self, servers: Servers) -> None:
        adr010.celery_app.conf.broker_url = servers.broker_url
        self.broker = Redis.from_url(servers.broker_url)
        self.database = connect(servers.database_url, autocommit=True)
        self._saved = 0
        self._next = turns(_populate(servers.database_url), *CYCLES["story"])

    def single(self, messages: int) -> float:
        """Send a task for each trigger; seconds from the first `delay` to the last transition saved."""
        work = [next(self._next) for _ in range(messages)]
        delay = adr010.execute_workflow_step.delay
        began = time.perf_counter()
        for story, trigger in work:
            delay(str(story), trigger)
        drained(self.broker)
        self._saved += messages
        return self._all_saved() - began

    def close(self) -> None:
        """Give back the connections."""
        self.broker.close()
        self.database.close()
        adr010.celery_app.close()

    def _all_saved(self) -> float:
        until = time.perf_counter() + PATIENCE_SECONDS
        while (saved := self._count()) < self._saved:
            if time.perf_counter() > until:
                raise RuntimeError(f"{saved} transitions saved of {self._saved}: the printed code lost some")
            time.sleep(POLL_SECONDS)
        return time.perf_counter()

    def _count(self) -> int:
        row = self.database.execute("SELECT count(*) FROM workflow_transitions").fetchone()
        return int(row[0]) if row else 0


def _populate(database_url: str) -> list[UUID]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    adr010.Base.metadata.create_all(engine)
    ids, now, project = [uuid7() for _ in range(INSTANCES)], datetime.now(UTC), uuid7()
    rows = [
        {
            "id": story,
            "workflow_type": "story",
            "current_state": "analysis",
            "entity_id": f"B-{number}",
            "project_id": project,
            "context": {},
            "retry_count": 0,
            "created_at": now,
            "updated_at": now,
        }
        for number, story in enumerate(ids)
    ]
    with engine.begin() as connection:
        connection.execute(insert(adr010.WorkflowInstance), rows)
    engine.dispose()
    return ids
