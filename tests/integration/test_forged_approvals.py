"""Nobody decides what is not theirs: votes, decisions and releases that no approval allows, by any door or raw SQL."""

from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege
from psycopg.types.json import Jsonb

from interlock.workers.client.client import Client
from interlock.workflows.errors import BadInput, NotYours
from tests.driving import applied, drain_all, outcome, state

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
DECIDE = """
WITH event AS (
    INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state,
                                      trigger, triggered_by, request_id, severity, metadata)
    VALUES (gen_random_uuid(), %(id)s, 2, 'approval', '1.0.0', 'pending', 'approved', 'approve', 'cyd', %(request_id)s,
            'info', %(said)s)
    RETURNING workflow_id)
UPDATE workflow_instances SET current_state = 'approved', version = 2 FROM event WHERE id = event.workflow_id"""


def test_what_an_approval_does_not_allow_is_no_vote(client: Client, dba: Dba, project: str) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})["id"]
    for trigger in ("start_review", "approve"):
        applied(client, review, trigger, by="bob")
    held = client.fire(review, "merge", by="bob")
    drain_all(client.runtime)
    approval = outcome(client, held.request_id)["result"]["approval_id"]
    with pytest.raises(NotYours, match="ann is its author"):
        client.fire(approval, "approve", by="ann")
    for forged in (
        "UPDATE trigger_requests SET granted = true, status = 'pending' WHERE status = 'waiting'",
        "UPDATE trigger_requests SET granted = true WHERE status = 'waiting'",
        "UPDATE trigger_requests SET held_by = workflow_id, granted = true WHERE status = 'waiting'",
    ):
        with pytest.raises((InsufficientPrivilege, CheckViolation)):
            dba.execute(forged)
    with pytest.raises(NotYours):
        client.fire(approval, "expire", by="bob")
    drain_all(client.runtime)
    assert state(client, review) == "approved"
    client.fire(approval, "approve", by="cyd")
    drain_all(client.runtime)
    released = client.history(review)[-1]
    assert (released["trigger"], released["proof"]) == ("merge", f"approval:{approval}")


def test_a_held_trigger_is_not_moved_to_an_easier_approval(client: Client, dba: Dba, project: str, engine: Dba) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})["id"]
    for trigger in ("start_review", "approve"):
        applied(client, review, trigger, by="bob")
    held = client.fire(review, "merge", by="bob")
    drain_all(client.runtime)
    real = client.show(outcome(client, held.request_id)["result"]["approval_id"])
    easy = client.create("approval", "easy", project=project, context=real["context"] | {"author": "zoe"})["id"]
    applied(client, easy, "approve", by="ann")
    with pytest.raises(CheckViolation, match="held_by"):
        engine.execute("UPDATE trigger_requests SET held_by = %s WHERE request_id = %s", (easy, held.request_id))
    with pytest.raises(CheckViolation, match="held_by"):
        engine.execute("UPDATE trigger_requests SET held_by = NULL WHERE request_id = %s", (held.request_id,))
    # Nor is one that no definition asks for believed.
    easier = real["context"] | {"request_id": f"mine-{review}", "trigger": "dismiss"}
    given = client.create("approval", "easier", project=project, context=easier)["id"]
    applied(client, given, "approve", by="cyd")
    client.fire(review, "dismiss", by="bob", request_id=f"mine-{review}")
    engine.execute(
        "UPDATE trigger_requests SET held_by = %s, status = 'waiting' WHERE request_id = %s", (given, f"mine-{review}")
    )
    release = "UPDATE trigger_requests SET granted = true, status = 'pending', bound_version = 2 WHERE request_id = %s"
    with pytest.raises(InsufficientPrivilege, match="is not approved"):
        engine.execute(release, (f"mine-{review}",))


def test_an_approval_is_not_decided_below_its_quorum_or_with_other_votes(
    client: Client, engine: Dba, project: str
) -> None:
    made = client.create("approval", "A-1", project=project, context={"quorum": 2, "deciders": ["bob", "cyd"]})["id"]
    applied(client, made, "approve", by="bob")
    decision = client.fire(made, "approve", by="cyd")
    terms = {"quorum": 2, "deciders": ["bob", "cyd"]}
    for said, why in (
        ({}, "other terms"),
        ({"terms": terms}, "it says nobody approved it"),
        ({"terms": terms, "votes": ["bob", "cyd", "zoe"]}, "who may and did"),
        ({"terms": terms | {"quorum": 1}, "votes": ["bob", "cyd"]}, "other terms"),
    ):
        with pytest.raises(InsufficientPrivilege, match=why):
            engine.execute(DECIDE, {"id": made, "request_id": decision.request_id, "said": Jsonb(said)})
    drain_all(client.runtime)
    assert client.history(made)[-1]["metadata"]["votes"] == ["bob", "cyd"]


@pytest.mark.parametrize("key", ["approval", "terms", "votes"])
def test_what_interlock_writes_into_history_no_caller_can_say(
    client: Client, engine: Dba, project: str, key: str
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    with pytest.raises(BadInput, match=f"data.{key} is what Interlock itself writes"):
        client.fire(story, "design_complete", by="ann", data={key: ["ann"]})
    with pytest.raises(CheckViolation, match="metadata"):
        engine.execute(
            "SELECT accept_one('x', 'x', %s, 'design_complete', 'ann', %s, NULL)", (story, Jsonb({key: ["ann"]}))
        )
