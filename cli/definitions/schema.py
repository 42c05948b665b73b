"""`interlock definitions schema`: the JSON Schema of a type's context and of its triggers' data."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from interlock.cli.lib.output import print_json
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings
from interlock.workflows import typed
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NOT_SHOWN = typed.TEXTS | {"type", "format", "$ref", "items", "properties", "additionalProperties"}


def schema(
    type_: Annotated[
        str, typer.Argument(metavar="TYPE", help="A workflow type; `interlock definitions list` names them.")
    ],
    trigger: Annotated[str, typer.Argument(metavar="[TRIGGER]", help="Only its data.")] = "",
    version: Annotated[str, typer.Option("--version", help="Its version; default: the newest.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON is the only format; accepted for consistency.")] = True,
) -> None:
    """Print the JSON Schema of a type's context and of its triggers' data, or of one trigger's data alone. What has no
    model is null: it is any JSON object.

    \b
    Examples:
      interlock definitions schema deploy
      interlock definitions schema deploy start > start.schema.json
    """
    definition = Runtime(settings()).catalogue.get(type_, version or None)
    if not trigger:
        print_json(_all(definition))
        return
    definition.require_trigger(trigger)
    if (model := definition.data.get(trigger)) is None:
        raise BadInput(f"{trigger} of {definition.type} {definition.version} has no model: its data is any JSON object")
    print_json(_one(model))


def _all(definition: Definition) -> dict[str, Any]:
    return {
        "type": definition.type,
        "version": definition.version,
        "context": _one(definition.context) if definition.context else None,
        "data": {trigger: _one(model) for trigger, model in definition.data.items()},
    }


def _one(model: typed.Model) -> dict[str, Any]:
    return {"$schema": DRAFT, **typed.schema(model)}


def model_rows(definition: Definition) -> Iterator[dict[str, str]]:
    """Each field of the definition's models as a row for people: of what it is, its name, and what it must be."""
    models = [("context", definition.context)] if definition.context else []
    models += [(f"data of {trigger}", model) for trigger, model in definition.data.items()]
    for of, model in models:
        required = typed.schema(model).get("required", ())
        for name, each in typed.properties(model).items():
            yield {
                "of": of,
                "field": name,
                "required": "yes" if name in required else "",
                "must_be": _said(each),
                "means": each.get("description", ""),
                "deprecated": _deprecated(model, name) if each.get("deprecated") else "",
            }


def _said(schema: Mapping[str, Any]) -> str:
    """A field's schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(_said(each) for each in schema["anyOf"])
    kind = str(schema.get("format") or schema.get("type") or str(schema.get("$ref", "anything")).rsplit("/", 1)[-1])
    if kind == "array":
        kind = f"list of {_said(schema.get('items', {}))}"
    shown = [f"{key} {json.dumps(each)}" for key, each in schema.items() if key not in NOT_SHOWN]
    return ", ".join([kind, *shown])


def _deprecated(model: typed.Model, name: str) -> str:
    said = next((each for key, each in model.model_fields.items() if (each.alias or key) == name), None)
    return (said and said.deprecation_message) or "yes"
