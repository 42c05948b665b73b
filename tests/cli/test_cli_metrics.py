"""`interlock metrics` as an operator meets it: shown, listed, and served by `interlock up`."""

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from interlock.workers.operations.metrics import METRICS
from tests.cli.terminal import Terminal
from tests.waiting import eventually


def test_up_serves_them_where_status_says(terminal: Terminal, story: str) -> None:
    found = terminal.ok("status")
    assert "metrics" in {part["name"] for part in found["parts"]}

    def stories() -> float:
        with urlopen(found["metrics_url"], timeout=10) as answer:  # noqa: S310 - our own address
            families = {each.name: each for each in text_string_to_metric_families(answer.read().decode())}
        assert {each.name.removesuffix("_total") for each in METRICS if each.kind == "counter"} <= set(families)
        return sum(
            sample.value for sample in families["entity_state"].samples if sample.labels["entity_type"] == "story"
        )

    assert eventually(stories) >= 1


def test_show_prints_what_a_scrape_gets_or_json(terminal: Terminal, story: str) -> None:
    text = terminal.run("metrics", "show")
    assert text.code == 0
    assert "# TYPE entity_state gauge" in text.out
    series = terminal.ok("metrics", "show")
    assert {"name": "interlock_beat_alive", "labels": {}, "value": 1.0} in series
    moves = [each for each in series if each["name"] == "state_transitions_total"]
    assert moves
    assert all(set(each["labels"]) == {"entity_type", "from_state", "to_state"} for each in moves)


def test_list_says_what_each_means(terminal: Terminal) -> None:
    assert [each["name"] for each in terminal.ok("metrics", "show", "--list")] == [each.name for each in METRICS]


def test_serve_answers_until_it_is_told_to_stop_and_names_a_port_that_is_taken(terminal: Terminal) -> None:
    with terminal.start("metrics", "serve", "--port", "0") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urlopen(url, timeout=20) as answer:  # noqa: S310 - our own address
            assert b"interlock_build_info" in answer.read()
        taken = terminal.run("metrics", "serve", "--port", url.split(":")[2].split("/")[0])
        taken.is_one_clear_line("INTERLOCK_METRICS_PORT")
        assert taken.code == 1
        process.terminate()
        assert process.wait(20) == 0
