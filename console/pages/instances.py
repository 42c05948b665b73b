"""Instances: the list, and one with its diagram, its triggers and its history."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from interlock.api.inside import inside
from interlock.api.parameters import Asked, Before
from interlock.api.parameters import page as keyset
from interlock.console.machines import graph, kind_of, kinds, offers
from interlock.console.rendering import page, say
from interlock.console.session import Lister, Visitor
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.core.portions import Portion
from interlock.workers.client.receipts import Receipt
from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.errors import BadInput, UnknownWorkflow
from interlock.workflows.input.json_text import read

router = APIRouter()

ROWS = 50
EVENTS = 200  # of the newest of an instance
VERIFIED = 5_000  # events that a page verifies; it is asked for anew whenever something moves
WAIT_SECONDS = 3.0


@router.get("/instances")
async def list_instances(  # noqa: PLR0917 - its filters
    request: Request,
    caller: Lister,
    type: Asked = None,
    state: Asked = None,
    name: Asked = None,
    before: Before = None,
) -> Response:
    """The newest instances that match."""
    wanted = {"type": type, "state": state, "name": name}

    def listed() -> list[InstanceRow]:
        with transaction(caller.access.runtime.database) as connection:
            portion = Portion(caller.principal.projects, ROWS + 1, before)
            states = [state] if state else ()
            return instances.page(connection, portion, type_=type or None, name=name or None, states=states)

    found = keyset(await inside(listed), ROWS)
    catalogue = caller.access.runtime.catalogue
    types = sorted(catalogue.newest)
    return page(
        request,
        "instances.html",
        found=found["items"],
        next=found["next"],
        wanted=wanted,
        types=types,
        kinds=kinds(catalogue, found["items"]),
    )


@router.get("/instances/{id_}")
async def show_instance(request: Request, caller: Visitor, id_: UUID) -> Response:
    """One instance."""

    def look() -> dict[str, Any]:
        with caller.located(str(id_), None) as (client, ref):
            shown = caller.shown(client, ref)
            events = client.history(ref, after_seq=max(0, shown["version"] - EVENTS))
            return {"shown": shown, "events": events}

    found = await inside(look) | {"problems": await caller.verified(str(id_), None, most=VERIFIED)}
    shown, catalogue = found["shown"], caller.access.runtime.catalogue
    try:
        definition = catalogue.get(shown["workflow_type"], shown["definition_version"])
    except UnknownWorkflow:
        return page(request, "instance.html", **found, kind="", graph=None, now=[], later=[], kinds={}, linked={})
    every = list(offers(definition, shown, caller.principal))
    return page(
        request,
        "instance.html",
        **found,
        kind=kind_of(definition, shown["current_state"]),
        graph=graph(definition),
        now=[each for each in every if each.legal],
        later=[each for each in every if not each.legal],
        kinds={each: kind_of(definition, each) for each in definition.states},
        linked=kinds(catalogue, shown["links"]),
    )


@router.post("/instances/{id_}/fire")
async def fire(  # noqa: PLR0917 - its fields
    request: Request,
    caller: Visitor,
    id_: UUID,
    trigger: Annotated[str, Form()],
    reason: Annotated[str, Form()] = "",
    data: Annotated[str, Form()] = "",
    if_version: Annotated[int | None, Form()] = None,
) -> Response:
    """Fire a trigger, in the session's name, if the instance is still as the page showed it."""
    given = _data(data) | ({"reason": reason} if reason else {})

    def accept() -> Receipt:
        with caller.located(str(id_), None, write=True) as (client, ref):
            return client.fire_many([Firing(ref, trigger, caller.principal.name, data=given, if_version=if_version)])[0]

    (outcome,) = await caller.outcomes([await inside(accept)], WAIT_SECONDS, just_fired=True)
    return told(request, outcome)


def _data(text: str) -> dict[str, Any]:
    """What was typed as data. Raises `BadInput` if it is no JSON object."""
    try:
        found = read(text) if text.strip() else {}
    except ValueError as error:
        raise BadInput(f"data is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput('data must be a JSON object, such as {"note": "ready"}')
    return found


def told(request: Request, outcome: Receipt) -> Response:
    """What became of a fired trigger."""
    result = outcome.result or {}
    words = str(result.get("message") or outcome.error or "")
    match outcome.status:
        case "applied" if result.get("from") == result.get("to"):
            return say(request, f"{outcome.trigger} is applied", f"It stays in {result.get('to')}.")
        case "applied":
            return say(request, f"{outcome.trigger}: {result.get('from')} → {result.get('to')}")
        case "waiting":
            return say(request, f"{outcome.trigger} is held", words, kind="held")
        case "rejected" | "superseded" | "dead":
            title = (
                f"{outcome.trigger} was refused"
                if outcome.status == "rejected"
                else f"{outcome.trigger}: {outcome.status}"
            )
            return say(request, title, words, kind="problem", status=409, legal=result.get("legal"))
    return say(
        request, f"{outcome.trigger} is accepted", "It is not applied yet; this page shows when it is.", kind="held"
    )
