"""A sample instance in any state, with typical surroundings: what `interlock stuck` says of it, without a database."""

from collections.abc import Mapping
from typing import Any

from interlock.workers.operations.stuck.facts import Facts
from interlock.workflows.definition import Definition

_WORK: dict[str, Any] = {"run": "RUN", "run_id": "RUN", "run_state": "running", "run_version": 1}
_MEMBERS: dict[str, Any] = {
    "first": {"name": "MEMBER", "state": "queued"},
    "members": "member",
    "unended": {"queued": 1},
    "missing": 0,
}
_DETAILS: Mapping[str, Mapping[str, Any]] = {
    "task": _WORK
    | {
        "ws_id": "WORKSTREAM",
        "workstream": "WORKSTREAM",
        "workstream_state": "executing",
        "workstream_version": 1,
        "kind": "command",
        "claimed_by": None,
        "breaker_until": None,
        "tool": None,
        "limit_key": None,
        "required_capabilities": (),
        "nobody_offers": ("interlock:execute",),
        "able": 0,
        "same": 0,
        "worker": "WORKER",
        "worker_state": "busy",
        "worker_answers": False,
        "heartbeat_seconds": 0.0,
        "retry_count": 1,
        "max_retries": 3,
        "last_error": "",
    },
    "workstream": _WORK | _MEMBERS,
    "run": _MEMBERS,
    "worker": {"name": "WORKER", "seconds": 0.0},
    "approval": {"releases": True},
}


def sample(definition: Definition, state: str) -> Facts:
    """An instance that has been in `state` for too long: what it names is unfinished, and nothing is due."""
    instance = {
        "id": "ID",
        "workflow_type": definition.type,
        "entity_id": "NAME",
        "project": "PROJECT",
        "current_state": state,
        "version": 1,
        "context": {"tool_id": "TOOL"},
    }
    links = [
        {
            "role": link.role,
            "id": "OTHER",
            "workflow_type": link.type,
            "entity_id": "OTHER",
            "current_state": "waiting",
            "version": 1,
        }
        for link in definition.links
    ]
    legacy = definition.version.startswith("0.")  # those have no typed rows
    details = {} if legacy else _DETAILS.get(definition.type, {})
    asked = {"ID": {"author": None, "deciders": (), "quorum": 1, "voters": frozenset()}}
    return Facts(instance, definition, links=links, details=details, approvals=asked)
