"""Whoever watches a run sees every move once, also those of transactions that took their time; and the tree fits."""

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import Connection, RowMapping

from interlock.cli.lib.output import Screen, console
from interlock.cli.runs.tree import draw, print_whole
from interlock.db.connection import transaction
from interlock.db.core import rounds
from interlock.db.orchestration import run_tree
from interlock.workers.client.client import Client
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.orchestration.submission import Run, submit
from interlock.workflows.plan.read import read_plan
from tests.driving import drain_all
from tests.rights import fire
from tests.working import CAPABILITIES, hire, settle, work

pytestmark = pytest.mark.integration

PLAN = """
name: p
workstreams:
  - id: one
    gates: [{id: g, type: UNIT, command: [x]}]
    tasks: [{id: a, command: [x]}, {id: "b", command: [x], retries: 1, depends_on: [a]}]
  - {id: two, tasks: [{id: c, command: [x], critical: true, retries: 0}]}
"""
Dba = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def run(client: Client, tmp_path: Path) -> Run:
    return submit(client.runtime, read_plan(PLAN), by="ann", directory=tmp_path)


def said(watch: Watch) -> list[tuple[str, str | None, str]]:
    return [(each.name, each.was, each.state) for each in watch.look()]


def shown(watch: Watch, lines: int = 100) -> list[str]:
    """The tree as it stands in a terminal."""
    console = Screen(width=100)
    with console.capture() as captured:
        console.print(draw(watch.view, lines=lines))
    return captured.get().splitlines()


def test_each_move_is_told_once_and_in_order(client: Client, run: Run) -> None:
    watch = Watch(client.runtime, run.id)
    assert said(watch) == []
    settle(client, run.id)
    told = said(watch)
    assert told[0] == (run.name, "pending", "running")
    assert ("one/a", "pending", "queued") in told
    assert len(told) == len(set(told))
    assert said(watch) == []


def test_a_move_that_commits_late_is_not_missed(client: Client, run: Run, dba: Dba) -> None:
    watch = Watch(client.runtime, run.id)
    url = dba.info.dsn
    with psycopg.connect(url, password=dba.info.password) as slow:  # holds its transaction id while others commit
        slow.execute("SELECT pg_current_xact_id()")
        slow.execute(
            "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, authority,"
            " proof) VALUES ('late', '', %s, 'start', 'slow', 'machinery', 'state:0')",
            (run.id,),
        )
        slow.execute("UPDATE workflow_instances SET current_state = 'running', version = 1 WHERE id = %s", (run.id,))
        slow.execute(
            "INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state,"
            " to_state, trigger, triggered_by, request_id) SELECT gen_random_uuid(), id, 1, workflow_type,"
            " definition_version, 'pending', 'running', 'start', 'slow', 'late' FROM workflow_instances WHERE id = %s",
            (run.id,),
        )
        workstream = next(iter(watch.view.workstreams))
        client.fire(workstream, "skip", by="quick")
        with transaction(client.runtime.database) as connection:  # of this one alone: the run may share its partition
            assert client.runtime.applier.round(connection, rounds.gather_for(connection, [workstream])).taken
        assert [each[2] for each in said(watch)] == ["skipped"]
    assert said(watch) == [(run.name, "pending", "running")]


