"""What has ended moves into the archive whole, with its history, still verifiable; and nothing else does."""

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from interlock.db.audit import verify
from interlock.workers.client.client import Client
from interlock.workers.operations.archiver import ArchiveRules, archive_ended
from interlock.workers.runtime import Runtime
from tests.archived import approval, archive, expire_timers, relayed, rows, settled_run
from tests.driving import applied, drain_all, drain_failing
from tests.landscape import Landscape
from tests.running import Stage

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
TO_THE_END = ("design_complete", "start_coding", "submit_pr", "approve", "tests_pass")


# What moves -------------------------------------------------------------------------------------------------------


def test_what_ended_moves_with_its_history_and_is_read_as_before(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    made = approval(client, project, "A-1")
    expire_timers(dba)
    before = client.history(made)
    done = archive(runtime)
    assert (done.instances, done.events, dict(done.held)) == (1, 1, {})
    assert (rows(dba, "workflow_instances"), rows(dba, "workflow_transitions"), rows(dba, "trigger_requests")) == (
        0,
        0,
        0,
    )
    assert client.history(made) == before
    shown = client.show("approval/A-1")
    assert (shown["current_state"], shown["legal"]) == ("rejected", [])
    assert shown["archived_at"] is not None
    verdict = verify.verify(runtime.database)
    assert (verdict.ok, verdict.instances, verdict.transitions) == (True, 1, 1)


def test_a_run_moves_whole_with_all_that_is_typed(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    settled_run(stage)
    done = archive(runtime)
    assert dict(done.held) == {}
    assert done.instances == 4  # the worker has not ended
    for table in ("runs", "workstreams", "tasks", "task_claims", "run_counts", "workstream_counts", "workflow_links"):
        assert rows(dba, table) == 0, table
    kinds = dict(dba.execute("SELECT kind, count(*) FROM archived_records GROUP BY kind").fetchall())
    assert kinds == {"runs": 1, "run_counts": 1, "workstreams": 1, "workstream_counts": 1, "tasks": 2, "task_claims": 2}
    assert verify.verify(runtime.database).ok
    assert [each["state"] for (each,) in dba.execute("SELECT body FROM archived_records WHERE kind = 'tasks'")] == [
        "completed"
    ] * 2


def test_a_patch_moves_with_its_text_and_its_links(runtime: Runtime, dba: Dba, tmp_path: Any) -> None:
    landscape = Landscape(runtime, dba, tmp_path)
    entry = landscape.committed_patch()
    landscape.cancel()
    expire_timers(dba)
    linked = len(landscape.client.show(entry)["links"])
    done = archive(runtime)
    assert dict(done.held) == {}
    assert rows(dba, "patches") == 0
    assert len(landscape.client.show(entry)["links"]) == linked > 0
    (body,) = dba.execute("SELECT body->>'body' FROM archived_records WHERE kind = 'patches'").fetchone() or ("",)
    assert "+1" in body
    assert verify.verify(runtime.database).ok


# What stays -------------------------------------------------------------------------------------------------------


def test_nothing_moves_that_something_alive_is_linked_to(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann", "story_id": "S-1"})["id"]
    applied(client, review, "start_review", "approve")
    client.fire(review, "merge", by="ann")
    drain_all(runtime)
    applied(client, f"approval/{only_approval(dba)}", "approve", by="bob")
    assert client.show(review)["current_state"] == "merged"
    expire_timers(dba)
    done = archive(runtime)
    assert done.held["a part of its group is live, or ended recently"] == 1
    assert {row[0] for row in dba.execute("SELECT workflow_type FROM workflow_instances")} == {
        "story",
        "pr_review",
        "approval",
    }
    applied(client, story, *TO_THE_END[:3])
    applied(client, story, "approve", by="bob")  # which asks for the merged pull request
    applied(client, story, "tests_pass")
    relayed(dba)
    assert archive(runtime).instances == 3
    assert verify.verify(runtime.database).ok


def only_approval(dba: Dba) -> str:
    (name,) = dba.execute("SELECT entity_id FROM workflow_instances WHERE workflow_type = 'approval'").fetchone() or (
        "",
    )
    return str(name)


def test_a_run_stays_while_one_of_its_members_has_not_ended(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    settled_run(stage)
    dba.execute("UPDATE workflow_instances SET updated_at = now() + interval '1 day' WHERE id = %s", (stage.ids["a"],))
    assert archive(runtime).instances == 0
    assert rows(dba, "tasks") == 2


def test_what_ended_not_long_ago_stays(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    made = approval(client, project, "A-1")
    expire_timers(dba)
    month = ArchiveRules(timedelta(days=30), timedelta(0))
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '29 days' WHERE id = %s", (made,))
    assert archive_ended(runtime.database, month).instances == 0
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '31 days' WHERE id = %s", (made,))
    assert archive_ended(runtime.database, month).instances == 1


def test_a_request_holds_its_instance_back_until_its_id_need_not_be_kept(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    approval(client, project, "A-1")
    expire_timers(dba)
    keeping = ArchiveRules(timedelta(0), timedelta(days=1))
    assert archive_ended(runtime.database, keeping).held == {"its request ids are still kept": 1}
    for table in ("trigger_requests", "effects"):
        dba.execute(f"UPDATE {table} SET finished_at = now() - interval '25 hours'")  # type: ignore[arg-type]
    assert archive_ended(runtime.database, keeping).instances == 1


def test_what_is_still_to_be_fired_or_done_holds_its_instance_back(
    runtime: Runtime, client: Client, project: str
) -> None:
    approval(client, project, "A-1")  # its time-out is still scheduled
    assert archive(runtime).held == {"it has unfinished work": 1}


def test_a_dead_request_holds_its_instance_back(
    make_runtime: Callable[..., Runtime], project: str, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(max_attempts=1)
    client = Client(runtime)
    made = approval(client, project, "A-1")
    client.fire(made, "approve", by="bob")
    drain_failing(runtime, monkeypatch)
    expire_timers(dba)
    assert archive(runtime).held == {"it has dead requests or effects": 1}


def test_what_was_not_relayed_everywhere_stays(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    approval(client, project, "A-1")
    expire_timers(dba)
    dba.execute("INSERT INTO relay_cursors (name, xid, position) VALUES ('somewhere', '0', 0)")
    assert archive(runtime).held == {"not yet relayed to somewhere": 1}
    dba.execute("UPDATE relay_cursors SET (xid, position) = (SELECT xid, position FROM workflow_transitions)")
    assert archive(runtime).instances == 1


def test_a_dry_run_tells_what_a_run_then_does(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    for number in range(3):
        approval(client, project, f"A-{number}")
    approval(client, project, "alive", ended=False)
    dba.execute("UPDATE trigger_requests SET finished_at = now(), status = 'superseded' WHERE status = 'scheduled'")
    expire_timers(dba)
    dry = archive(runtime, dry_run=True)
    assert rows(dba, "workflow_instances") == 4
    done = archive(runtime)
    assert (dry.instances, dry.events) == (done.instances, done.events) == (3, 3)


# Being killed, and being asked twice ------------------------------------------------------------------------------

KILLED = """
import sys, time
from datetime import timedelta
from interlock.workers.operations import archiver
from interlock.workers.operations.archiver import ArchiveRules, archive_ended
from interlock.db.connection import make_engine
archiver.PACK = 5
rules = ArchiveRules(timedelta(0), timedelta(0))
archive_ended(make_engine(sys.argv[1]), rules, progress=lambda done: print(done.instances, flush=True))
"""


@pytest.mark.parametrize("after_packs", [1, 3, 6])
def test_killed_anywhere_nothing_is_lost_or_doubled(
    runtime: Runtime, client: Client, project: str, dba: Dba, database_url: str, after_packs: int
) -> None:
    births = [client.birth("supervised_worker", f"V-{number}", project=project) for number in range(60)]
    client.create_many(births)
    for birth in births:
        client.fire(birth.id, "terminate", by="ann")
    drain_all(runtime)
    relayed(dba)
    url = runtime.settings.resolved_database_url()
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout
        for _ in range(after_packs):
            victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
    moved = rows(dba, "archived_instances")
    assert moved % 5 == 0
    assert 0 < moved <= 60
    assert moved + rows(dba, "workflow_instances") == 60
    verdict = verify.verify(runtime.database)
    assert (verdict.ok, verdict.instances, verdict.transitions) == (True, 60, 60)
    archive(runtime)
    assert (rows(dba, "archived_instances"), rows(dba, "workflow_instances")) == (60, 0)
    assert verify.verify(runtime.database).ok


def test_who_is_being_worked_on_is_left_for_the_next_time(
    runtime: Runtime, client: Client, project: str, dba: Dba, database_url: str
) -> None:
    made = approval(client, project, "A-1")
    expire_timers(dba)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM workflow_instances WHERE id = %s FOR KEY SHARE", (made,))
        assert archive(runtime).held == {"another process is working on it": 1}
    assert archive(runtime).instances == 1
