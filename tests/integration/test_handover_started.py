"""What was handed over is started on Temporal, each instance once, and goes on there with all that went with it.

There is no Temporal server: a start ends at the SDK's own seam, its client's interceptor, where the SDK's own workflow
instance runs. The connection, and how a server tells that an id is taken, are not run.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from temporalio.client import Client as TemporalClient
from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from interlock.workers.client.client import Client
from interlock.workers.definitions import handover_file
from interlock.workers.definitions.handover import freeze, settle
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.start_log import StartLog
from interlock.workflows.forms.temporal_handover import handed_over
from interlock.workflows.forms.temporal_starter import StartedWorkflows, start_all
from interlock.workflows.forms.temporal_values import FactsFound, TemporalStart
from tests import parcels
from tests.conformance.in_temporal import exported
from tests.conformance.temporal_instance import BEGAN, CONVERTER, TemporalInstanceRun
from tests.driving import applied, drain_all, outcome
from tests.migrating import ALL_PARCELS, HANDING, sound
from tests.parcels import PARCEL_1_0, born

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return parcels.recorded(make_runtime)


class Workflows(Interceptor, OutboundInterceptor):
    """The workflows that the SDK's client was asked to start: at most `room`, as if the server then went away."""

    def __init__(self, machine: type, thread: ThreadPoolExecutor) -> None:
        self.room = 2
        self.runs: dict[UUID, TemporalInstanceRun] = {}
        self.effects: list[Any] = []
        self._machine, self._thread = machine, thread

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        self.next = next
        return self

    async def start_workflow(self, input: StartWorkflowInput) -> Any:
        if UUID(input.id) in self.runs:
            raise WorkflowAlreadyStartedError(input.id, input.workflow)
        if len(self.runs) == self.room:
            raise RPCError("gone away", RPCStatusCode.UNAVAILABLE, b"")
        (start,) = CONVERTER.from_payloads(CONVERTER.to_payloads(input.args), [TemporalStart])
        self.runs[UUID(input.id)] = self.do(TemporalInstanceRun, self._machine, start, FactsFound, self._carry_out)

    def start(self, path: Path) -> StartedWorkflows:
        """Start what a file has, as the exported program does."""

        async def begin() -> StartedWorkflows:
            there = await TemporalClient.connect("127.0.0.1:1", lazy=True, interceptors=[self])
            return await start_all(there, PARCEL_1_0, path, "parcels")

        return asyncio.run(begin())

    def do(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the thread of the workflows, which has no event loop."""
        return self._thread.submit(act, *arguments).result()

    def shown(self, id_: UUID) -> Any:
        return self.do(self.runs[id_].show)

    def _carry_out(self, name: str, wanted: Any) -> None:
        self.effects.append((name, wanted["idempotency_key"], wanted["trigger"], wanted["by"], wanted["from_state"]))


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Workflows]:
    with ThreadPoolExecutor(max_workers=1) as thread:
        yield Workflows(exported(PARCEL_1_0, tmp_path).WORKFLOWS[0], thread)


def test_each_goes_on_there_with_all_that_went_with_it_and_is_started_once(
    client: Client, runtime: Runtime, project: str, dba: Dba, tmp_path: Path, there: Workflows
) -> None:
    sent, stopping, weighing, new = (born(runtime, "parcel", "1.0.0", f"P-{each}", project) for each in range(4))
    applied(client, sent, "send")
    applied(client, stopping, "send")
    dba.execute("UPDATE trigger_requests SET not_before = not_before - interval '50 minutes' WHERE origin = 'timer'")
    stop = client.fire(stopping, "stop", by="bob")
    applied(client, weighing, "weigh", by="cid")
    approval = UUID(outcome(client, stop.request_id)["result"]["approval_id"])
    client.fire_many([Firing(new, "send", by="dan"), Firing(new, "send", by="dan"), Firing(new, "lose", by="eve")])
    ((effect,),) = dba.execute("SELECT id FROM effects WHERE done_trigger IS NOT NULL").fetchall()
    assert freeze(runtime, ALL_PARCELS, HANDING).moved == 4
    path = tmp_path / "parcels.jsonl"
    assert handover_file.write_frozen(runtime, ALL_PARCELS, path).instances == 4
    with pytest.raises(RPCError, match="gone away"):
        there.start(path)
    assert StartLog.of(path) == StartLog({sent, stopping, weighing, new}, set())
    assert settle(runtime, ALL_PARCELS, HANDING, StartLog.of(path), back=True).moved == 0
    there.room = 4
    assert there.start(path) == StartedWorkflows(started=2, skipped=2)
    assert there.start(path) == StartedWorkflows(skipped=4)
    assert settle(runtime, ALL_PARCELS, HANDING, StartLog.of(path), back=False).moved == 4
    sound(runtime)

    began = BEGAN.timestamp()
    shown = there.shown(sent)
    assert (shown["state"], shown["version"]) == ("sent", 1)
    assert 500 < shown["due_at"] - began < 610
    there.do(there.runs[sent].elapse)
    assert there.shown(sent)["state"] == "lost"
    assert [each["trigger"] for each in there.do(there.runs[sent].history)["events"]] == ["send"]
    assert there.shown(stopping)["held"] == [{"trigger": "stop", "version": 1}]
    assert set(there.runs[stopping].children) == {str(approval)}
    there.do(there.runs[stopping].end_child, str(approval), "granted")
    assert there.shown(stopping)["state"] == "stopped"
    assert there.effects == [("notice", str(effect), "weigh", "cid", "packed")]
    assert (there.shown(weighing)["state"], there.shown(weighing)["version"]) == ("packed", 2)
    assert (there.shown(new)["state"], there.shown(new)["version"]) == ("lost", 2)


def test_a_history_that_was_changed_is_not_started(
    client: Client, runtime: Runtime, project: str, tmp_path: Path, there: Workflows
) -> None:
    parcel = born(runtime, "parcel", "1.0.0", "P-1", project)
    applied(client, parcel, "send")
    freeze(runtime, ALL_PARCELS, HANDING)
    path = tmp_path / "parcels.jsonl"
    handover_file.write_frozen(runtime, ALL_PARCELS, path)
    whole = path.read_text()
    for change in (
        lambda said: said["history"][0].update(triggered_by="eve"),
        lambda said: said["history"].pop(),
        lambda said: said["history"][0].update(hash="0" * 64),
        lambda said: said.update(head="0" * 64),
        lambda said: said.pop("history"),
        lambda said: said.update(format="interlock.handover/2"),
    ):
        said = json.loads(whole)
        change(said)
        with pytest.raises(BadInput):
            handed_over(json.dumps(said))
    path.write_text(json.dumps(json.loads(whole) | {"head": "0" * 64}))
    with pytest.raises(BadInput):
        there.start(path)
    assert not there.runs
    drain_all(runtime)
