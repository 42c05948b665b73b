"""Fire triggers that are closed to callers, with the proof that the part has which fires them."""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Connection, RowMapping

from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.db.core.request_rows import Right, as_found, internal, itself, of_claim, of_lease
from interlock.db.operations import operators
from interlock.db.orchestration.claim_triggers import start_id
from interlock.db.retry import retried
from interlock.workers.client.client import Client
from interlock.workers.client.operations import fire_by_right
from interlock.workers.client.receipts import Receipt, receipt
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.engine.worker_secrets import digest_of
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.operators import grant_each
from interlock.workers.pool.registration import Registration
from interlock.workers.runtime import Runtime
from tests.tampering import unprotected

BEGUN = ("running", "validating", "retrying", "completed", "failed")
SECRET = "s" * 43  # of the workers that tests create without registering them
OF_SECRET = digest_of(SECRET)  # what their contexts say of it
_registered: dict[UUID, Registration] = {}
REPORTS = ("execution_completed", "execution_failed", "timeout_exceeded")


def remember(made: Registration) -> UUID:
    """Keep a worker's registration, for `known`; its id."""
    _registered[made.worker_id] = made
    return made.worker_id


def known(worker: UUID) -> Registration:
    """A worker's registration, or that of one that was created with `OF_SECRET`."""
    return _registered.get(worker, Registration(worker, SECRET))


def fire(
    client: Client,
    ref: str | UUID,
    trigger: str,
    *,
    by: str,
    data: Mapping[str, Any] | None = None,
    request_id: str = "",
    after: timedelta | None = None,
    if_version: int | None = None,
) -> Receipt:
    """As `Client.fire`, by right of what may fire it: Interlock itself, an effect's lease, a claim, an operator."""
    with transaction(client.runtime.database) as connection:
        found = instances.find(connection, ref, client.project)
        allowed = client.runtime.catalogue.get(found["workflow_type"], found["definition_version"]).authorities.get(
            trigger, ("anyone",)
        )
        said = dict(data or {})
        right = right_to(client, connection, found, allowed, said.get("worker_id"))
    if right is None and "operator" in allowed:
        grant(client, by)
        said.setdefault("reason", "a test")
    elif right is None and "holder" in allowed:  # a worker, by itself
        by, right = found["entity_id"], itself(known(found["id"]).secret)
    firing = Firing(ref, trigger, by, request_id, said, after)
    if found["workflow_type"] == "refusal_log":
        return _refused(client, found["id"], firing)
    if right is None:
        return client.fire(ref, trigger, by=by, request_id=request_id, data=said, after=after, if_version=if_version)
    receipt = fire_by_right(client, firing, right)

    def end(_: object) -> None:
        with transaction(client.runtime.database) as connection:  # as whoever reports does in one commit
            _end(connection, right, found["id"] if trigger in REPORTS else None, begun=found["current_state"] in BEGUN)

    retried(end)  # others may hold the worker's row and want the claim's
    return receipt


def _refused(client: Client, log: UUID, firing: Firing) -> Receipt:
    """The event of a refusal that did not happen, as if PostgreSQL had recorded one in this transaction."""
    request = internal(
        uuid4().hex, log, firing.trigger, by=firing.by, right=Right("machinery", "refusal"), origin="agent"
    )
    recorded = (
        "INSERT INTO interlock.refusal_counts (login, project, log_id, request_id, xid)"
        " VALUES (session_user, %s, %s, %s, pg_current_xact_id())"
    )
    with transaction(client.runtime.owned) as connection:
        connection.exec_driver_sql(recorded, (uuid4().hex, log, request["request_id"]))
        accepted = requests.accept(connection, [{**request, "metadata": firing.data}])
    return receipt(accepted[request["request_id"]])


def fire_all(client: Client, firings: Iterable[Firing]) -> None:
    """As `Client.fire_many`, by right of what may fire each."""
    for each in firings:
        fire(client, each.ref, each.trigger, by=each.by, data=each.data, request_id=each.request_id)


def grant(client: Client, *names: str) -> None:
    """Make people operators, in the name of one if there are any."""
    operate(client.runtime, *names)


def operate(runtime: Runtime, *names: str) -> None:
    """As `grant`."""
    with at_once(runtime) as acting:
        present = operators.grants(acting.connection)
        by = present[0]["name"] if present else "the tests"
        grant_each(acting, names, by=by, reason="a test")


def end_at(dba: "psycopg.Connection[Any]", instant: str, where: str = "state = 'active'") -> None:
    """Let grants end at another instant than they were given for, as if they had been: an SQL expression."""
    with unprotected(dba, "operators", "workflow_transitions"):
        dba.execute(f"UPDATE operators SET until = {instant} WHERE {where}")
        dba.execute(
            "UPDATE workflow_transitions t SET metadata = jsonb_set(metadata, '{terms,until}', to_jsonb(o.until))"
            " FROM operators o WHERE o.grant_id = t.workflow_id AND o.until IS NOT NULL"
        )


