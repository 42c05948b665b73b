"""Instances that have ended in every way that archiving asks about, and archiving them at once."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.driving import applied
from tests.running import Stage
from workers.archiving import Done, Rules, archive_ended
from workers.client import Client
from workers.runtime import Runtime

Dba = "psycopg.Connection[Any]"
AT_ONCE = Rules(timedelta(0), timedelta(0))


def archive(runtime: Runtime, **how: Any) -> Done:
    return archive_ended(runtime.database, AT_ONCE, **how)


def approval(client: Client, project: UUID, name: str, *, ended: bool = True) -> UUID:
    """An instance without links."""
    made = UUID(str(client.create("approval", name, project_id=project, context={"author": "ann"})["id"]))
    if ended:
        applied(client, made, "reject", by="bob")
    return made


def expire_timers(dba: Dba) -> None:
    """What was to be fired one day and finds its instance ended."""
    dba.execute(
        "UPDATE trigger_requests SET status = 'superseded', finished_at = now() - interval '1 s'"
        " WHERE status = 'scheduled'"
    )
    dba.execute("UPDATE effects SET status = 'done', finished_at = now() - interval '1 s' WHERE status = 'pending'")
    relayed(dba)


def relayed(dba: Dba) -> None:
    """Every destination has every event."""
    dba.execute(
        "UPDATE relay_cursors SET (xid, position) = (SELECT xid, position FROM workflow_transitions"
        " ORDER BY xid DESC, position DESC LIMIT 1)"
    )


def settled_run(stage: Stage) -> None:
    stage.submit({"w": {}}, {name: {"workstream": "w"} for name in "ab"})
    stage.start()
    stage.work("a")
    stage.work("b")
    stage.land()
    assert stage.state("run") == "succeeded"
    expire_timers(stage.dba)


def rows(dba: Dba, table: str) -> int:
    (count,) = dba.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
    return int(count)
