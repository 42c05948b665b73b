"""Django's connection as `session`: what is enqueued commits, or rolls back, with Django's own data."""

from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.conf import settings as django_settings
from sqlalchemy import make_url

from interlock.workers.client.client import Client
from interlock.workflows.errors import BadInput, NotYours
from tests.driving import drain_all, outcome

pytestmark = pytest.mark.integration


@pytest.fixture
def connection(client: Client, dba: Any) -> Iterator[Any]:
    """Django's default connection to Interlock's database, and a table of Django's."""
    dba.execute("CREATE TABLE public.orders (id text, facts jsonb)")
    dba.execute("GRANT ALL ON public.orders TO PUBLIC")
    url = make_url(client.runtime.settings.resolved_database_url())
    if not django_settings.configured:
        django_settings.configure(USE_TZ=True, DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
        django.setup()
    from django.db import connection

    connection.settings_dict |= {
        "NAME": url.database, "USER": url.username, "PASSWORD": url.password or "",
        "HOST": url.host or url.query.get("host", ""), "PORT": url.port or "",
    }  # fmt: skip
    try:
        yield connection
    finally:
        connection.close()
        dba.execute("DROP TABLE public.orders")


def orders(connection: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, facts FROM public.orders ORDER BY id")
        return list(cursor.fetchall())


def order(connection: Any, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO public.orders VALUES (%s, '{\"paid\": true}')", (name,))


def test_what_is_enqueued_commits_with_djangos_data(client: Client, project: str, connection: Any) -> None:
    from django.db import transaction

    with transaction.atomic():
        order(connection, "1")
        made = client.create("story", "S-1", project=project, context={"title": "é"}, session=connection)
        assert made["context"] == {"title": "é"}, "JSON as Interlock reads it"
        receipt = client.fire(made["id"], "design_complete", by="ann", session=connection)
        assert orders(connection) == [("1", '{"paid": true}')], "and as Django does"
    assert outcome(client, receipt.request_id)["status"] == "pending"
    assert connection.get_autocommit()
    with transaction.atomic():
        client.fire(made["id"], "block", by="ann", session=connection)
    assert [each["trigger"] for each in client.show(made["id"])["requests"]] == ["block", "design_complete"]


def test_what_is_enqueued_rolls_back_with_djangos_data_also_to_a_savepoint(
    client: Client, project: str, connection: Any, valkey: Any
) -> None:
    from django.db import transaction

    story = client.create("story", "S-1", project=project)["id"]
    valkey.flushall()
    for outer in (True, False):
        with transaction.atomic():
            order(connection, f"{outer}")
            with transaction.atomic():
                client.fire(story, "block", by="ann", session=connection)
                transaction.set_rollback(True)
            transaction.set_rollback(outer)
    assert [name for name, _ in orders(connection)] == ["False"]
    assert client.show(story)["requests"] == []
    client.runtime.wakeup_sender.flush()
    assert valkey.llen("interlock:triggers") == 0
    with transaction.atomic():
        client.fire(story, "block", by="ann", session=connection)
    client.runtime.wakeup_sender.flush()
    assert valkey.llen("interlock:triggers") == 1, "its wake-up is sent once it is committed"


def test_outside_of_a_transaction_it_is_refused(client: Client, story: Any, connection: Any) -> None:
    with pytest.raises(BadInput, match=r"call this inside `transaction.atomic\(\)`"):
        client.fire(story, "block", by="ann", session=connection)


def test_a_refusal_is_told_and_recorded(client: Client, project: str, connection: Any, dba: Any) -> None:
    from django.db import transaction

    story = client.create("approval", "A-1", project=project)["id"]
    with pytest.raises(NotYours, match="is not mallory's to fire"), transaction.atomic():
        client.fire(story, "expire", by="mallory", session=connection)
    drain_all(client.runtime)
    found = dba.execute("SELECT count(*) FROM workflow_transitions WHERE workflow_type = 'refusal_log'").fetchone()
    assert found[0] > 0
