"""Commands that are offered to people, as requests of this API."""

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, Field

from interlock.workflows.output.suggestions import OfferedCommand

PREFIX = "/api"
OWN = ("reason", "if_version")  # options that are members of the body, too


class OfferedRequest(BaseModel):
    """The request of this API that does what a command does."""

    method: Literal["GET", "POST"]
    path: str
    body: dict[str, Any] | None = Field(description="`WHY` stands for the reason, which is yours to give")


class _Written(NamedTuple):
    method: str
    path: str
    body: dict[str, Any] | None = None


def as_request(command: str, project: str) -> dict[str, Any] | None:
    """The request that does what a command does, for the token's holder; None: there is none, or it is several."""
    if not isinstance(command, OfferedCommand):
        return None
    found = _written(command.words, command.options, quote(str(command.options.get("project", project)), safe=""))
    return None if found is None else found._replace(path=PREFIX + found.path)._asdict()


def _written(words: tuple[str, ...], options: Mapping[str, Any], project: str) -> _Written | None:  # noqa: PLR0911 - one a command
    own = {name: options[name] for name in OWN if options.get(name) is not None}
    match words:
        case ("fire", ref, trigger):
            return _fired(ref, trigger, own, json.loads(options.get("data") or "{}"))
        case ("redrive", id_):
            return _Written("POST", f"/dead/redrive?project={project}", {"ids": [id_]} | own)
        case ("brake", "release", name):
            return _Written("POST", f"/brakes/{_in_path(name)}/release?project={project}", own)
        case ("breaker", "reset", tool):
            return _Written("POST", f"/breakers/{_in_path(tool)}/reset?project={project}", {"reason": "WHY"} | own)
        case ("override", act, ref):
            return _Written("POST", f"/overrides/{_in_path(act)}", {"instance": ref} | own)
        case ("phase", "thaw", name):
            return _Written("POST", f"/phases/{_in_path(name)}/thaw?project={project}", own)
        case ("worker", "resume" as trigger, ref) | ("regression", "approve" as trigger, ref):
            return _fired(ref, trigger, own, {})
        case ("job", "validate", ref):
            return _Written("POST", f"/jobs/{_in_path(ref)}/validate", {})
        case ("schedule" | "subscription" as type_, "show", name):
            return _Written("GET", f"/instances/{type_}/{_in_path(name)}?project={project}")
        case ("show", ref) | ("job", "show", ref):
            return _Written("GET", f"/instances/{quote(ref, safe='/')}")
        case ("breaker", "show", tool):
            return _Written("GET", f"/breakers/{_in_path(tool)}?project={project}")
        case ("limit", "show", *_):
            return _Written("GET", f"/limits?project={project}")
    return None


def _fired(ref: str, trigger: str, own: Mapping[str, Any], data: Mapping[str, Any]) -> _Written:
    said = {**data, "reason": own["reason"]} if "reason" in own else data
    order = {"instance": ref, "trigger": trigger} | {name: own[name] for name in own if name != "reason"}
    return _Written("POST", "/triggers", order | ({"data": said} if said else {}))


def _in_path(name: str) -> str:
    return quote(name, safe="")
