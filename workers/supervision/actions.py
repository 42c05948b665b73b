"""One action: fires its trigger, applies it, and returns the recorded response. The same request_id acts once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from secrets import token_hex
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import RowMapping
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.db.core.portions import Portion
from interlock.db.core.request_rows import Right, as_found, internal, itself
from interlock.db.operations import operators
from interlock.db.orchestration import jobs
from interlock.workers.client.client import Client
from interlock.workers.client.operations import by_token, fire_by_right
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.client.receipts import SETTLED, Receipt
from interlock.workers.engine import worker_secrets
from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.errors import Attempt, BadInput, IllegalTransition, InterlockError, NotYours, RequestConflict
from interlock.workflows.fields import SECRET
from interlock.workflows.input import names
from interlock.workflows.input.arguments import FreeText, door, record

WAIT_SECONDS = 30.0


class ActionFailed(InterlockError):
    """The accepted trigger was not applied: its attempts are used up (fix the named cause, then `interlock redrive`),
    or it is held, and goes on once that which holds it lets go.

    Attributes:
        receipt: of the trigger.
    """

    def __init__(self, receipt: Receipt) -> None:
        why = receipt.error or (receipt.result or {}).get("message") or receipt.status
        super().__init__(f"{receipt.trigger}: {why} (request {receipt.request_id})")
        self.receipt = receipt


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an action.

    Attributes:
        subject: the worker or job, as it is now.
        request_id: of the recorded request; None if nothing was recorded.
        response: the recorded response (`from`, `to`, `seq`, `event_id`), the same for every repetition.
        replayed: this is a repetition.
        secret: of a worker that was just created, which cannot be had again; by that it speaks for itself.
    """

    subject: Mapping[str, Any]
    request_id: str | None
    response: Mapping[str, Any]
    replayed: bool = False
    secret: str | None = field(default=None, repr=False)


@record
@dataclass(frozen=True, slots=True)
class ActionOrder:
    """Who wants an action, why, and under which request_id; without one, each call is a new action.

    Attributes:
        by, reason, request_id: see above.
        secret: of its registration, if a supervised worker itself wants it.

    Raises:
        BadInput: the name, the reason or the secret is not valid.
    """

    by: str
    reason: str | None = None
    request_id: str = ""
    secret: FreeText = field(default="", repr=False)

    def __post_init__(self) -> None:
        names.name("by", self.by)
        if self.reason is not None:
            names.reason("reason", self.reason)
        if self.secret:
            worker_secrets.checked(self.secret)

    def explained(self) -> "ActionOrder":
        """This order, for an action that changes others' work.

        Raises:
            BadInput: it gives no reason.
        """
        if self.reason is None:
            raise BadInput("say why (--reason): this changes what others started")
        return self

    def derived(self, what: str) -> "ActionOrder":
        """The order for a part of this one, with a request_id of its own."""
        return replace(self, request_id=self.request_id and f"{self.request_id}:{what}")


