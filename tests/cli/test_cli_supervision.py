"""Breakers, supervised workers and jobs at the terminal: what they answer, and how they refuse."""

import pytest
from uuid_utils.compat import uuid7

from tests.cli.terminal import Answer, Terminal

WHY = ("--by", "ann", "--reason", "the suite is flaky")


@pytest.fixture
def worker(terminal: Terminal, project: str) -> str:
    """The entity id of an idle worker."""
    made = terminal.run("supervise", "worker", "create", "--json").json
    return str(made["subject"]["entity_id"])


def supervise(terminal: Terminal, *words: str) -> Answer:
    return terminal.run("supervise", "worker", *words, "--json")


def test_a_worker_goes_its_way_and_tells_it(terminal: Terminal, worker: str) -> None:
    assert supervise(terminal, "start", worker, "--resource", "gpu-1").json["response"]["to"] == "RUNNING"
    assert (
        supervise(terminal, "pause", worker, "--by", "ann", "--reason", "lunch").json["subject"]["status"] == "PAUSED"
    )
    assert supervise(terminal, "resume", worker, *WHY).json["subject"]["resources"] == ["gpu-1"]
    assert supervise(terminal, "complete", worker).json["subject"]["resources"] == []
    shown = terminal.run("supervise", "worker", "show", worker)
    assert shown.code == 0
    assert "COMPLETED" in shown.out
    assert all(word in shown.out for word in ("lunch", "ann"))
    moves = supervise(terminal, "show", worker).json["history"]
    assert [(each["triggered_by"], each["metadata"].get("reason")) for each in moves][1] == ("ann", "lunch")
    assert "event 2 by ann, why: lunch" in terminal.run("history", worker).out


@pytest.mark.parametrize(("action", "state"), [("fail", "FAILED"), ("terminate", "TERMINATED")])
def test_a_worker_ends(terminal: Terminal, worker: str, action: str, state: str) -> None:
    supervise(terminal, "start", worker)
    assert supervise(terminal, action, worker, *WHY).json["subject"]["status"] == state
    listed = supervise(terminal, "list", "--status", state).json
    assert worker in {each["entity_id"] for each in listed}


def test_an_illegal_action_answers_409_with_the_state_and_what_is_legal_and_exits_2(
    terminal: Terminal, worker: str
) -> None:
    refused = supervise(terminal, "pause", worker, *WHY)
    assert refused.code == 2
    assert refused.json["status_code"] == 409
    assert refused.json["error"] == "IllegalTransition"
    assert (refused.json["state"], refused.json["legal"]) == ("IDLE", ["start_task", "terminate"])
    said = terminal.run("supervise", "worker", "pause", worker, *WHY)
    assert said.code == 2
    said.is_one_clear_line("IDLE", "start_task")


