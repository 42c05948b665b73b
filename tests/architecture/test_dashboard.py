"""The Grafana dashboard: every panel asks for metrics and labels that there are, and says what an operator needs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.workers.operations.metrics import METRICS
from tests.promtool import names, needs_promtool, promtool

DASHBOARD: dict[str, Any] = json.loads((Path(__file__).parents[2] / "ops" / "grafana" / "interlock.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PARTS = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
KNOWN = {f"{each.name}{part}": {*each.labels, "le"} for each in METRICS for part in PARTS[each.kind]}
KNOWN |= {"up": {"job", "instance"}}
TILES = [panel for panel in PANELS if panel["gridPos"]["y"] == 1]


def queries() -> Iterator[Any]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize(("query", "legend"), list(queries()))
def test_a_query_asks_for_what_there_is(query: str, legend: str) -> None:
    asked = names(query)
    assert asked
    assert asked <= set(KNOWN)
    for name in asked:
        for inside in re.findall(rf"{name}\{{([^}}]*)\}}", query):
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside)) <= KNOWN[name]
    labels = set().union(*(KNOWN[name] for name in asked))
    grouped = re.findall(r"\bby \(([^)]*)\)", query)
    assert {each.strip() for group in grouped for each in group.split(",")} <= labels
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert shown <= labels
    if grouped:
        assert shown <= {each.strip() for each in grouped[0].split(",")}, "the sum has dropped it"


def test_each_metric_is_on_it() -> None:
    asked = {name for panel in PANELS for target in panel["targets"] for name in names(target["expr"])}
    assert {each.name for each in METRICS} <= {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}


def test_panels_do_not_overlap_and_leave_no_hole() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells
    assert taken == {(x, y) for x in range(24) for y in range(max(y for _, y in taken) + 1)}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile["title"])
def test_the_first_row_says_what_is_wrong_and_never_that_all_is_well_when_nothing_can_be_read(tile: Any) -> None:
    assert tile["type"] == "stat"
    assert tile["description"]
    assert tile["targets"][0]["expr"].endswith(" or vector(-1)"), "without any series it shows nothing, or a good 0"
    (mapping,) = tile["fieldConfig"]["defaults"]["mappings"]
    assert mapping["options"]["-1"]["color"] == "red"
    assert "noValue" not in tile["fieldConfig"]["defaults"]


@needs_promtool
def test_prometheus_reads_every_query_and_without_a_scrape_each_tile_is_unknown(tmp_path: Path) -> None:
    every = [query.values[0].replace("$entity_type", ".*") for query in queries()]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(every)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = promtool("check", "rules", "rules.yml", where=tmp_path)
    assert checked.returncode == 0, checked.stderr
    unknown = [{"labels": "{}", "value": -1}]
    asked = [{"expr": tile["targets"][0]["expr"], "eval_time": "1m", "exp_samples": unknown} for tile in TILES]
    test = {"interval": "15s", "input_series": [], "promql_expr_test": asked}
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [], "evaluation_interval": "15s", "tests": [test]}))
    tried = promtool("test", "rules", "test.yml", where=tmp_path)
    assert tried.returncode == 0, tried.stderr
