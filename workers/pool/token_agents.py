"""The worker that a token's holder is: an agent over HTTP or MCP claims tasks as a `uet_worker` of its token's name.

It has no secret to keep: its worker's is derived from the token, which whoever speaks for it presents anyway. So any
process with the token is the same worker, also after a restart, and none with another token is.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import digest
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.orchestration import itself, workers
from interlock.workers.client.operations import Operations
from interlock.workers.client.partition_drainer import settle
from interlock.workers.engine.worker_secrets import digest_of
from interlock.workers.pool.agent import Agent, ShutDown
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, NotYours, UnknownInstance

TYPE = "uet_worker"
ENDED = "TERMINATED"


@dataclass(frozen=True, slots=True)
class AgentDescription:
    """What an agent says of itself.

    Attributes:
        capabilities: what it can do; none of them begins with `interlock:`.
        affinity: `{"workstreams": [names or ids], "phases": [names]}` to take tasks of these only (WORKER-3).
    """

    capabilities: Sequence[str] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)


def secret_of(token: str, project: str) -> str:
    """The secret of a token's worker in a project: HMAC-SHA256 (RFC 2104), in 43 characters of base64url."""
    made = digest(token.encode(), f"worker of {project}".encode(), "sha256")
    return urlsafe_b64encode(made).decode().rstrip("=")


def register(client: Operations[Any], name: str, description: AgentDescription, secret: str) -> tuple[UUID, bool]:
    """Register an agent; one that lives already is left as it is.

    Args:
        client: acts for the token's holder, in the project whose tasks the agent takes.
        name: the token's.
        description: of itself. Ignored if it lives already.
        secret: `secret_of` its token.

    Returns:
        The worker's id, and whether it is new. The worker of an earlier registration that ended is replaced by one of
        the name NAME#2, NAME#3, …

    Raises:
        AlreadyExists: a worker of that name lives, whose token is another.
        BadInput: a capability or the affinity is not valid.
    """
    runtime = client.runtime
    latest = _latest(runtime, name, client.project)
    if latest is not None and latest["state"] != ENDED:
        worker_id: UUID = latest["worker_id"]
        _require_same(runtime, worker_id, secret, name)
        if latest["state"] != "SPAWNING":
            return worker_id, False
    else:
        life = 1 if latest is None else int(latest["name"].partition("#")[2] or 1) + 1
        context = {
            "capabilities": list(description.capabilities),
            "affinity": dict(description.affinity),
            "worker_type": "agent",
            **digest_of(secret),
        }
        called = name if life == 1 else f"{name}#{life}"
        worker_id = client.create(TYPE, called, context=context, by=name)["id"]
    ready = client.fire(worker_id, "initialization_complete", by=name, proof=f"secret:{secret}")
    settle(runtime, ready.request_id, worker_id)
    return worker_id, True


def registered(runtime: Runtime, name: str, project: str, secret: str) -> Agent:
    """A registered agent, to speak for.

    Raises:
        UnknownInstance: it has not registered in that project.
        ShutDown: it was silent for too long, or has left.
    """
    found = _latest(runtime, name, project)
    if found is None:
        raise UnknownInstance(f"{name!r} is no agent in project {project!r} yet: register first.")
    if found["state"] == ENDED:
        raise ShutDown(f"agent {name!r} has ended: it left, or was silent for too long. Register again.")
    return Agent.called(str(found["worker_id"]), secret=secret, runtime=runtime)


def _latest(runtime: Runtime, name: str, project: str) -> RowMapping | None:
    with transaction(runtime.database) as connection:
        return workers.find_by_name(connection, name, project=project)


def _require_same(runtime: Runtime, worker_id: UUID, secret: str, name: str) -> None:
    try:
        with transaction(runtime.database) as connection:
            itself.require(connection, worker_id, secret, "register")
    except NotYours:
        raise AlreadyExists(
            f"agent {name!r} lives already, by another token. Use that one, or wait until its silence has ended it."
        ) from None
