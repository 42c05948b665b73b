"""What moved to the archive is still audited: anchors, journal, exports and the view of events see it as before."""

from typing import Any

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import history
from interlock.workers import sweeps
from interlock.workers.audit import anchors, exports
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.relay.journal import files
from interlock.workers.runtime import Runtime
from tests.archived import approval, archive, expire_timers, settled_run
from tests.integration.test_exports import hashes
from tests.integration.test_journal import events
from tests.running import Stage
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
VIEW = (
    "SELECT hash, context->>'run_id', context->>'workstream_id', context->>'phase_id' FROM events"
    " ORDER BY (context->>'xid')::bigint, (context->>'position')::bigint"
)


@pytest.fixture
def archived(runtime: Runtime, client: Client, project: str, dba: Dba) -> list[tuple[Any, ...]]:
    """A run and an approval in the archive, another approval that lives; the view of events as it was before."""
    settled_run(Stage(runtime, dba))
    approval(client, project, "A-1")
    expire_timers(dba)
    sweeps.SWEEPS["relay"](runtime)
    anchors.anchor(runtime)
    told = dba.execute(VIEW).fetchall()
    assert archive(runtime).instances == 5
    approval(client, project, "A-2")
    return told


def test_it_verifies_against_anchors_and_journal(runtime: Runtime, archived: list[Any]) -> None:
    sweeps.SWEEPS["relay"](runtime)
    verdict = verify(runtime, every_line=True)
    assert (verdict.ok, verdict.problems) == (True, [])
    assert verdict.transitions == len(archived) + 1


def test_the_view_tells_it_as_before(dba: Dba, archived: list[Any]) -> None:
    assert dba.execute(VIEW).fetchall()[: len(archived)] == archived


def test_a_journal_written_anew_and_a_first_export_have_it_too(runtime: Runtime, dba: Dba, archived: list[Any]) -> None:
    sweeps.SWEEPS["relay"](runtime)
    before = [event for path in files(runtime.settings.state_directory) for event in path.read_text().splitlines()]
    for path in files(runtime.settings.state_directory):
        path.rename(path.with_suffix(".old"))
    assert sweeps.SWEEPS["relay"](runtime) == len(archived) + 1
    after = [event for path in files(runtime.settings.state_directory) for event in path.read_text().splitlines()]
    assert after == before
    assert len(events(runtime.settings.state_directory)) == len(archived) + 1
    assert [each.events for each in exports.export_all(runtime)] == [len(archived) + 1]
    assert hashes(runtime) == [row[0] for row in dba.execute(VIEW).fetchall()]


def test_batches_of_both_are_in_commit_order_and_overlap_nowhere(runtime: Runtime, archived: list[Any]) -> None:
    seen: list[str] = []
    after = (0, 0)
    with transaction(runtime.database) as connection:
        while batch := history.batch(connection, after, limit=3, archived=True):
            seen += [bytes(event["hash"]).hex() for event in batch]
            after = batch[-1]["xid"], batch[-1]["position"]
    assert seen[: len(archived)] == [row[0] for row in archived]
    assert len(seen) == len(archived) + 1


def test_an_archived_event_changed_or_cut_shows(runtime: Runtime, dba: Dba, archived: list[Any]) -> None:
    (run,) = dba.execute("SELECT id FROM archived_instances WHERE workflow_type = 'run'").fetchone() or ()
    with unprotected(dba, "archived_transitions"):
        dba.execute("ALTER TABLE archived_transitions DISABLE TRIGGER ALL")
        dba.execute(
            "UPDATE archived_transitions SET triggered_by = 'mallory' WHERE workflow_id = %s AND seq = 1",
            (run,),
        )
    assert {(each.instance, each.seq) for each in verify(runtime).problems} == {(str(run), 1)}
    with unprotected(dba, "archived_transitions"):
        dba.execute("DELETE FROM archived_transitions WHERE workflow_id = %s", (run,))
    assert (str(run), 2, "cut") in {(each.instance, each.seq, each.message[:3]) for each in verify(runtime).problems}


def test_what_was_archived_before_any_anchor_saw_it_is_in_the_next(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    approval(client, project, "A-1")
    expire_timers(dba)
    sweeps.SWEEPS["relay"](runtime)
    assert archive(runtime).instances == 1
    assert anchors.anchor(runtime) == 1
    assert anchors.anchor(runtime) == 0
    ((instance, seq),) = dba.execute("SELECT id, version FROM archived_instances").fetchall()
    with unprotected(dba):
        for table in ("archived_transitions", "archived_instances"):
            dba.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
        dba.execute("DELETE FROM archived_transitions")
        dba.execute("DELETE FROM archived_records")
        dba.execute("DELETE FROM archived_instances")
    problems = verify(runtime, every_line=False).problems
    assert (str(instance), seq, "cut") in {(each.instance, each.seq, each.message[:3]) for each in problems}
