"""Rows of the triggers that Interlock fires itself, for `requests.accept`."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from uuid import UUID

from interlock.workflows.definition import Authority
from interlock.workflows.input import names

Origin = Literal["agent", "follow_up", "override", "timer"]


class Right(NamedTuple):
    """By which right a trigger is fired, and what proves that; PostgreSQL checks it (`authority.sql`).

    `version`: that of the instance which the right is for; the request is bound to it.
    """

    authority: Authority
    proof: str | None = None
    version: int | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a request that say so."""
        return {"authority": self.authority, "proof": self.proof, "bound_version": self.version}


OPERATOR = Right("operator")  # PostgreSQL looks the grant up


def of_claim(token: int) -> Right:
    """The right of who holds a task."""
    return Right("holder", f"claim:{token}")


def itself(secret: str) -> Right:
    """The right of a worker to fire its own triggers."""
    return Right("holder", f"secret:{secret}")


def of_lease(effect_id: UUID, token: int) -> Right:
    """The right of who runs an effect."""
    return Right("effect", f"lease:{effect_id}:{token}")


def by_claim(claim_id: int) -> Right:
    """Interlock's right to move a worker that took or ended a claim."""
    return Right("machinery", f"claim:{claim_id}")


def by_state(version: int) -> Right:
    """Interlock's right to move an instance on from a version, to which the request is bound."""
    return Right("machinery", f"state:{version}", version)


def as_found(version: int) -> Right:
    """Interlock's right to move an instance that it found at a version, also if it has moved on since."""
    return by_state(version)._replace(version=None)


def by_run(run_id: UUID) -> Right:
    """The scheduler's right to move its run and the run's parts."""
    return Right("machinery", f"run:{run_id}")


def by_worker(worker_id: UUID) -> Right:
    """Interlock's right to move a worker as it comes and goes."""
    return Right("machinery", f"worker:{worker_id}")


def own_id(*parts: object) -> str:
    """The request_id of a trigger of Interlock's own that is made of known parts: no caller can take it first."""
    return names.OWN_IDS + ":".join(map(str, parts))


def internal(
    request_id: str,
    workflow_id: UUID,
    trigger: str,
    *,
    by: str,
    right: Right,
    origin: Origin = "follow_up",
    version: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The row of a trigger whose request_id alone identifies a repetition: it is its own fingerprint.

    Args:
        request_id: the idempotency key: a UUID, or an `own_id`.
        workflow_id, trigger, by: what is fired on which instance, in whose name.
        right: by which right.
        origin: what kind of cause it has.
        version: the version of the instance that it is bound to, if not the right's: if the instance has moved since,
            it is superseded.
        metadata: kept in the event.
        more: other columns that `requests.accept` writes: `delay_seconds`, `trace`.
    """
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": workflow_id,
        "trigger": trigger,
        "triggered_by": by,
        **right.columns,
        "origin": origin,
        "bound_version": right.version if version is None else version,
        "metadata": metadata or {},
        **more,
    }
