"""Archiving by the sweep and by `interlock archive`."""

from collections.abc import Callable

import pytest

from interlock.workers.client.client import Client
from interlock.workers.operations.archiver import rules_of
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.archived import approval, expire_timers, relayed
from tests.driving import applied, swept
from tests.stuck import terminal

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


def test_the_sweep_goes_on_where_it_stopped_and_begins_anew_at_the_end(
    make_runtime: Callable[..., Runtime], project: str, dba: Dba
) -> None:
    runtime = make_runtime(archive_after_days=1.0, keep_finished_days=0.0)
    made = approval(Client(runtime), project, "A-1")
    expire_timers(dba)
    dba.execute("UPDATE archive_progress SET after = %s", (made,))
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '2 days'")
    for expected in (0, 1):
        dba.execute("DELETE FROM sweeps")
        assert swept(runtime, "archive") == expected


def test_a_setting_of_0_is_off(make_runtime: Callable[..., Runtime]) -> None:
    assert rules_of(make_runtime(archive_after_days=0.0).settings) is None
    with pytest.raises(BadInput, match="INTERLOCK_KEEP_FINISHED_DAYS"):
        rules_of(make_runtime(keep_finished_days=30.0).settings, 29.0)


def test_the_commands_move_list_and_show(make_runtime: Callable[..., Runtime], project: str, dba: Dba) -> None:
    runtime = make_runtime()
    client, here = Client(runtime), terminal(runtime).set(INTERLOCK_KEEP_FINISHED_DAYS="0")
    made = client.create("supervised_worker", "V-1", project=project)["id"]
    applied(client, made, "terminate")
    relayed(dba)
    assert here.ok("archive", "run", "--older-than", "0", "--dry-run")["instances"] == 1
    assert here.run("archive", "show", "V-1").code == 2
    told = here.run("archive", "run", "--older-than", "0")
    assert "1 instance with 1 event archived" in told.out
    assert [each["entity_id"] for each in here.ok("archive", "list")] == ["V-1"]
    assert {each["kind"] for each in here.ok("archive", "show", "V-1")["records"]} == {"supervised_workers"}
    assert here.ok("show", "V-1")["archived_at"]
    assert [each["trigger"] for each in here.ok("history", "V-1")] == ["terminate"]
    here.run("fire", "V-1", "pause", "--by", "ann").is_one_clear_line("was archived on", "interlock history")
    assert here.ok("audit", "verify")["instances"] == 1
