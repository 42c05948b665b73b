"""Names that break the rule, written past it by a DBA: what shows them is not steered, and their bearers go on."""

import json
from typing import Any
from uuid import UUID

import psycopg
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.requests import partition_of
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.operations import metrics_server
from interlock.workers.pool import registration
from interlock.workers.runtime import Runtime
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workers.telemetry import tracing
from interlock.workflows.input.names import IN_REASONS
from tests.collector import Collector
from tests.crewing import hand
from tests.driving import drain_all
from tests.legacy import rename

HOSTILE = "S\x1b[2J\u202e1"


def test_what_others_show_of_a_hostile_name_steers_nothing(
    collecting: Collector, client: Client, project: str, valkey: "Redis", dba: "psycopg.Connection[Any]"
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    rename(dba, story, HOSTILE)
    client._known.clear()
    client.fire_many([Firing(HOSTILE, "design_complete", "ann"), Firing(story, "block", "ann")])
    client.runtime.wakeup_sender.flush()
    drain_all(client.runtime)
    tracing.end()
    queues = [key for key in valkey.scan_iter() if valkey.type(key) == "list"]
    messages = [json.loads(each) for queue in queues for each in valkey.lrange(queue, 0, -1)]
    told = [message["headers"]["argsrepr"] for message in messages]
    assert told
    assert any("S\\x1b[2J" in each for each in told)
    spans = [str(value) for span in collecting.spans for value in span.attributes.values()]
    assert any("S\\x1b[2J" in each for each in spans)
    assert [each for each in (*told, *spans) if IN_REASONS.search(each)] == []
    assert len(list(text_string_to_metric_families(metrics_server.shown(client.runtime)))) > 10


def test_an_approval_of_one_that_has_such_a_name_has_a_likeness_of_it(
    client: Client, runtime: Runtime, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})
    rename(dba, review["id"], HOSTILE)
    for trigger, who in (("start_review", "bob"), ("approve", "bob"), ("merge", "bob")):
        client.fire(review["id"], trigger, by=who)
        Drain(runtime).partition(partition_of(review["id"]))
    ((name,),) = dba.execute("SELECT entity_id FROM workflow_instances WHERE workflow_type = 'approval'").fetchall()
    assert name.startswith("S?[2J?1:merge:")


def test_who_is_called_as_anothers_uuid_hides_it_from_nobody(
    client: Client, runtime: Runtime, dba: "psycopg.Connection[Any]"
) -> None:
    def two(type_: str, **context: Any) -> UUID:
        """The first of two; the other, which is younger, is called as the first one's UUID."""
        first, other = (client.create(type_, f"N-{n}", context=context)["id"] for n in (1, 2))
        rename(dba, other, str(first))
        return UUID(str(first))

    run = two("run")
    with transaction(runtime.database) as connection:
        assert instances.find(connection, str(run), client.project, "run")["id"] == run
    supervised = two("supervised_worker", workspace_id="ws")
    assert Supervisor(client).show(str(supervised))["id"] == supervised
    worker = hand(runtime, "first")
    rename(dba, hand(runtime, "other"), str(worker))
    assert registration.find(runtime, str(worker))["worker_id"] == worker
