"""Approvals: those that wait for a decision, and the decision."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import HeldTrigger, Taken, Text, TriggerReceipt
from interlock.api.outcomes import ACCEPTED, told
from interlock.api.paging import Paging
from interlock.api.parameters import WAIT_SECONDS, IdempotencyKey, Wait, one_key, page
from interlock.api.problems import JsonAnswer, documented
from interlock.api.rows import page_model
from interlock.db.connection import transaction
from interlock.db.core import approvals
from interlock.db.core.portions import Portion
from interlock.workers.client.receipts import Receipt
from interlock.workflows.errors import UnknownInstance

router = APIRouter(tags=["approvals"])

HELD = HeldTrigger.model_fields


class ApprovalDecision(Taken):
    """A vote on an approval."""

    decision: Literal["approve", "reject"]
    reason: Text = Field("", description="kept in the event")
    request_id: Text = Field("", description="the idempotency key")


@router.get("/approvals", response_model=page_model(HeldTrigger), responses=documented())
async def list_approvals(
    paging: Paging,
    mine: Annotated[bool, Query(description="Only those that the token's name may approve and has not yet.")] = True,
) -> JsonAnswer:
    """List approvals that wait for a decision, newest first."""
    return JsonAnswer(
        await inside(inbox, paging.caller, paging.project, mine=mine, limit=paging.limit, before=paging.before)
    )


def inbox(caller: Caller, project: str | None, *, mine: bool, limit: int, before: UUID | None = None) -> dict[str, Any]:
    """A page of approvals that wait for a decision; arguments as for the route. For use in a greenlet only."""
    by = caller.principal.name if mine else None
    with transaction(caller.access.runtime.database) as connection:
        portion = Portion(caller.projects(project), limit + 1, before)
        found = approvals.pending(connection, portion, decider=by)
        votes: dict[UUID, list[str]] = {each["id"]: [] for each in found}
        for vote in approvals.votes(connection, votes):
            votes[vote["workflow_id"]].append(vote["triggered_by"])
    shown = page([_held(each, votes[each["id"]]) for each in found], limit)
    return shown | {"items": [each for each in shown["items"] if by not in each["votes"]]}


def _held(row: Mapping[str, Any], votes: list[str]) -> dict[str, Any]:
    terms: Mapping[str, Any] = row["context"]
    said = {"quorum": terms.get("quorum", 1), "deciders": terms.get("deciders", []), "votes": votes}
    return {name: said[name] if name in said else row.get(name, terms.get(name)) for name in HELD}


@router.post(
    "/approvals/{approval_id}/decision", response_model=TriggerReceipt, responses=ACCEPTED | documented(409, 410)
)
async def decide_approval(
    caller: Called,
    approval_id: UUID,
    vote: ApprovalDecision,
    key: IdempotencyKey = None,
    wait: Wait = WAIT_SECONDS,
) -> JsonAnswer:
    """Approve or reject. PostgreSQL judges whether the token's name is one of its deciders."""
    fired = await inside(decide, caller, approval_id, vote, one_key(vote.request_id, key))
    (outcome,) = await caller.outcomes([fired], wait, just_fired=True)
    return told(outcome)


def decide(caller: Caller, approval_id: UUID, vote: ApprovalDecision, request_id: str = "") -> Receipt:
    """Fire a vote in the caller's name. For use in a greenlet only.

    Raises:
        UnknownInstance: it is no approval of the caller's projects.
    """
    client = caller.client(ref=approval_id, write=True)
    if client.show(approval_id)["workflow_type"] != "approval":
        raise UnknownInstance(f"There is no approval {approval_id} in the projects of this token.")
    data = {"reason": vote.reason} if vote.reason else {}
    return client.fire(approval_id, vote.decision, by=caller.principal.name, request_id=request_id, data=data)
