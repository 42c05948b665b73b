"""Every playbook's commands, typed as its page has them, after its symptom was provoked; afterwards it is cured."""

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.cli.operations.playbooks import INDEX, pages
from interlock.db.connection import transaction
from interlock.db.orchestration import patches
from interlock.supervisor.embedded import running
from interlock.workers.audit import kept_backups
from interlock.workers.circuit_breakers import BreakerOpen, calling
from interlock.workers.client.client import Client
from interlock.workers.relay.journal import Journal
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.system.users import os_user
from tests.backup_stubs import stub_backup
from tests.crewing import Site
from tests.driving import applied, drain_all, outcome, state, with_a_dead_request
from tests.forking import ForkServer, fork_server
from tests.homes import installed
from tests.landscape import ONE_LINE, Landscape
from tests.playbooks import commands, type_in
from tests.repositories import diff, git
from tests.rights import operate
from tests.running import Stage
from tests.stuck import age, terminal

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
Dba = psycopg.Connection[Any]
ELSEWHERE = Path(__file__).parents[1] / "cli" / "test_cli_playbooks.py"


def test_every_page_has_its_three_parts_and_is_tried() -> None:
    tried = Path(__file__).read_text(encoding="utf-8") + ELSEWHERE.read_text(encoding="utf-8")
    assert len(pages()) >= 14
    index = (next(iter(pages().values())).parent / f"{INDEX}.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| .*\[([\w-]+)\]\(\1\.md\)", index, re.MULTILINE)) == sorted(pages())
    for name, page in pages().items():
        headings = re.findall(r"^## (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Symptom", "Check", "Cure"], name
        assert commands(name, "Cure"), name
        assert f'"{name}", "Cure"' in tried, name


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server() as made:
        yield made


@pytest.fixture(autouse=True)
def whoever_runs_this_is_an_operator(request: pytest.FixtureRequest, forks: ForkServer) -> None:
    if "runtime" in request.fixturenames or "make_runtime" in request.fixturenames:
        runtime = request.getfixturevalue("runtime")
        forks.lend(runtime.settings.home)
        operate(runtime, os_user())


# Workstreams and tasks -------------------------------------------------------------------------------------------


def run_late(stage: Stage, name: str) -> None:
    """Begin a task that has run for an hour."""
    stage.begin(name)
    age(stage.dba, stage.ids[name], 3600.0)


def test_a_stuck_workstream_goes_on_without_the_task_that_hung(stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w"}})
    stage.start()
    run_late(stage, "a")
    here, ref = terminal(stage.runtime), stage.ids["w"]
    told = type_in(here, "stuck-workstream", "Check", WORKSTREAM=ref)
    assert "a running" in told
    assert stage.state("a") == "running"  # nothing was changed
    type_in(here, "stuck-workstream", "Cure", WORKSTREAM=ref)
    stage.settle()
    assert (stage.state("a"), stage.state("w")) == ("failed", "executing")
    event = stage.client.history(stage.ids["a"])[-1]
    assert (event["severity"], event["metadata"]["reason"]) == ("warning", "stuck")
    assert [each["metadata"].get("reason") for each in stage.client.history(ref)][-2:] == ["stuck", "stuck"]


def test_a_workstream_whose_last_task_hung_is_validated(stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w"}})
    stage.start()
    stage.work("b")
    run_late(stage, "a")
    type_in(terminal(stage.runtime), "stuck-workstream", "Cure", WORKSTREAM=stage.ids["w"])
    stage.settle()
    assert (stage.state("a"), stage.state("w")) == ("failed", "validating")


def test_who_is_no_operator_walks_through_nothing(stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}})
    stage.start()
    run_late(stage, "a")
    words = ("playbook", "run", "recover-workstream", str(stage.ids["w"]), "--reason", "x", "--yes", "--by", "mallory")
    answer = terminal(stage.runtime).run(*words)
    answer.is_one_clear_line("operator")
    assert (answer.code, stage.state("a"), stage.state("w")) == (2, "running", "executing")


def test_nobody_to_ask_changes_nothing(stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}})
    stage.start()
    words = ("playbook", "run", "recover-workstream", str(stage.ids["w"]), "--reason", "x")
    terminal(stage.runtime).run(*words).is_one_clear_line("--yes", "--dry-run")