def right_to(
    client: Client, connection: Connection, found: RowMapping, allowed: Collection[str], worker: Any
) -> Right | None:
    """A right to a trigger, with a lease or a claim made for it; None if a caller's name is enough."""
    if "anyone" in allowed or "decider" in allowed:
        return None
    if found["workflow_type"] == "deprecation" or (
        found["workflow_type"] == "operator_grant" and "operator" in allowed and operators.grants(connection)
    ):
        return None
    if "machinery" in allowed:
        return as_found(found["version"])
    if "effect" in allowed:
        return of_lease(_lease(connection, found), 1)
    if found["workflow_type"] != "task":
        return None
    with transaction(client.runtime.owned) as owned:
        return of_claim(_claim(owned, found, worker))


def _end(connection: Connection, right: Right, task: UUID | None, *, begun: bool) -> None:
    if right.authority == "effect":
        done = "UPDATE interlock.effects SET status = 'done', lease_until = NULL, finished_at = now() WHERE id = %s"
        connection.exec_driver_sql(done, (str(right.proof).split(":")[1],))
        return
    if task is None:
        return
    connection.exec_driver_sql(_WHOSE, (task,))
    if begun or _begins(connection, task):
        connection.exec_driver_sql("UPDATE interlock.task_claims SET ended_at = now() WHERE task_id = %s", (task,))
    else:  # who reports on what was never begun had no claim: it was made for this
        connection.exec_driver_sql("DELETE FROM interlock.task_claims WHERE task_id = %s AND ended_at IS NULL", (task,))


def _begins(connection: Connection, task: UUID) -> bool:
    """Whether a task was begun meanwhile, or is about to be: then the report counts, and so does the claim."""
    asked = (
        "SELECT EXISTS (SELECT FROM interlock.trigger_requests WHERE workflow_id = %s AND trigger = 'worker_started'"
        " AND status IN ('pending', 'applied'))"
    )
    return bool(connection.exec_driver_sql(asked, (task,)).scalar_one())


def _lease(connection: Connection, found: RowMapping) -> UUID:
    effect = uuid4()
    connection.exec_driver_sql(
        "INSERT INTO interlock.effects (id, workflow_id, version, name, status, token, leased_by, lease_until)"
        " VALUES (%s, %s, %s, 'notice', 'leased', 1, 'test', now() + interval '1 hour')",
        (effect, found["id"], found["version"]),
    )
    return effect


# Workers are locked before their claims, everywhere.
_WHOSE = """
SELECT FROM interlock.workers
 WHERE worker_id IN (SELECT worker_id FROM interlock.task_claims WHERE task_id = %s AND ended_at IS NULL)
   FOR NO KEY UPDATE"""
_ROOM = "UPDATE interlock.workers SET max_concurrent_tasks = max_concurrent_tasks + 1 WHERE worker_id = %s"


def _claim(owned: Connection, found: RowMapping, worker: Any) -> int:
    """The token of the task's open claim, or of a new one, in whatever state the task is: the owner may insert one.

    `worker`: whose; None: of any whose secret the tests have.
    """
    open_ = "SELECT token FROM interlock.task_claims WHERE task_id = %s AND revoked_at IS NULL AND ended_at IS NULL"
    take = (
        "INSERT INTO interlock.task_claims (task_id, run_id, worker_id)"
        " SELECT task_id, run_id, %s FROM interlock.tasks WHERE task_id = %s"
        " ON CONFLICT (task_id) WHERE revoked_at IS NULL AND ended_at IS NULL DO NOTHING"
        " RETURNING claim_id, token, task_id"
    )
    while (token := owned.exec_driver_sql(open_, (found["id"],)).scalar()) is None:  # or another's, at once
        by = UUID(str(worker or _hand(owned).worker_id))
        owned.exec_driver_sql(_ROOM, (by,))
        for taken in owned.exec_driver_sql(take, (by, found["id"])).all():
            _ask_for_start(owned, by, *taken)
    return int(token)


def _ask_for_start(connection: Connection, worker: UUID, claim: int, token: int, task: UUID) -> None:
    """Ask for what a claim asks for, and supersede it: the test fires what it tries itself."""
    right, said = of_claim(token), {"worker_id": str(worker)}
    start = internal(start_id(claim), task, "worker_started", by="test", right=right, metadata=said)
    requests.accept(connection, [start])
    connection.exec_driver_sql(
        "UPDATE interlock.trigger_requests SET status = 'superseded', finished_at = now() WHERE request_id = %s",
        (start["request_id"],),
    )


def _hand(connection: Connection) -> Registration:
    born = "SELECT id, context FROM interlock.workflow_instances WHERE workflow_type = 'worker'"
    found = connection.exec_driver_sql(born)
    hands = [known(id_) for id_, said in found if digest_of(known(id_).secret).items() <= said.items()]
    assert hands, "there is no worker whose secret the tests have"
    return hands[0]


# The request that an event of raw SQL needs, of a trigger open to everyone, by `dba`: for a WITH.
ASKED = """asked AS (
    INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by)
    VALUES (gen_random_uuid()::text, '', %(id)s, %(trigger)s, 'dba') RETURNING request_id
)"""
