"""`plain`: the same triggers through Interlock and through plain transitions and Celery (`bench.plain_celery`)."""

import time
from datetime import UTC, datetime
from uuid import UUID

from psycopg import connect
from redis import Redis
from sqlalchemy import create_engine, insert
from uuid_utils.compat import uuid7

from bench import plain_celery
from bench.effort import Effort
from bench.empty import drained
from bench.finding import Bar, Finding, interleaved
from bench.nodes import interlock_nodes, plain_node
from bench.plant import CYCLES, INSTANCES, PATIENCE_SECONDS, POLL_SECONDS, Plant, turns
from bench.progress import Rounds
from bench.stage import Stage
from interlock.supervisor.servers.endpoints import Servers

WARM_UP = 2 * INSTANCES  # the two initial triggers of each story


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Both sides have one producer, one message per trigger, 500 stories, and two processes that handle them."""
    ours, theirs = stage.side("plain_ours"), stage.side("plain_theirs", empty=True)
    with interlock_nodes(stage, ours), plain_node(stage, "bench.plain_celery", theirs):
        plant, printed = Plant(stage, ours, "story"), Printed(theirs)
        plant.populate()
        sent = effort.plain_steps
        plant.single(WARM_UP)
        printed.single(WARM_UP)
        figures = interleaved(rounds, lambda: sent / plant.single(sent), lambda: sent / printed.single(sent))
        plant.close()
        printed.close()
    return [
        Finding(
            "plain",
            "single triggers : plain transitions, ORM and Celery",
            "/s",
            *figures,
            bar=Bar("≥", 2.0),
            note=f"{sent:,} a round, stories between implementation and review, one producer, two nodes : prefork -c 2",
        )
    ]


class Printed:
    """The plain implementation as one side of a comparison."""

    def __init__(self, servers: Servers) -> None:
        plain_celery.celery_app.conf.broker_url = servers.broker_url
        self.broker = Redis.from_url(servers.broker_url)
        self.database = connect(servers.database_url, autocommit=True)
        self._saved = 0
        self._next = turns(_populate(servers.database_url), *CYCLES["story"])

    def single(self, messages: int) -> float:
        """Send a task for each trigger; returns the seconds from the first `delay` to the last saved transition."""
        work = [next(self._next) for _ in range(messages)]
        delay = plain_celery.execute_workflow_step.delay
        began = time.perf_counter()
        for story, trigger in work:
            delay(str(story), trigger)
        drained(self.broker)
        self._saved += messages
        return self._all_saved() - began

    def close(self) -> None:
        """Close the connections."""
        self.broker.close()
        self.database.close()
        plain_celery.celery_app.close()

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
    plain_celery.Base.metadata.create_all(engine)
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
        connection.execute(insert(plain_celery.WorkflowInstance), rows)
    engine.dispose()
    return ids
