"""Definitions: the machines that this server knows."""

from typing import Any

from fastapi import APIRouter

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.models import DefinitionDetail, DefinitionList, StateDiagram, Text
from interlock.api.parameters import Asked, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.workflows.definition import Definition
from interlock.workflows.errors import UnknownInstance, UnknownWorkflow
from interlock.workflows.versioning.export import checksum, mermaid, recorded

router = APIRouter(tags=["definitions"])


@router.get("/definitions", response_model=DefinitionList, responses=documented())
async def list_definitions(caller: Called) -> JsonAnswer:
    """List every version of every machine."""
    known = caller.access.runtime.catalogue
    rows = [
        {"type": each.type, "version": each.version, "summary": each.summary, "checksum": checksum(each)}
        for each in known
    ]
    return JsonAnswer({"items": rows})


@router.get("/definitions/{type}", response_model=DefinitionDetail, responses=documented())
async def show_definition(caller: Called, type: Text, version: Asked = None) -> JsonAnswer:
    """Show a machine: its states, its moves, and who may make them; of an older version if one is named."""
    return JsonAnswer(_shown(caller, type, version))


@router.get("/definitions/{type}/diagram", response_model=StateDiagram, responses=documented())
async def draw_definition(caller: Called, type: Text, version: Asked = None) -> JsonAnswer:
    """Draw a machine as a Mermaid state diagram."""
    return JsonAnswer({"mermaid": mermaid(_known(caller, type, version))})


@router.get("/diagrams/{ref:path}", response_model=StateDiagram, responses=documented(409))
async def draw_instance(caller: Called, ref: str, project: Project = None) -> JsonAnswer:
    """Draw an instance's machine as a Mermaid state diagram, its current state lit."""

    def read() -> str:
        with caller.located(ref, project) as (client, found):
            shown = client.show(found)
        definition = _known(caller, shown["workflow_type"], shown["definition_version"])
        return mermaid(definition, shown["current_state"])

    return JsonAnswer({"mermaid": await inside(read)})


def _shown(caller: Caller, type_: str, version: str | None) -> dict[str, Any]:
    definition = _known(caller, type_, version)
    return recorded(definition) | {"checksum": checksum(definition)}


def _known(caller: Caller, type_: str, version: str | None) -> Definition:
    try:
        return caller.access.runtime.catalogue.get(type_, version)
    except UnknownWorkflow as unknown:
        raise UnknownInstance(str(unknown)) from unknown