def test_what_commits_during_a_look_is_told_by_the_next(
    client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(client.runtime, run.id)
    read_run = run_tree._run

    def after_a_cancel(connection: Connection, run_id: UUID) -> RowMapping:
        monkeypatch.undo()
        client.fire(run.id, "cancel", by="ann")
        drain_all(client.runtime)
        return read_run(connection, run_id)

    monkeypatch.setattr(run_tree, "_run", after_a_cancel)
    assert said(watch) == []
    assert watch.view.run["state"] == "pending", "whoever follows it would stop before its end is told"
    assert (run.name, "running", "canceled") in said(watch)
    assert watch.view.run["state"] == "canceled"


def test_a_run_is_over_when_what_it_left_is_canceled_too(client: Client, run: Run) -> None:
    settle(client, run.id)
    watch = Watch(client.runtime, run.id)
    client.fire(run.id, "cancel", by="ann")
    drain_all(client.runtime)
    watch.look()
    assert (watch.view.ended, watch.view.settled) == (True, False)
    settle(client, run.id)
    watch.look()
    assert (watch.view.ended, watch.view.settled) == (True, True)


def test_a_watch_from_the_beginning_and_one_at_the_end_see_the_same(client: Client, run: Run) -> None:
    watch = Watch(client.runtime, run.id)
    work(client, run.id, hire(client, run.project))
    watch.look()
    after = Watch(client.runtime, run.id).view
    assert watch.view.run["state"] == "succeeded"
    assert watch.view.as_tree() | {"at": None} == after.as_tree() | {"at": None}


def test_the_tree_has_every_workstream_task_and_gate_with_what_went_wrong(client: Client, run: Run) -> None:
    watch = half_failed(client, run)
    watch.look()
    text = shown(watch)
    assert text[0].startswith(f"▶ {run.name}  running")
    lines = {name: next(each for each in text if f" {name} " in each) for name in ("one", "two", "a", "b", "c !", "g")}
    assert "0/2" in lines["one"]
    assert "running" in lines["a"]
    assert "on worker-1" in lines["a"]
    assert "failed" in lines["c !"]
    assert "pending" in lines["b"]
    assert "[UNIT]" in lines["g"]
    assert any(r"it broke\x1b[31m badly" in each for each in text)  # the terminal gets no escape


def test_the_tree_says_what_to_type_about_what_did_not_complete(client: Client, run: Run) -> None:
    """While the run goes on, of each workstream that failed; once it has ended, of all of it."""
    watch = half_failed(client, run)
    settle(client, run.id)
    watch.look()
    assert f"do two again: interlock run retry {run.name}/two --reason WHY" in shown(watch)[-1]
    client.fire(run.id, "cancel", by="ann")
    settle(client, run.id)
    watch.look()
    assert shown(watch)[-1].endswith(f"do what did not complete: interlock run resume {run.name}")


def test_a_command_that_the_terminal_is_too_narrow_for_is_printed_whole_below_the_tree(
    client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(client, run.id)
    client.fire(run.id, "cancel", by="ann")
    settle(client, run.id)
    view, command = Watch(client.runtime, run.id).view, f"interlock run resume {run.name}"
    for width in (200, 40):
        monkeypatch.setattr(console, "_width", width)
        with console.capture() as captured:
            print_whole(view, lines=100)
        assert [command in each for each in captured.get().splitlines()].count(True) == 1, width


@pytest.mark.parametrize("lines", [2, 3, 4, 5, 6, 7, 8, 40])
def test_the_tree_never_has_more_lines_than_it_may_and_keeps_what_is_urgent(
    client: Client, tmp_path: Path, lines: int
) -> None:
    many = ", ".join(f"{{id: t{number}, command: [x]}}" for number in range(30))
    plan = f"name: p\nworkstreams:\n  - {{id: one, tasks: [{many}]}}\n  - {{id: two, tasks: [{many}]}}\n"
    run = submit(client.runtime, read_plan(plan), by="ann", directory=tmp_path)
    settle(client, run.id)
    watch = Watch(client.runtime, run.id)
    begin(client, watch, hire(client, run.project), "two/t17")
    watch.look()
    text = shown(watch, lines)
    assert len(text) <= lines
    if lines >= 5:
        assert any("… " in each and "queued" in each for each in text)
    if lines >= 7:  # the run, two workstreams, and of each a task and a sum
        assert any("t17" in each and "running" in each for each in text)


def begin(client: Client, watch: Watch, worker_id: UUID, name: str) -> UUID:
    task = next(id_ for id_, row in watch.view.tasks.items() if row["name"] == name)
    fire(
        client, task, "worker_started", by="worker-1", data={"worker_id": str(worker_id), "capabilities": CAPABILITIES}
    )
    drain_all(client.runtime)
    return task


def fail(client: Client, watch: Watch, worker_id: UUID, name: str) -> None:
    task = begin(client, watch, worker_id, name)
    fire(
        client,
        task,
        "execution_failed",
        by="worker-1",
        data={"exit_code": 1, "error": "long story\nit broke\x1b[31m badly\n"},
    )
    drain_all(client.runtime)


def half_failed(client: Client, run: Run) -> Watch:
    """A watch of a run in which a task of `one` runs and that of `two` failed."""
    watch = Watch(client.runtime, run.id)
    settle(client, run.id)
    worker = hire(client, run.project)
    begin(client, watch, worker, "one/a")
    fail(client, watch, worker, "two/c")
    return watch
