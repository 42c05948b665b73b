"""Definitions: the machines that this server knows."""

from typing import Any

from fastapi import APIRouter

from interlock.api.access import Called, Caller
from interlock.api.models import DefinitionDetail, DefinitionList, Text
from interlock.api.parameters import Asked
from interlock.api.problems import JsonAnswer, documented
from interlock.workflows.errors import UnknownInstance, UnknownWorkflow
from interlock.workflows.versioning.export import checksum, recorded

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


def _shown(caller: Caller, type_: str, version: str | None) -> dict[str, Any]:
    try:
        definition = caller.access.runtime.catalogue.get(type_, version)
    except UnknownWorkflow as unknown:
        raise UnknownInstance(str(unknown)) from unknown
    return recorded(definition) | {"checksum": checksum(definition)}