@pytest.mark.parametrize(
    "words",
    [
        *[("supervise", "worker", each, "w_x") for each in ("pause", "resume", "terminate")],
        ("supervise", "worker", "recover", "w_x", "unrecoverable"),
        ("job", "cancel", "j_x"),
        ("run", "cancel", "x"),
        ("job", "recover", "j_x", "timeout"),
        ("breaker", "configure", "x"),
        ("patch", "create", "--based-on", "x"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_what_changes_others_work_says_why_or_is_refused(terminal: Terminal, words: tuple[str, ...]) -> None:
    unsaid = terminal.run(*words, "--by", "ann", "--json")
    assert (unsaid.code, unsaid.json["message"]) == (2, "Missing option '--reason'.")
    blank = terminal.run(*words, "--by", "ann", "--reason", " ")
    assert blank.code == 2
    blank.is_one_clear_line("reason begins or ends with a blank")


def test_saying_it_again_with_its_request_id_is_harmless(terminal: Terminal, worker: str) -> None:
    name = f"start-{worker}"
    first, again = (supervise(terminal, "start", worker, "--request-id", name).json for _ in range(2))
    assert (first["response"], again["replayed"]) == (again["response"], True)
    other = terminal.run("supervise", "worker", "terminate", worker, *WHY, "--request-id", name)
    assert other.code == 2
    other.is_one_clear_line("another body")


def test_a_job_waits_for_workers_runs_with_them_and_ends(terminal: Terminal, project: str, worker: str) -> None:
    submitted = terminal.run("job", "submit", "build it", "--workers", "2", "--json").json
    job = submitted["subject"]["entity_id"]
    assert terminal.run("job", "validate", job).code == 0
    waiting = terminal.run("job", "allocate", job)
    assert waiting.code == 0
    assert "2 needed" in waiting.out
    supervise(terminal, "create")
    terminal.run("job", "allocate", job)  # or the sweep was faster, and this is refused
    succeeded = terminal.run("job", "succeed", job, "--result", '{"tests": 3}', "--json").json
    assert succeeded["subject"]["status"] == "COMPLETED"
    assert {each["status"] for each in succeeded["subject"]["workers"]} == {"COMPLETED"}
    assert terminal.run("job", "cancel", job, *WHY, "--json").json["status_code"] == 409


def test_errors_are_recovered_from_by_the_tables_of_the_specification(
    terminal: Terminal, project: str, worker: str
) -> None:
    supervise(terminal, "start", worker)
    tried = [terminal.run("supervise", "worker", "recover", worker, "transient_network", *WHY) for _ in range(4)]
    assert [each.code for each in tried] == [0] * 4
    assert "retry (3 of 3), now RUNNING" in tried[2].out
    assert "fail, now FAILED" in tried[3].out
    refused = terminal.run("supervise", "worker", "recover", worker, "resource_exhaustion", *WHY, "--json")
    assert (refused.code, refused.json["status_code"]) == (2, 409)
    supervise(terminal, "create")
    job = terminal.run("job", "submit", "build", "--json").json["subject"]["entity_id"]
    terminal.run("job", "validate", job)
    terminal.run("job", "allocate", job)  # or the sweep was faster, and this is refused
    (lost,) = terminal.run("job", "show", job, "--json").json["workers"]
    again = terminal.run("job", "recover", job, "worker_crash", "--worker", lost["entity_id"], *WHY, "--json").json
    assert (again["action"], again["subject"]["status"]) == ("respawn", "RUNNING")
    assert again["replacement"]["entity_id"] != lost["entity_id"]


def test_a_tree_of_jobs_is_shown_and_canceled(terminal: Terminal) -> None:
    root = terminal.run("job", "submit", "the root", "--json").json["subject"]["entity_id"]
    child = terminal.run("job", "submit", "a child", "--parent", root, "--json").json["subject"]
    assert child["depth"] == 1
    assert terminal.run("job", "cancel", root, *WHY).code == 0
    tree = terminal.run("job", "tree", root)
    assert "the root CANCELED" in tree.out
    assert "── a child CANCELED" in tree.out
    assert [each["depth"] for each in terminal.run("job", "tree", root, "--json").json] == [0, 1]


@pytest.mark.parametrize(
    ("words", "naming"),
    [
        (("supervise", "worker", "start", "nobody"), "nobody"),
        (("supervise", "worker", "list", "--status", "DOING"), "PAUSED"),
        (("job", "submit", "x", "--workers", "11"), "worker_count"),
        (("job", "submit", "x", "--depth", "6"), "depth"),
        (("job", "submit", "x", "--parent", "nobody"), "nobody"),
        (("job", "list", "--status", "DOING"), "CANCELED"),
        (("breaker", "show", "no-such-tool"), "no-such-tool"),
        (("breaker", "reset", "no-such-tool", "--by", "ann", "--reason", "r"), "no-such-tool"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(terminal: Terminal, words: tuple[str, ...], naming: str) -> None:
    answer = terminal.run(*words)
    assert answer.code == 2
    answer.is_one_clear_line(naming)


@pytest.fixture
def tool(terminal: Terminal, project: str) -> str:
    """A tool whose breaker has opened."""
    name = f"tool-{uuid7().hex[-8:]}"
    context = f'{{"tool_id": "{name}", "cooldown_seconds": 3600}}'
    terminal.ok("create", "circuit_breaker", name, "--context", context)
    terminal.by_right(name, "failure_threshold_exceeded")
    return name


def test_a_breaker_is_shown_listed_and_reset_with_who_and_why(terminal: Terminal, project: str, tool: str) -> None:
    shown = terminal.run("breaker", "show", tool, "--json").json
    assert (shown["state"], shown["cooldown_seconds"]) == ("OPEN", 3600)
    assert 3500 < shown["seconds_until_reset"] <= 3600
    (listed,) = terminal.run("breaker", "list", "--project", project, "--json").json
    assert listed["tool_id"] == tool
    configured = terminal.run("breaker", "configure", tool, "--cooldown", "7200", *WHY, "--json").json
    assert (configured["cooldown_seconds"], configured["failure_threshold"]) == (7200, 5)
    assert configured["seconds_until_reset"] > 7000
    (change,) = terminal.run("breaker", "show", tool, "--json").json["configurations"]
    assert (change["configured_by"], change["reason"], change["old_cooldown_seconds"]) == ("ann", WHY[-1], 3600)
    assert configured["configurations"] == [change]
    said = terminal.run("breaker", "show", tool).out
    assert all(word in said for word in ("ann", "flaky", "3600 → 7200"))
    refused = terminal.run("breaker", "configure", tool, "--cooldown", "1", "--by", "ann", "--reason", " ")
    assert refused.code == 2
    refused.is_one_clear_line("reason begins or ends with a blank")
    closed = terminal.run("breaker", "reset", tool, "--by", "ann", "--reason", "mended")
    assert closed.code == 0
    assert "CLOSED" in closed.out
    moves = terminal.run("breaker", "show", tool, "--json").json["history"]
    assert [each["trigger"] for each in moves][1:] == ["cooldown_expires", "success"]
    assert all(each["metadata"]["operator"] == "ann" for each in moves[1:])
    assert "failures in a row" in terminal.run("breaker", "show", tool).out
