"""What Flower is told of tasks travels in batches, whole and in order, and goes on after a lost connection."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests.nodes import node
from tests.waiting import eventually

pytestmark = pytest.mark.integration

LIFE = ["task-received", "task-started", "task-succeeded"]
GREETING = "test-greeting"


def test_flower_is_told_of_each_task_in_order_also_after_a_lost_connection(
    client: Client, project: str, make_runtime: Callable[..., Runtime], valkey: "Redis", tmp_path: Path
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    lives: dict[str, list[str]] = {}
    greetings: list[dict[str, str]] = []

    def note(event: dict[str, str]) -> None:
        lives.setdefault(event["uuid"], []).append(event["type"])

    runtime = client.runtime
    worker = node(runtime.settings, tmp_path, "worker", "-Q", "triggers", "-c", "1", "-E")
    with worker as process, runtime.app.connection_for_read() as connection:
        receiver = runtime.app.events.Receiver(
            connection, handlers=dict.fromkeys(LIFE, note) | {GREETING: greetings.append}
        )
        with (
            receiver.consumer_context(wakeup=False) as (listening, _, _),
            runtime.app.events.default_dispatcher() as greeter,
        ):

            def heard() -> None:
                with suppress(TimeoutError):
                    listening.drain_events(timeout=0.2)

            def listens() -> bool:
                greeter.send(GREETING)
                heard()
                return bool(greetings)

            def lived(request_id: str) -> bool:
                heard()
                return lives.get(request_id) == LIFE

            eventually(listens)  # kombu subscribes when it first waits for something
            before = client.fire(story, "design_complete", by="a").request_id
            eventually(lambda: lived(before))

            valkey.client_kill_filter(_type="normal", skipme=True)  # all but those that listen to events
            eventually(lambda: "Connection to broker lost" in process.log.read_text())
            later = Client(make_runtime())
            after = later.fire(story, "start_coding", by="a").request_id
            eventually(lambda: lived(after))
