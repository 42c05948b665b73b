"""The Grafana dashboard: every panel asks for metrics and labels that there are, and says what an operator needs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.promql.language import names
from workers.metrics import METRICS

DASHBOARD: dict[str, Any] = json.loads((Path(__file__).parents[2] / "ops" / "grafana" / "interlock.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PARTS = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
KNOWN = {f"{each.name}{part}": {*each.labels, "le"} for each in METRICS for part in PARTS[each.kind]}


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


def test_panels_do_not_overlap_and_the_first_row_says_whether_anything_is_wrong() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    first = [panel for panel in PANELS if panel["gridPos"]["y"] == 1]
    assert all(panel["type"] == "stat" and panel["description"] for panel in first)