class Actions(ABC):
    """Actions on what is supervised: workers or jobs. `type_` is its machine, and `_page` finds the newest."""

    type_: ClassVar[str]
    _page: ClassVar[Callable[..., Sequence[RowMapping]]]

    def __init__(self, client: Client) -> None:
        self.client = client

    @door
    def show(self, ref: str | UUID) -> dict[str, Any]:
        """A worker as it is now; a job with its workers. Raises `UnknownInstance`."""
        return self._row(self._identified(ref))

    @door
    def newest(self, *, project: str | None = None, status: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest, of one project and of one status if given."""
        portion = Portion([project] if project else None, limit)
        with transaction(self.client.runtime.database) as connection:
            return [dict(row) for row in type(self)._page(connection, portion, status=status)]

    def _identified(self, ref: str | UUID) -> UUID:
        """The id of the one that a REF names. Raises as `db.core.instances.find`."""
        with transaction(self.client.runtime.database) as connection:
            return UUID(str(instances.find(connection, ref, self.client.project, self.type_)["id"]))

    def _act(self, ref: str | UUID, trigger: str, order: ActionOrder, **data: Any) -> Answer:
        receipt = self._perform(ref, trigger, order, **data)
        return Answer(self._row(receipt.workflow_id), receipt.request_id, receipt.result or {}, receipt.replayed)

    def _perform(self, ref: str | UUID, trigger: str, order: ActionOrder, **data: Any) -> Receipt:
        return perform(self.client, self._identified(ref), trigger, order, **data)

    @abstractmethod
    def _row(self, instance_id: UUID) -> dict[str, Any]: ...


def perform(client: Client, instance_id: UUID, trigger: str, order: ActionOrder, **data: Any) -> Receipt:
    """Fire a trigger and see it applied.

    Args:
        client: whose connections.
        instance_id, trigger: the instance, and the trigger to fire.
        order: who, why, and the request_id.
        data: kept in the event's metadata beside the reason.

    Returns:
        The receipt of the applied trigger.

    Raises:
        IllegalTransition: the machine refuses (409); every repetition of the same request_id is refused, too.
        RequestConflict: the request_id was used for another request.
        NotYours: it is not for this person to do (SUPERVISED-7).
        ActionFailed, NotSettled: it could not be applied, or not in time.
    """
    metadata = {name: value for name, value in {"reason": order.reason, **data}.items() if value is not None}
    right = right_to(client, instance_id, trigger, order)
    firing = Firing(instance_id, trigger, order.by, order.request_id, metadata)
    return seen_applied(client, fire_by_right(client, firing, right))


def seen_applied(client: Client, receipt: Receipt) -> Receipt:
    """See an accepted trigger applied; returns its receipt. Raises as `perform` does for what the machine refuses."""
    if receipt.status not in SETTLED:
        Drain(client.runtime).partition(requests.partition_of(receipt.workflow_id))
        (settled,) = client.wait([receipt.request_id], timeout_seconds=WAIT_SECONDS)
        receipt = replace(settled, replayed=receipt.replayed)
    if receipt.status == "rejected":
        result = receipt.result or {}
        raise IllegalTransition(result["message"], state=result["state"], legal=tuple(result.get("legal", ())))
    if receipt.status != "applied":
        raise ActionFailed(receipt)
    return receipt


def born(
    client: Client,
    type_: str,
    prefix: str,
    order: ActionOrder,
    *,
    project: str | UUID | None,
    context: Mapping[str, Any],
) -> tuple[UUID, bool]:
    """Create an instance that is named after its request_id.

    Args:
        client: whose connections.
        type_: its type.
        prefix: see `entity_id`.
        order: who wants it, and the request_id.
        project: the project it belongs to; None: the client's.
        context: see `Client.create`.

    Returns:
        Its id, and whether the same request created it before.

    Raises:
        RequestConflict: the request_id created another instance.
    """
    chosen = names.project_or(project, client.project)
    name = entity_id(prefix, chosen, order.request_id)
    birth = client.birth(type_, name, project=chosen, context=context, by=order.by)
    if not client.create_many([birth]):
        with transaction(client.runtime.database) as connection:
            made = instances.find(connection, birth.entity_id, birth.project, birth.definition.type)
        by_default = birth.context.keys() - context.keys()  # what the settings say of it may have changed since
        stored = {name: value for name, value in made["context"].items() if name not in by_default}
        if (_without_secret(stored), made["created_by"]) != (_without_secret(context), birth.created_by):
            raise RequestConflict(
                f"request_id {order.request_id!r} created {birth.entity_id} before, with other data or by another "
                "actor. Use a new request_id, or repeat the first call unchanged."
            )
        return UUID(str(made["id"])), True
    return birth.id, False


def _without_secret(context: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in context.items() if name != SECRET.name}


def entity_id(prefix: str, project: str, request_id: str) -> str:
    """`w_…`, `j_…` (SUPERVISED-4): always the same for a project's request_id; new each time without one."""
    own = sha256(f"{project}:{request_id}".encode()).hexdigest()[:24] if request_id else token_hex(6)
    return f"{prefix}_{own}"


def right_to(client: Client, instance_id: UUID, trigger: str, order: ActionOrder) -> Right:
    """By which right somebody fires a trigger of a worker or job (SUPERVISED-7).

    Args:
        client: whose connections.
        instance_id, trigger: the worker or job, and the trigger.
        order: who, and a worker's secret.

    Returns:
        `anyone`, where that is enough; `holder`, by a worker's secret that the holder of a token presents, which
        PostgreSQL judges; otherwise Interlock's own, for the version in which the instance was found.

    Raises:
        NotYours: that is neither its supervisor, nor an operator, nor the worker itself where that is enough.
    """
    by = order.by
    with transaction(client.runtime.database) as connection:
        found = instances.by_id(connection, instance_id)
        allowed = client.runtime.catalogue.get(found["workflow_type"], found["definition_version"]).authorities[trigger]
        if "anyone" in allowed:
            return Right("anyone")
        trusted = jobs.trusted(connection, instance_id, secret=order.secret if "holder" in allowed else "")
        if by in trusted or operators.current(connection, [by]):
            return as_found(found["version"])
        if order.secret and "holder" in allowed and by_token(client):
            return itself(order.secret)
        who = "who created it or its job, an operator" + (
            "; the worker itself, by the secret of its registration" if "holder" in allowed else ""
        )
        tried = internal(str(uuid7()), instance_id, trigger, by=by, right=Right("anyone"), origin="agent")
        raise NotYours(
            f"{by} may not fire {trigger} of {found['workflow_type']} {found['entity_id']}. Who may: {who}",
            Attempt("accept_all", [tried]),
        )
