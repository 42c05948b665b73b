"""Approvals: those that wait for a decision, and what each decides on. A vote is fired as any trigger is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from interlock.api.access import Caller
from interlock.api.inside import inside
from interlock.api.routes.approvals import inbox
from interlock.console.rendering import page
from interlock.console.session import Lister, Visitor
from interlock.db.connection import transaction
from interlock.db.core import approvals, instances
from interlock.db.orchestration import patches
from interlock.workflows.errors import UnknownInstance

router = APIRouter()

PAGE = 50
TERMS = ("trigger", "subject", "requested_by", "author", "deciders", "quorum")
HELD = 20  # of the triggers that one approval holds


@dataclass(frozen=True, slots=True)
class ApprovalSubject:
    """What an approval decides on: the instance, the triggers that wait for it, and the diffs that would land."""

    instance: Mapping[str, Any] | None
    held: Sequence[Mapping[str, Any]]
    diffs: list[patches.PatchDiff]


@router.get("/approvals")
async def list_approvals(request: Request, caller: Lister, all: bool = False, before: UUID | None = None) -> Response:
    """The inbox: what the visitor may decide; with `all`, what waits for others too."""
    found = await inside(inbox, caller, None, mine=not all, limit=PAGE, before=before)
    items = [each | {"why_not": why_not(caller, each)} for each in found["items"]]
    return page(request, "approvals.html", items=items, next=found["next"], everything=all)


@router.get("/approvals/{approval_id}")
async def show_approval(request: Request, caller: Visitor, approval_id: UUID) -> Response:
    """One approval, with what it decides on."""
    shown, subject, votes = await inside(_read, caller, approval_id)
    terms = {name: shown["context"].get(name) for name in TERMS}
    refusal = why_not(caller, terms | {"votes": votes, "project": shown["project"]})
    if shown["current_state"] != "pending":
        refusal = f"It is decided: {shown['current_state']}."
    return page(request, "approval.html", approval=shown, terms=terms, subject=subject, votes=votes, why_not=refusal)


def why_not(caller: Caller, approval: Mapping[str, Any]) -> str:
    """Why the visitor may not vote on an approval; empty: they may. PostgreSQL judges the vote itself."""
    name = caller.principal.name
    if not caller.principal.may_write(approval["project"]):
        return "Your session is read-only."
    if name in approval["votes"]:
        return "You have approved it; others decide with you."
    if name == approval["author"]:
        return "You are its author: somebody else decides."
    if approval["deciders"] and name not in approval["deciders"]:
        return f"Who may: {', '.join(approval['deciders'])}."
    return ""


def _read(caller: Caller, approval_id: UUID) -> tuple[dict[str, Any], ApprovalSubject, list[str]]:
    shown = caller.shown(caller.client(ref=approval_id), approval_id)
    if shown["workflow_type"] != "approval":
        raise UnknownInstance(f"There is no approval {approval_id} in the projects of this session.")
    with transaction(caller.access.runtime.database) as connection:
        held = [dict(each) for each in approvals.waiting_for(connection, approval_id, limit=HELD)]
        named = shown["context"].get("lands") or next((str(each["workflow_id"]) for each in held), None)
        subject_id = instances.as_uuid(str(named)) if named else None
        found = instances.by_ids(connection, [subject_id]).get(subject_id) if subject_id else None
        if found and not caller.principal.may_read(found["project"]):
            found = None
        diffs = patches.diffs(connection, found["id"]) if found else []
        voted = [each["triggered_by"] for each in approvals.votes(connection, [approval_id])]
    votes = voted if shown["current_state"] == "pending" else []
    return shown, ApprovalSubject(found, held, diffs), votes
