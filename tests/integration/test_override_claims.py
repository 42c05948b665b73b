"""Overrides of tasks that workers hold or held: the claim ends, a late report is refused; and legacy steps."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core.requests import partition_of
from interlock.db.core.rounds import PARTITION_LOCK
from interlock.workers.client.client import Client
from interlock.workers.engine import creation
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.tasks import complete_task, fail_task
from interlock.workers.overrides.transaction import CannotOverride, OverrideOrder, StillDeciding
from interlock.workers.overrides.workstreams_and_patches import fail_workstream, validate_workstream
from interlock.workers.pool import claims
from interlock.workers.pool.claims import StaleClaim
from interlock.workers.pool.report import Report, failure
from interlock.workers.runtime import Runtime
from tests.crewing import Site, hand, row
from tests.driving import applied, drain_all, make_due, state, trail
from tests.rights import fire, known

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
BY_HAND = OverrideOrder("ann", "seen to it")
TRIED = OverrideOrder("ann", "would it?", dry_run=True)
DONE = Report("execution_completed", {"exit_code": 0})


@pytest.mark.parametrize("override", [complete_task, fail_task, reset_task, skip_step])
def test_who_holds_the_task_loses_it_and_is_free_again(
    runtime: Runtime, client: Client, site: Site, dba: Dba, override: Any
) -> None:
    task, _ = site.queue(2)
    worker = hand(runtime)
    claim = claims.take(runtime, known(worker))
    assert claim
    drain_all(runtime)
    assert claims.is_current(runtime, claim.token)
    told = override(runtime, str(task), TRIED).follows
    assert f"claim {claim.id} of worker hand on T-3 no longer counts" in "\n".join(told)
    assert claims.is_current(runtime, claim.token)
    override(runtime, str(task), BY_HAND)
    assert not claims.is_current(runtime, claim.token)
    with pytest.raises(StaleClaim):
        claims.finish(runtime, known(worker), claim.token, DONE)
    drain_all(runtime)
    assert (state(client, worker), row(dba, "workers", worker)["current_load"]) == ("idle", 0)
    assert state(client, task) == {complete_task: "completed", fail_task: "failed"}.get(override, "cancelled")


@pytest.mark.parametrize(("override", "end"), [(complete_task, "completed"), (fail_task, "failed")])
def test_what_was_begun_before_ends_in_its_last_workers_name(
    runtime: Runtime, client: Client, site: Site, dba: Dba, override: Any, end: str
) -> None:
    task, _ = site.queue(2)
    worker = hand(runtime)
    claim = claims.take(runtime, known(worker))
    assert claim
    claims.finish(runtime, known(worker), claim.token, failure("crashed after success"))
    drain_all(runtime)
    assert state(client, task) == "retrying"
    done = override(runtime, str(task), BY_HAND)
    assert [move.from_state for move in done.moves][:2] == ["retrying", "queued"]
    assert state(client, task) == end
    begun = [event for event in client.history(task) if event["trigger"] == "worker_started"]
    assert [event["metadata"]["worker_id"] for event in begun] == [str(worker)] * 2
    assert begun[1]["metadata"]["operator"] == "ann"
    make_due(dba)
    drain_all(runtime)
    assert state(client, task) == end, "its deadlines are superseded"


def test_an_override_that_waits_too_long_for_others_says_so(runtime: Runtime, site: Site, dba: Dba) -> None:
    task, _ = site.queue(2)
    with dba.transaction():
        dba.execute("SELECT pg_advisory_xact_lock(%s, %s)", (PARTITION_LOCK, partition_of(task)))
        with pytest.raises(StillDeciding, match="try again"):
            skip_step(runtime, str(task), BY_HAND)
    skip_step(runtime, str(task), BY_HAND)


@pytest.fixture
def step(runtime: Runtime, client: Client, project: str) -> dict[str, UUID]:
    """A step 0.1.0 that has failed, and its workstream."""
    workstream, step = (_lineage(runtime, kind, project) for kind in ("workstream", "step"))
    applied(client, workstream, "start_execution")
    applied(client, step, "dependencies_met")
    fire(client, step, "failure", by="tool", data={"exit_code": 1})
    drain_all(runtime)
    return {"workstream": workstream, "step": step}


def _lineage(runtime: Runtime, kind: str, project: str) -> UUID:
    definition = runtime.catalogue.get(kind, "0.1.0")
    birth = creation.Birth(definition, f"{kind}-1", project, "test", {})
    with transaction(runtime.database) as connection:
        creation.deliver(connection, [birth])
    return birth.id


def test_a_failed_step_is_tried_again_or_left_out_as_done(
    runtime: Runtime, client: Client, step: dict[str, UUID]
) -> None:
    reset_task(runtime, str(step["step"]), BY_HAND)
    assert state(client, step["step"]) == "S_RETRYING"
    done = skip_step(runtime, str(step["step"]), BY_HAND)
    assert [move.to_state for move in done.moves] == ["S_RUNNING", "S_SUCCESS"]
    event = client.history(step["step"])[-1]
    assert (event["metadata"]["skipped"], event["severity"]) == (True, "warning")
    with pytest.raises(CannotOverride, match="legal: nothing: it has ended"):
        skip_step(runtime, str(step["step"]), BY_HAND)


def test_the_oldest_workstreams_are_completed_and_failed_by_hand(
    runtime: Runtime, client: Client, step: dict[str, UUID]
) -> None:
    fail_workstream(runtime, str(step["workstream"]), BY_HAND)
    assert state(client, step["workstream"]) == "S_FAILED"
    validate_workstream(runtime, str(step["workstream"]), BY_HAND)
    assert trail(client, step["workstream"])[-1] == "all_steps_succeed"
    with pytest.raises(CannotOverride, match="fail-task is for instances of task or step, not for"):
        fail_task(runtime, str(step["workstream"]), BY_HAND)


COLLIDE_ONCE = """
CREATE SEQUENCE public.tries;
GRANT USAGE ON public.tries TO PUBLIC;
CREATE FUNCTION public.collide() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.tries') = 1 THEN
        RAISE 'deadlock detected' USING ERRCODE = 'deadlock_detected';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER collides AFTER UPDATE ON interlock.tasks EXECUTE FUNCTION public.collide()"""


def test_an_override_that_collides_with_a_claim_is_made_again_and_its_moves_once(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    task, _ = site.queue(2)
    before = len(trail(client, task))
    dba.execute(COLLIDE_ONCE)
    done = skip_step(runtime, str(task), BY_HAND)
    assert [move.to_state for move in done.moves] == ["cancelled"]
    assert (state(client, task), len(trail(client, task))) == ("cancelled", 1 + before)
    assert dba.execute("SELECT last_value > 1 FROM public.tries").fetchone() == (True,)
