"""Runs are shown as a graph with tasks, gates, patches and what was printed; operators do parts again."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from interlock.console.pages import runs
from interlock.console.run_graph import graph
from interlock.db.connection import transaction
from interlock.db.orchestration import run_tree
from interlock.workers.client.client import Client
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from tests.crewing import Site
from tests.driving import drain_all
from tests.landscape import ONE_LINE, Landscape
from tests.repositories import FILES
from tests.running import GATED_PAIR, Stage
from tests.visiting import Visits

pytestmark = pytest.mark.integration


@pytest.fixture
def stage(client: Any, dba: Any, project: str) -> Stage:
    return Stage(client.runtime, dba, project)


def drawn(page: str) -> dict[str, Any]:
    found = re.search(r'data-graph="([^"]*)"', page)
    assert found
    made: dict[str, Any] = json.loads(unescape(found[1]))
    return made


def test_a_run_is_a_graph_whose_nodes_say_their_states(visit: Visits, stage: Stage) -> None:
    stage.submit(*GATED_PAIR)
    stage.start()
    stage.begin("a")
    dan = visit.by("dan")
    assert f'href="/runs/{stage.run}"' in dan.get("/runs").text
    page = dan.get(f"/runs/{stage.run}").text
    said = drawn(page)
    ids = {name: str(id_) for name, id_ in stage.ids.items()}
    nodes = {each["id"]: each for each in said["nodes"]}
    assert nodes[ids["a"]]["detail"] == "running"
    assert nodes[ids["a"]]["href"] == f"/tasks/{ids['a']}"
    edges = {(each["from"], each["to"]) for each in said["edges"]}
    assert {(ids["w"], ids["a"]), (ids["a"], ids["b"]), (ids["a"], ids["g"])} <= edges
    assert visit.by("eve", "agent", ("other",)).get(f"/runs/{stage.run}").status_code == 404


def test_workstreams_that_wait_come_after_the_ends_of_the_others(stage: Stage) -> None:
    stage.submit(
        {"w": {}, "v": {"depends_on": ["w"]}},
        {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}, "c": {"workstream": "v"}},
    )
    view = Watch(stage.runtime, stage.run).view
    with transaction(stage.runtime.database) as connection:
        links = run_tree.dependencies(connection, stage.run)
    after = {each.id: each.after for each in graph(view, links)}
    ids = stage.ids
    assert after == {
        ids["w"]: (), ids["a"]: (ids["w"],), ids["b"]: (ids["a"],), ids["v"]: (ids["b"],), ids["c"]: (ids["v"],)
    }  # fmt: skip
    assert [each.id for each in graph(view, links, most=1)] == [ids["w"]]
    small = {each.id: each.after for each in graph(view, links, most=4)}
    assert set(small) in ({ids["w"], ids["a"], ids["b"], ids["v"]}, {ids["w"], ids["v"], ids["c"]})


def test_a_failed_task_shows_its_attempts_and_why(visit: Visits, stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w", "max_retries": 0}})
    stage.start()
    stage.work("a", exit_code=3, error="no such file <b>")
    page = visit.by("dan").get(f"/tasks/{stage.ids['a']}").text
    assert "failed" in page
    run = visit.by("dan").get(f"/runs/{stage.run}").text
    assert "<b>" not in run.replace("<b>Run", "").replace("<b>Do", "").replace("<b>Cancel", "")


def test_a_run_is_cancelled_from_its_page(visit: Visits, stage: Stage) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}})
    stage.start()
    dan = visit.by("dan")
    assert "Cancel the run" in dan.get(f"/runs/{stage.run}").text
    form = {"trigger": "cancel", "reason": "wrong branch"}
    dan.post(f"/instances/{stage.run}/fire", data=form, headers={"HX-Request": "true"})
    stage.settle()
    assert stage.state("run") == "canceled"
    page = dan.get(f"/runs/{stage.run}").text
    assert "Cancel the run" not in page


def test_a_gate_shows_what_it_printed_and_where_it_belongs(visit: Visits, stage: Stage) -> None:
    stage.submit(*GATED_PAIR)
    stage.start()
    page = visit.by("dan").get(f"/gates/{stage.ids['g']}").text
    assert "It has printed nothing." in page
    assert f'href="/runs/{stage.run}"' in page


def test_what_an_agent_says_is_read_while_it_works_and_compared_with_history_afterwards(
    visit: Visits, client: Client, project: str
) -> None:
    (task,) = Site(client, project).queue(kind="agent", required_capabilities=["interlock:agent"])
    agent = Agent("agent-7", runtime=client.runtime)
    agent.register()
    claim = agent.claim()
    assert claim is not None
    agent.log(claim.token, "reading <the tests>\n")
    dan = visit.by("dan")
    page = dan.get(f"/tasks/{task}").text
    assert "reading &lt;the tests&gt;" in page
    assert "followed live" in page
    agent.log(claim.token, "mended\n")
    assert "mended" in dan.get(f"/tasks/{task}?attempt=1").text
    agent.finish(claim.token, result={"files": 3})
    drain_all(client.runtime)
    page = dan.get(f"/tasks/{task}").text
    assert "followed live" not in page
    assert "It is what history says" in page
    assert unescape(page).count('"files": 3') == 1


def test_an_approval_of_a_landing_shows_the_diff_that_would_land(
    visit: Visits, runtime: Runtime, client: Client, dba: Any, tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path)
    entry = land.applied_patch({"README.md": "mended <b>here</b>\n"})
    terms = {"author": "cyd", "lands": str(land.workstream), "subject": "workstream/w", "trigger": "validation_passed"}
    where = client.show(land.workstream)["project"]
    asked = client.create("approval", "A-1", project=where, context=terms)["id"]
    dan = visit.by("dan", "agent", (where,))
    page = dan.get(f"/approvals/{asked}").text
    assert '<span class="added">+mended &lt;b&gt;here&lt;/b&gt;</span>' in page
    assert f'href="/patches/{entry}"' in page
    assert "+mended" in dan.get(f"/patches/{entry}").text


def test_a_page_of_a_run_lists_a_bounded_number_of_tasks_those_at_work_first(
    visit: Visits, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "ROWS", 2)
    stage.submit({"w": {}}, {name: {"workstream": "w"} for name in "abcd"})
    stage.start()
    stage.work("a")
    page = visit.by("dan").get(f"/runs/{stage.run}").text
    below = page[page.index("Of its tasks and gates, 2 are listed") :]
    assert [name for name in "abcd" if f"/tasks/{stage.ids[name]}" in below] == ["b", "c"]


def test_a_patch_of_many_lines_is_shown_by_its_first_ones(
    visit: Visits, client: Client, dba: Any, tmp_path: Path
) -> None:
    ledger = Landscape(client.runtime, dba, tmp_path).patch("+x\n" * 10_000, "long")
    page = visit.by("dan", "agent", None).get(f"/patches/{ledger}").text
    assert "The first 3000 of 10000 lines" in page
    assert page.count('class="added"') == 3000


def test_a_landed_patch_is_rolled_back_by_workers_at_an_operators_word(
    visit: Visits, runtime: Runtime, dba: Any, tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path)
    land.gate(["test", "-f", "app.py"], "unit")
    entry = land.committed_patch(dict(ONE_LINE))
    where = land.client.show(land.workstream)["project"]
    ann, bot = visit.by("ann", "operator", (where,)), visit.by("bot", "agent", (where,))
    path = f"/patches/{entry}/roll-back"
    early = ann.get(f"/patches/{entry}").text
    land.validate_and_land()
    assert ("Roll it back" in early, path in ann.get(f"/patches/{entry}").text) == (True, True)
    assert path not in bot.get(f"/patches/{entry}").text
    assert bot.post(path, data={"reason": "a test"}).status_code == 403
    said = ann.post(path, data={"reason": "it broke the build"}, headers={"HX-Request": "true"})
    assert (said.status_code, said.headers["hx-trigger"]) == (200, "changed"), said.text
    assert "is rolling_back" in said.text
    land.settle()
    page = ann.get(f"/patches/{entry}").text
    assert ("rolled_back" in page, "it broke the build" in page, path in page) == (True, True, False)
    assert (land.checkout / "app.py").read_text() == FILES["app.py"]
    assert ann.post(path, data={"reason": "again"}).status_code == 409


def test_a_quarantined_patch_says_why_whether_or_not_its_check_printed_anything(
    visit: Visits, runtime: Runtime, dba: Any, tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path, {"path": "repo", "forbidden_paths": ["secret/"]})
    entry = land.patch({"secret/key": "x\n"})
    land.settle()
    dan = visit.by("dan", "agent", (land.client.show(land.workstream)["project"],))
    page = dan.get(f"/patches/{entry}")
    assert page.status_code == 200
    assert "secret/key" in page.text
    assert "Why it is set aside" not in page.text