def test_a_failed_step_is_tried_again(stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w", "max_retries": 0}, "b": {"workstream": "w"}})
    stage.start()
    stage.work("a", exit_code=1)
    assert stage.state("a") == "failed"
    here = terminal(stage.runtime)
    type_in(here, "failed-task", "Check", TASK=stage.ids["a"])
    type_in(here, "failed-task", "Cure", TASK=stage.ids["a"])
    stage.settle()
    again = stage.dba.execute(
        "SELECT i.current_state FROM workflow_instances i JOIN workflow_links l ON l.source_id = i.id"
        " WHERE l.role = 'retry_of' AND l.target_id = %s",
        (stage.ids["a"],),
    ).fetchall()
    assert again == [("queued",)]


# Patches ---------------------------------------------------------------------------------------------------------


def test_a_committed_patch_is_taken_back(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    landscape = Landscape(runtime, dba, tmp_path)
    entry = landscape.committed_patch()
    landscape.validate()
    landscape.land()
    landscape.settle()
    before = git(landscape.checkout, "rev-parse", "HEAD")
    here = terminal(runtime)
    type_in(here, "emergency-rollback", "Check", ENTRY=entry)
    assert git(landscape.checkout, "rev-parse", "HEAD") == before
    type_in(here, "emergency-rollback", "Cure", ENTRY=entry)
    assert state(landscape.client, entry) == "rolled_back"
    assert git(landscape.checkout, "rev-parse", "HEAD") != before
    said = landscape.said(entry)
    assert (said["operator"], said["reason"]) == (said["authorized_by"], "regression")
    words = ("playbook", "run", "emergency-rollback", str(entry), "--reason", "again", "--yes")
    here.run(*words).is_one_clear_line("only committed patches")


def test_a_quarantined_patch_is_looked_at_corrected_and_dropped(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    landscape = Landscape(runtime, dba, tmp_path)
    entry = landscape.patch("no patch at all")
    landscape.settle()
    assert state(landscape.client, entry) == "quarantined"
    here = terminal(runtime)
    with transaction(runtime.database) as connection:
        name = patches.entry(connection, entry)["entity_id"]
    assert str(name) in type_in(here, "quarantined-patch", "Check", ENTRY=entry)
    (corrected := tmp_path / "corrected.diff").write_text(diff(landscape.checkout, dict(ONE_LINE)))
    told = type_in(here, "quarantined-patch", "Cure", ENTRY=entry, CORRECTED=corrected)
    assert "demo/w/t~2 takes the place of task/demo/w/t" in told
    assert state(landscape.client, entry) == "dropped"


# Tools, requests, audit ------------------------------------------------------------------------------------------


def test_an_open_breaker_is_closed_once_its_tool_works(make_runtime: Callable[..., Runtime], project: str) -> None:
    runtime = make_runtime(breaker_failure_threshold=1, breaker_cooldown_seconds=3600.0)
    for tool in ("git", "no-such-tool"):
        with calling(runtime, project, tool) as call:
            call.failed("it hangs")
    drain_all(runtime)
    with pytest.raises(BreakerOpen), calling(runtime, project, "git"):
        pass
    git = shutil.which("git")
    here = terminal(runtime, INTERLOCK_TOOL_CHECKS=f"git={git},no-such-tool=/no/such/tool")
    type_in(here, "reset-breaker", "Check", TOOL="git")
    told = type_in(here, "reset-breaker", "Cure", TOOL="git")
    assert "git version" in told
    with calling(runtime, project, "git"):
        pass
    words = ("playbook", "run", "reset-breaker", "no-such-tool", "--reason", "x", "--yes")
    here.run(*words).is_one_clear_line("is not available")
    with pytest.raises(BreakerOpen), calling(runtime, project, "no-such-tool"):
        pass


def test_what_an_agent_calls_a_tool_is_never_run(
    make_runtime: Callable[..., Runtime], project: str, dba: Dba, tmp_path: Path
) -> None:
    trap = tmp_path.parent / "trap"  # a tool's name has 100 characters at most
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    runtime = make_runtime(breaker_failure_threshold=1, breaker_cooldown_seconds=3600.0)
    with calling(runtime, project, str(trap)) as call:
        call.failed("it hangs")
    drain_all(runtime)
    ((breaker,),) = dba.execute("SELECT breaker_id FROM circuit_breakers").fetchall()
    words = ("playbook", "run", "reset-breaker", str(breaker), "--reason", "x")
    assert "names no program" in terminal(runtime).run(*words, "--dry-run").said
    named = terminal(runtime, INTERLOCK_TOOL_CHECKS=f"{trap}={trap}")
    assert "would be run" in named.run(*words, "--dry-run").said
    assert not (tmp_path / "sprung").exists()
    assert terminal(runtime).run(*words, "--yes").code == 0
    assert not (tmp_path / "sprung").exists()


def test_dead_requests_are_redriven(
    make_runtime: Callable[..., Runtime], project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(max_attempts=1)
    story = with_a_dead_request(runtime, project, monkeypatch)
    here = terminal(runtime)
    assert "1 dead request" in type_in(here, "dead-requests", "Check")
    type_in(here, "dead-requests", "Cure")
    drain_all(runtime)
    assert state(Client(runtime), story) == "blocked"


def test_what_a_partition_stuck_at_is_set_aside_and_the_others_are_applied(
    runtime: Runtime, client: Client, project: str
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    request = client.fire(story, "block", by="ann").request_id
    other = client.fire(story, "design_complete", by="ann").request_id
    here = terminal(runtime)
    type_in(here, "partition-stuck", "Check")
    assert "a crash" in type_in(here, "partition-stuck", "Cure", REQUEST_ID=request, WHY="'a crash'")
    drain_all(runtime)
    assert state(client, story) == "design"
    assert [outcome(client, each)["status"] for each in (request, other)] == ["dead", "applied"]
    assert outcome(client, request)["result"]["by"] == os_user()


def test_room_is_made_as_far_as_it_can_be(make_runtime: Callable[..., Runtime], project: str, dba: Dba) -> None:
    """A full disk itself is not provoked here: what is tried is that the commands make room."""
    runtime = make_runtime()
    client = Client(runtime)
    ended = client.create("supervised_worker", "V-1", project=project)["id"]
    applied(client, ended, "terminate")
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '91 days'")
    dba.execute("UPDATE trigger_requests SET finished_at = now() - interval '91 days'")
    dba.execute("UPDATE relay_cursors SET (xid, position) = (SELECT max(xid), max(position) FROM workflow_transitions)")
    here = terminal(runtime)
    type_in(here, "disk-full", "Check")
    for command in commands("disk-full", "Cure"):
        if command != "interlock doctor":  # no worker runs here
            assert here.run(*command.split()[1:]).code == 0
    assert client.show(ended)["archived_at"]


# Backups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(place: Path, forks: ForkServer) -> Iterator[Client]:
    """A client of an installation with servers of its own."""
    with installed(Settings(home=place / "home")) as client:
        forks.lend(place / "home")
        yield client


def tamper(client: Client) -> UUID:
    """Change an event, as the tables' owner can."""
    made = UUID(str(client.create("story", "S-1", project=UUID(int=1))["id"]))
    applied(client, made, "design_complete")
    with psycopg.connect(client.runtime.settings.resolved_owner_url().replace("+psycopg", "")) as dba:
        dba.execute("ALTER TABLE workflow_transitions DISABLE TRIGGER USER")
        dba.execute("UPDATE workflow_transitions SET triggered_by = 'mallory' WHERE workflow_id = %s", (made,))
    return made


def at_home(client: Client) -> Any:
    from tests.cli.terminal import Terminal

    return Terminal(client.runtime.settings.home)


def test_an_audit_finding_and_a_contradiction_are_shown_and_kept_with_a_backup(own: Client, place: Path) -> None:
    workstream, made, here = contradict(own), tamper(own), at_home(own)
    type_in(here, "audit-finding", "Check", FINDINGS=place / "findings.json")
    assert str(made) in (place / "findings.json").read_text()
    type_in(here, "audit-finding", "Cure", BACKUPS=place / "backups")
    assert len(list((place / "backups").glob("interlock-*"))) == 1
    assert "invariants" in type_in(here, "invalid-state", "Check", WORKSTREAM=workstream)
    kept = {"BACKUPS": place / "others", "FINDINGS": place / "again.json"}
    type_in(here, "invalid-state", "Cure", **kept)
    assert (place / "again.json").stat().st_size > 0


def contradict(client: Client) -> UUID:
    """Let a task's row say another state than its instance, as the tables' owner can; the task's workstream."""
    site = Site(client, UUID(int=1))
    task = site.task(workstream := site.workstream(site.run()))
    with psycopg.connect(client.runtime.settings.resolved_owner_url().replace("+psycopg", "")) as dba:
        dba.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
        dba.execute("UPDATE tasks SET state = 'validating' WHERE task_id = %s", (task,))
    return workstream


def test_an_overdue_backup_is_taken_and_tried_and_what_was_lost_after_it_is_restored(own: Client, place: Path) -> None:
    runtime, backups = own.runtime, place / "backups"
    kept = own.create("story", "S-1", project=UUID(int=1))["id"]
    applied(own, kept, "design_complete")
    chosen = runtime.settings.model_copy(update={"backup_directory": backups})
    stub = stub_backup(chosen, datetime.now(UTC) - timedelta(days=3))
    here = at_home(own).set(INTERLOCK_BACKUP_DIRECTORY=str(backups))
    assert "the newest backup is 3.0 d old" in type_in(here, "backup-overdue", "Check")
    assert "verified: " in type_in(here, "backup-overdue", "Cure")
    assert kept_backups.newest_age_seconds(chosen) == pytest.approx(0, abs=300)
    (made,) = set(backups.glob("interlock-*")) - {stub}
    applied(own, kept, "block")  # lost
    relay(runtime.database, [Journal(runtime.settings.state_directory, max_bytes=10**9, daily=False)])
    type_in(here, "restore-from-backup", "Check", BACKUPS=backups)
    told = type_in(
        here,
        "restore-from-backup", "Cure",
        BACKUP=made,
        AGAIN=place / "again",
        JOURNAL=runtime.settings.state_directory,
    )  # fmt: skip
    assert "1 event came after it, now lost" in told
    again = Settings(home=place / "again")
    with running(again, keep=True):
        other = Runtime(again)
        try:
            assert state(Client(other), kept) == "design"
        finally:
            other.close()
