"""No statement of ours depends on a search path: here it leads to other tables that are called as ours are."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from redis import Redis
from sqlalchemy import text

from interlock.db.connection import transaction
from interlock.db.schema import SCHEMA
from interlock.workers import sweeps
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.client.client import Client
from interlock.workers.operations import doctor
from interlock.workers.overrides.tasks import complete_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.driving import applied
from tests.rights import operate
from tests.running import Stage

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def decoys(dba: Dba, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Tables and views of every name that we have, in a schema that the workers' connections look into first."""
    listed = dba.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,)).fetchall()
    names = [name for (name,) in listed]
    dba.execute("CREATE SCHEMA decoys")
    dba.execute("CREATE TABLE decoys.events (mine integer)")
    for name in names:
        dba.execute(f"CREATE TABLE decoys.{name} (LIKE interlock.{name} INCLUDING ALL)")
    dba.execute(
        "GRANT ALL ON SCHEMA decoys TO interlock_engine; GRANT ALL ON ALL TABLES IN SCHEMA decoys TO interlock_engine"
    )
    monkeypatch.setattr("interlock.db.connection.SEARCH_PATH", " -c search_path=decoys,public")
    yield names
    for name in names:
        assert dba.execute(f"SELECT count(*) FROM decoys.{name}").fetchone() == (0,), name


def test_a_search_path_that_leads_to_other_tables_misleads_nothing(
    decoys: list[str], settings: Settings, dba: Dba, project: str, valkey: "Redis"
) -> None:
    with closing(Runtime(settings)) as runtime:  # connections of its own, which have that path
        _everything(runtime, dba, project, valkey)


def _everything(runtime: Runtime, dba: Dba, project: str, valkey: "Redis") -> None:
    client = Client(runtime)
    with transaction(runtime.database) as connection:
        assert connection.execute(text("SELECT 'tasks'::regclass::oid = 'decoys.tasks'::regclass::oid")).scalar_one()
    story = client.create("story", "S-1", project=project)["id"]
    applied(client, story, "design_complete")
    stage = Stage(runtime, dba)
    stage.submit({"w": {}}, {"t": {"workstream": "w"}, "u": {"workstream": "w"}})
    stage.start()
    stage.work("t")
    stage.begin("u")
    operate(runtime, "ann")
    complete_task(runtime, str(stage.ids["u"]), OverrideOrder("ann", "seen to it"))
    for name in sweeps.SWEEPS:
        assert name in sweeps.run(runtime, name)
    assert valkey.xlen(STREAM) > 5
    assert [event["to_state"] for event in client.history(story)] == ["design"]
    judged = {each.check: each.level for each in doctor.examine(runtime)}
    assert (judged["schema"], judged["protection"], judged["definitions"]) == ("ok", "ok", "ok")
