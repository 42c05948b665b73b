"""Make instances that have ended, for tests of the archive, and archive them at once."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from interlock.workers.client.client import Client
from interlock.workers.operations.archiver import ArchivePass, ArchiveRules, archive_ended
from interlock.workers.runtime import Runtime
from tests.driving import applied
from tests.running import Stage

Dba = "psycopg.Connection[Any]"
AT_ONCE = ArchiveRules(timedelta(0), timedelta(0))


def archive(runtime: Runtime, **how: Any) -> ArchivePass:
    return archive_ended(runtime.database, AT_ONCE, **how)


def approval(client: Client, project: str, name: str, *, ended: bool = True) -> UUID:
    """Make an instance without links; ended unless told otherwise."""
    made = UUID(str(client.create("approval", name, project=project, context={"author": "ann"})["id"]))
    if ended:
        applied(client, made, "reject", by="bob")
    return made


def expire_timers(dba: Dba) -> None:
    """Finish all scheduled requests and pending effects, as when they find their instance ended."""
    dba.execute(
        "UPDATE trigger_requests SET status = 'superseded', finished_at = now() - interval '1 s'"
        " WHERE status = 'scheduled'"
    )
    dba.execute("UPDATE effects SET status = 'done', finished_at = now() - interval '1 s' WHERE status = 'pending'")
    relayed(dba)


def relayed(dba: Dba) -> None:
    """Set the relay's cursors as if every destination had every event."""
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
