"""Actions on supervised workers and jobs, by ann and by other processes."""

from typing import Any
from uuid import UUID

import pytest

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.supervision.actions import ActionOrder, Answer
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import IllegalTransition


def act(actions: Jobs | Supervisor, action: str, ref: str | UUID, **order: str) -> Answer:
    answer: Answer = getattr(actions, action)(ref, ActionOrder(**{"by": "ann", "reason": "why"} | order))
    return answer


def leads(actions: Jobs | Supervisor, action: str, ref: UUID, state: str, dest: str | None) -> tuple[str, ...]:
    """Check that an action on what is in `state` leads to `dest`, as its history tells, or (None) is illegal there.

    Returns the triggers that a refusal offers instead.
    """
    if dest:
        answer = act(actions, action, ref, by="ann", reason="because")
        assert (answer.subject["status"], answer.response["from"], answer.response["to"]) == (dest, state, dest)
        event = actions.client.history(ref)[-1]
        assert (event["triggered_by"], event["metadata"]["reason"]) == ("ann", "because")
        return ()
    with pytest.raises(IllegalTransition) as refusal:
        act(actions, action, ref)
    assert (refusal.value.status_code, refusal.value.state) == (409, state)
    assert actions.show(ref)["status"] == state
    return refusal.value.legal


def acted(settings: Settings, action: str, worker: str, request_id: str) -> dict[str, Any]:
    """Act on a worker, with a request_id that other processes use too; returns the recorded response."""
    with Client(Runtime(settings)) as client:
        return dict(getattr(Supervisor(client), action)(UUID(worker), ActionOrder("ann", "why", request_id)).response)


def allocated(settings: Settings, job: str) -> str:
    """Allocate a job's workers; returns its status."""
    with Client(Runtime(settings)) as client:
        return str(Jobs(client).allocate(UUID(job)).subject["status"])
