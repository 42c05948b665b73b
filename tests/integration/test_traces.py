"""Traces: one from the agent's call over the move to what it causes, whoever takes each part; none when off."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock.supervisor.environment import environment
from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from interlock.workers.telemetry import tracing
from tests import machines
from tests.collector import Collector, Received
from tests.driving import drain_all, make_due, outcome
from tests.nodes import node
from tests.waiting import eventually
from tests.webhooks import Webhook

pytestmark = pytest.mark.integration
OWN = ("tests.machines",)
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def own(knowing: Callable[..., Runtime], world: Webhook) -> Client:
    """A client that knows `announcement` and `turnstile`; its notices go to `world`."""
    return Client(knowing(*OWN, notify_urls=(world.url,), max_attempts=3))


def arrived(kept: Collector, name: str, count: int) -> list[Received]:
    eventually(lambda: len(kept.named(name)) >= count, timeout=30)
    return kept.named(name)


def announced(own: Client, project: str) -> str:
    made = own.create("announcement", "A-1", project=project)
    return own.fire(made["id"], "announce", by="ann", request_id="r-1").request_id


def test_one_trace_leads_from_the_call_through_real_processes_to_what_the_effect_tells(
    own: Client, collecting: Collector, project: str, tmp_path: Path
) -> None:
    with node(own.runtime.settings, tmp_path, "worker", "-Q", "triggers,effects", "-c", "2") as worker:
        announced(own, project)
        accept, applied, effect, told = (
            arrived(collecting, "interlock.accept", 1)[0],
            *_in_order(collecting),
        )
        log = worker.log.read_text()
    assert len({span.trace for span in (accept, applied, effect, told)}) == 1
    assert accept.parent == ""
    assert (applied.parent, effect.parent, told.parent) == (accept.id, applied.id, effect.id)
    assert {span.service for span in collecting.spans} == {"interlock"}
    assert applied.attributes["interlock.request_id"] == "r-1"
    assert (applied.attributes["interlock.from"], applied.attributes["interlock.to"]) == ("drafted", "announcing")
    assert applied.attributes["interlock.status"] == "applied"
    assert effect.attributes["interlock.effect"] == "notice"
    assert told.attributes["interlock.trigger"] == "heard"
    assert all(0 < span.seconds < 30 for span in collecting.spans)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert not [line for line in lines if "callbacks" in line["event"]], "transitions has two lines for each move"
    (done,) = [line for line in lines if line["event"] == "effect_done"]
    assert (done["trace_id"], done["effect"]) == (accept.trace, effect.attributes["interlock.effect_id"])
    (round_,) = [line for line in lines if line["event"] == "applied" and line["of"][0]["request_id"] == "r-1"]
    assert round_["of"] == [
        {"request_id": "r-1", "instance": applied.attributes["interlock.instance"], "trace_id": accept.trace}
    ]


def _in_order(kept: Collector) -> tuple[Received, Received, Received]:
    first, last = sorted(
        arrived(kept, "interlock.apply", 2), key=lambda span: span.attributes["interlock.trigger"] != "announce"
    )
    return first, arrived(kept, "interlock.effect", 1)[0], last


def _turned(own: Client, project: str, trigger: str) -> None:
    own.create("turnstile", "T-1", project=project)
    own.fire("T-1", trigger, by="a")
    drain_all(own.runtime)


def test_a_timer_has_a_trace_of_its_own_linked_to_its_cause(
    own: Client, collecting: Collector, project: str, dba: Dba
) -> None:
    _turned(own, project, "coin")
    make_due(dba)
    dba.execute("UPDATE trigger_requests SET status = 'pending' WHERE status = 'scheduled'")
    drain_all(own.runtime)
    armed, fired = arrived(collecting, "interlock.apply", 2)
    assert fired.trace != armed.trace
    assert (fired.parent, fired.links) == ("", ((armed.trace, armed.id),))
    assert fired.attributes["interlock.origin"] == "timer"


def test_a_follow_up_goes_on_in_its_causes_trace(client: Client, collecting: Collector, project: str) -> None:
    client.create("story", "S-1", project=project)
    client.create("pr_review", "P-1", project=project, context={"author": "ann", "story_id": "S-1"})
    for trigger, by in (("start_review", "bob"), ("approve", "bob"), ("merge", "bob")):
        client.fire("P-1", trigger, by=by)
    drain_all(client.runtime)
    (held,) = [each for each in client.show("P-1")["requests"] if each["status"] == "waiting"]
    client.fire(held["result"]["approval"], "approve", by="cid")
    drain_all(client.runtime)
    follow_up = [
        span for span in arrived(collecting, "interlock.apply", 6) if span.attributes["interlock.origin"] == "follow_up"
    ]
    merged = [span for span in collecting.named("interlock.apply") if span.attributes["interlock.trigger"] == "merge"]
    assert [span.parent for span in follow_up] == [merged[-1].id]
    assert {span.trace for span in follow_up} == {merged[-1].trace}


def test_a_refusal_and_a_failed_effect_are_marked(
    own: Client, collecting: Collector, project: str, world: Webhook
) -> None:
    _turned(own, project, "push")
    (refused,) = arrived(collecting, "interlock.apply", 1)
    assert refused.failed
    assert refused.attributes["interlock.code"] == "no_such_transition"
    announced(own, project)
    drain_all(own.runtime)
    world.answer = 500
    (effect,) = own.show("A-1")["effects"]
    effect_runner.run(own.runtime, effect["id"])
    assert arrived(collecting, "interlock.effect", 1)[0].failed


def test_what_is_tried_again_goes_on_in_its_trace(
    own: Client, collecting: Collector, project: str, dba: Dba, world: Webhook
) -> None:
    own.create("turnstile", "T-1", project=project)
    machines.broken.add("mallory")
    own.fire("T-1", "coin", by="mallory")
    drain_all(own.runtime)
    machines.broken.clear()
    dba.execute("UPDATE trigger_requests SET status = 'pending', not_before = now() WHERE status = 'scheduled'")
    drain_all(own.runtime)
    (accept,) = arrived(collecting, "interlock.accept", 1)
    first, again = sorted(
        arrived(collecting, "interlock.apply", 2), key=lambda span: span.attributes["interlock.attempt"]
    )
    assert (first.failed, again.failed) == (True, False)
    assert {(span.trace, span.parent) for span in (first, again)} == {(accept.trace, accept.id)}

    announced(own, project)
    drain_all(own.runtime)
    (effect,) = own.show("A-1")["effects"]
    for world.answer in (500, 200):
        effect_runner.run(own.runtime, effect["id"])
        dba.execute("UPDATE effects SET not_before = now()")
    tries = arrived(collecting, "interlock.effect", 2)
    assert [span.failed for span in tries] == [True, False]
    assert len({(span.trace, span.parent) for span in tries}) == 1


def test_a_batch_is_one_span_that_all_its_moves_hang_below(client: Client, collecting: Collector, project: str) -> None:
    births = [client.birth("story", f"S-{number}", project=project) for number in range(3)]
    client.create_many(births)
    client.fire_many([Firing(birth.id, "block", "a") for birth in births])
    drain_all(client.runtime)
    applied = arrived(collecting, "interlock.apply", 3)
    (accept,) = collecting.named("interlock.accept")
    assert accept.attributes["interlock.requests"] == 3
    assert {span.parent for span in applied} == {accept.id}


def test_the_callers_own_span_is_above_ours(client: Client, collecting: Collector, project: str) -> None:
    client.create("story", "S-1", project=project)
    with TracerProvider().get_tracer("agent").start_as_current_span("agent's turn") as turn:
        client.fire("S-1", "block", by="a")
    (accept,) = arrived(collecting, "interlock.accept", 1)
    assert accept.parent == f"{turn.get_span_context().span_id:016x}"


def test_what_is_not_sampled_leaves_nothing(
    client: Client, collecting: Collector, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    client.create("story", "S-1", project=project)
    receipt = client.fire("S-1", "block", by="a")
    assert outcome(client, receipt.request_id)["trace"] is None
    drain_all(client.runtime)
    tracing.end()
    assert collecting.spans == []


def test_a_collector_that_is_away_holds_nobody_up(
    client: Client, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracing.forget()
    client.create("story", "S-1", project=project)
    receipt = client.fire("S-1", "block", by="a")
    drain_all(client.runtime)
    assert outcome(client, receipt.request_id)["status"] == "applied"
    began = monotonic()
    tracing.end()
    assert monotonic() - began < 8, "a process that ends does not wait for it either"
    tracing.forget()


def test_a_process_that_ends_sends_its_last_spans(client: Client, collecting: Collector, project: str) -> None:
    client.create("story", "S-1", project=project)
    program = "from interlock import Client; Client().fire('S-1', 'block', by='a', request_id='r-1')"
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "60000"}
    ours = {**os.environ, **environment(client.runtime.settings), **slow}
    subprocess.run([sys.executable, "-c", program], env=ours, check=True)
    (accept,) = arrived(collecting, "interlock.accept", 1)
    assert accept.attributes["interlock.request_id"] == "r-1"


def test_off_nothing_is_written_and_the_exporter_is_not_even_imported(client: Client, project: str) -> None:
    client.create("story", "S-1", project=project)
    receipt = client.fire("S-1", "block", by="a")
    assert outcome(client, receipt.request_id)["trace"] is None
    drain_all(client.runtime)
    program = (
        "import sys; from interlock import Client; c = Client(); c.fire('S-1', 'unblock', by='a');"
        "c.runtime.applier.apply_partition(0); "
        "late = ('interlock.workers.telemetry.spans', 'opentelemetry.exporter'); "
        "sys.exit(any(name.startswith(late) for name in sys.modules))"
    )
    bare = {name: value for name, value in environment(client.runtime.settings).items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **bare}, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_switch_it(variables: dict[str, str], on: bool) -> None:
    assert tracing.wanted(variables) is on


def test_a_program_with_a_provider_of_its_own_gets_the_spans(
    client: Client, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    tracing.forget()
    client.create("story", "S-1", project=project)
    client.fire("S-1", "block", by="a")
    assert [span.name for span in kept.get_finished_spans()] == ["interlock.accept"]
    tracing.end()  # the provider is the program's: it is not shut down
    client.fire("S-1", "unblock", by="a")
    assert len(kept.get_finished_spans()) == 2
    tracing.forget()
