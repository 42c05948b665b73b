"""A worker speaks for itself: by the secret that it got as it registered (AUTHORITY-15)."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core import requests
from interlock.db.schema import in_schema

_REQUIRE = in_schema("SELECT interlock.as_itself(%(worker_id)s, %(secret)s, %(deed)s)")


@contextmanager
def refusing(worker_id: UUID, secret: str, deed: str) -> Iterator[None]:
    """Raise `NotYours` where PostgreSQL refuses a deed in a worker's name.

    Args:
        worker_id: the worker.
        secret: what is to prove that it is the worker itself.
        deed: what is done in its name, a verb.
    """
    with requests.refusing("as_itself", [{"workflow_id": worker_id, "proof": secret, "trigger": deed}]):
        yield


def require(connection: Connection, worker_id: UUID, secret: str, deed: str) -> None:
    """Raise `NotYours` unless the secret is the worker's. Takes what `refusing` takes."""
    with refusing(worker_id, secret, deed):
        connection.exec_driver_sql(_REQUIRE, {"worker_id": worker_id, "secret": secret, "deed": deed})
