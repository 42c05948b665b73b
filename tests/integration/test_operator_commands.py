"""What operators type: override, operator, quarantine, compensation, regression, patch create, redrive."""

import getpass
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import make_engine, transaction
from interlock.db.operations import operators
from interlock.supervisor.environment import environment
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.effects import patches
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.cli.terminal import Shell
from tests.commanding import OPERATOR
from tests.driving import state
from tests.landscape import Landscape
from tests.repositories import everything, git
from tests.rights import OF_SECRET, end_at
from tests.sleepers import lasting, sleepers
from tests.waiting import eventually

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
Dba = psycopg.Connection[Any]
WHY = ("--by", "ann", "--reason", "seen to it")
NIGHT = ("--reason", "for the night")


@pytest.fixture
def land(runtime: Runtime, ann: None, dba: Dba, tmp_path: Path) -> Landscape:
    return Landscape(runtime, dba, tmp_path)


@cache
def shell() -> Shell:
    """The process of all commands here."""
    return Shell()


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """It ends with the last test."""
    yield
    shell().end()
    shell.cache_clear()


def interlock(settings: Settings, *words: str, code: int = 0) -> str:
    """Run a command; what it printed."""
    done = shell().run(words, environment(settings))
    assert done.code == code, done.said
    assert "Traceback" not in done.err
    return done.said


def answer(settings: Settings, *words: str, code: int = 0) -> Any:
    return json.loads(interlock(settings, *words, "--json", code=code))


def test_who_migrates_a_new_database_is_its_first_operator_and_those_that_are_named(
    servers: Servers, broker_url: str, tmp_path: Path
) -> None:
    with databases.copy_of(servers, "template0") as url:
        settings = Settings(
            home=tmp_path,
            database_url=url,
            owner_url=databases.as_owner(servers, url),
            broker_url=broker_url,
            operators=("bob", "cyd"),
        )
        me = getpass.getuser()
        assert answer(settings, "migrate")["operators"] == [me, "bob", "cyd"]
        assert answer(settings, "migrate")["operators"] == []
        assert [each["name"] for each in answer(settings, "operator", "list")] == [me, "bob", "cyd"]
        assert answer(settings, "operator", "grant", "dan", "--until", "12h", *NIGHT)["granted"] == ["dan"]
        assert (
            "is not an operator"
            in answer(settings, "operator", "grant", "eve", "--by", "eve", *NIGHT, code=2)["message"]
        )
        for name in (me, "bob", "dan"):
            done = {"revoked": name, "by": "cyd", "reason": "for the night"}
            assert answer(settings, "operator", "revoke", name, "--by", "cyd", *NIGHT) == done
        last = answer(settings, "operator", "revoke", "cyd", "--by", "cyd", *NIGHT, code=2)
        assert "the only operator" in last["message"]
        assert [each["name"] for each in answer(settings, "operator", "list")] == ["cyd"]
        ended = {each["name"]: each["revoked_by"] for each in answer(settings, "operator", "list", "--all")}
        assert ended == {me: "cyd", "bob": "cyd", "cyd": None, "dan": "cyd"}
        assert answer(settings, "migrate")["operators"] == [], "who was revoked is not granted again"
        engine = make_engine(settings.resolved_database_url())
        with transaction(engine) as connection:
            assert operators.current(connection, [me, "cyd"]) == {"cyd"}
        engine.dispose()


def test_where_nobody_is_an_operator_it_says_so_and_what_helps(land: Landscape, dba: Dba) -> None:
    settings, bad = land.runtime.settings, land.patch("no diff", "bad")
    land.settle()
    drop = ("override", "drop-patch", str(bad), *WHY)

    def doctor() -> Any:
        checks = json.loads(interlock(settings, "doctor", "--json", code=1))["findings"]
        return next(each for each in checks if each["check"] == "operators")

    assert doctor()["level"] == "ok"
    answer(settings, "operator", "revoke", OPERATOR, *WHY)  # who gave the patch its command
    answer(settings, "operator", "grant", "bob", *WHY, "--until", "1h")
    assert "never expires" in answer(settings, "operator", "revoke", "ann", *WHY, code=2)["message"]
    end_at(dba, "now() + interval '1 hour'")
    assert "every operator's grant expires" in doctor()["message"]
    end_at(dba, "now() - interval '1 second'")
    assert doctor() | {"message": ""} == {
        "check": "operators", "level": "warn", "message": "", "cure": "interlock operator grant NAME",
    }  # fmt: skip
    assert "`interlock operator grant ann --reason WHY` makes" in answer(settings, *drop, code=2)["message"]
    answer(settings, "operator", "grant", "ann", *WHY)
    answer(settings, *drop)
    assert state(land.client, bad) == "dropped"


UNREADABLE = {
    "": "reason must be 1 to 2,000 characters",
    "  ": "reason begins or ends with a blank",
    "x" * 10_240: "reason must be 1 to 2,000 characters",
    "\n\t": "reason holds U+000A",
}


def test_an_override_without_a_reason_that_can_be_read_is_refused(land: Landscape) -> None:
    bad = land.patch("no diff", "bad")
    land.settle()
    drop = ("override", "drop-patch", str(bad), "--by", "ann", "--reason")
    for reason, why in UNREADABLE.items():
        assert why in answer(land.runtime.settings, *drop, reason, code=2)["message"]
        assert state(land.client, bad) == "quarantined", reason


def test_an_override_is_tried_done_and_refused(land: Landscape) -> None:
    settings, bad = land.runtime.settings, land.patch("no diff", "bad")
    land.settle()
    tried = interlock(settings, "override", "drop-patch", "demo/w/bad^1", *WHY, "--dry-run")
    assert "would move patch_ledger/demo/w/bad^1: quarantined → dropped (drop)" in tried
    assert "nothing was changed" in tried
    assert state(land.client, bad) == "quarantined"
    assert (
        "eve" in answer(settings, "override", "drop-patch", str(bad), "--by", "eve", "--reason", "x", code=2)["message"]
    )
    done = answer(settings, "override", "drop-patch", str(bad), *WHY)
    assert [(each["from_state"], each["to_state"]) for each in done["moves"]] == [("quarantined", "dropped")]
    event = land.client.history(bad)[-1]
    assert (event["severity"], event["metadata"]["operator"], event["metadata"]["reason"]) == (
        "warning",
        "ann",
        "seen to it",
    )
    (listed,) = answer(settings, "override", "list")
    assert (listed["operator"], listed["entity_id"], listed["to_state"], listed["reason"]) == (
        "ann",
        "demo/w/bad^1",
        "dropped",
        "seen to it",
    )
    assert answer(settings, "override", "list", "--by", "bob") == []
    again = answer(settings, "override", "drop-patch", str(bad), *WHY, code=2)
    assert "legal there: nothing: it has ended" in again["message"]
    assert "is not a patch_ledger" in answer(settings, "override", "drop-patch", str(land.run), *WHY, code=2)["message"]


def test_a_completed_task_keeps_the_digest_of_what_was_verified(land: Landscape, tmp_path: Path) -> None:
    settings, task = land.runtime.settings, land.task({"x": "y\n"})
    missing = ("override", "complete-task", str(task), *WHY, "--verify-output", str(tmp_path / "none"))
    assert "No such file" in answer(settings, *missing, code=2)["message"]
    worker = land.client.create("worker", "W-1", project=land.project, context={"capabilities": [], **OF_SECRET})["id"]
    land.dba.execute("UPDATE tasks SET unmet = 0")
    for trigger, data in (
        ("scheduler_assigned", {}),
        ("worker_started", {"worker_id": str(worker), "capabilities": []}),
    ):
        land.fire(task, trigger, **data)
    (tmp_path / "out").write_text("done\n")
    answer(settings, "override", "complete-task", str(task), *WHY, "--verify-output", str(tmp_path / "out"))
    digest = subprocess.run(["sha256sum", tmp_path / "out"], capture_output=True, text=True, check=True).stdout
    assert land.said(task)["output"] == {"path": str(tmp_path / "out"), "sha256": digest.split()[0], "bytes": 5}


def test_quarantine_is_listed_and_shown_and_a_corrected_patch_is_submitted(land: Landscape, tmp_path: Path) -> None:
    settings = land.runtime.settings
    land.patch("no diff", "bad")
    good = land.committed_patch(name="good")
    (listed,) = answer(settings, "quarantine", "list", "--run", "demo")
    assert listed["entity_id"] == "demo/w/bad^1"
    shown = answer(settings, "quarantine", "show", "demo/w/bad^1")
    assert shown["reason"]
    assert shown["patch"] == "no diff"
    assert shown["validation_results"]["format"] is False
    assert "no diff" in interlock(settings, "quarantine", "show", "demo/w/bad^1")
    for command in ("quarantine", "patch"):
        assert "there is no patch_ledger 'demo/w'" in answer(settings, command, "show", "demo/w", code=2)["message"]
    assert "was never quarantined" in answer(settings, "quarantine", "show", str(good), code=2)["message"]
    (tmp_path / "mended").write_text(land.entry(good)["body"].replace("two", "zwei"))
    why = ("--reason", "it was no diff")
    base = ("patch", "create", "--based-on", "demo/w/bad^1", *why)
    link = "INSERT INTO workflow_links (source_id, role, inverse, target_id) VALUES (%s, 'gates', 'judges', %s)"
    land.dba.execute(link, (land.workstream, land.gate(["true"], "last", started=False)))
    corrected = ("--file", str(tmp_path / "mended"), "--by", "ann")
    assert "demo/w/bad~2 takes the place of task/demo/w/bad" in interlock(settings, *base, *corrected, "--dry-run")
    made = answer(settings, *base, *corrected)
    assert [*made["made"]] == ["demo/w/bad~2"]
    assert made["notes"][-1].endswith("and by the gates demo/w/last")
    told = answer(settings, "show", "task/demo/w/bad~2")["command"]
    assert (told["made_by"], told["reason"]) == ("ann", "it was no diff")
    entry = patches.submit(land.runtime, {"task_id": UUID(made["made"]["demo/w/bad~2"])})
    assert land.entry(entry)["context"]["retry_of"] == listed["ledger_id"]
    assert "asked for by ann: it was no diff" in interlock(settings, "patch", "show", str(entry))
    assert (
        "committed"
        in answer(settings, "patch", "create", "--based-on", str(good), *why, "--by", "ann", code=2)["message"]
    )
    blank = answer(settings, *base, "--by", "ann", "--reason", " ", code=2)["message"]
    assert blank.startswith("reason begins or ends with a blank")
    again = answer(settings, *base, "--by", "ann", code=2)["message"]
    assert "was made anew before: demo/w/bad~2 takes its place" in again


def test_a_plan_is_written_and_carried_out_by_an_operator(land: Landscape, tmp_path: Path) -> None:
    settings, entry = land.runtime.settings, land.committed_patch()
    land.validate_and_land()
    plan = tmp_path / "plan.json"
    answer(settings, "compensation", "plan", str(entry), "--output", str(plan))
    assert json.loads(plan.read_text())["actions"][0]["commit_sha"] == land.entry(entry)["commit_sha"]
    roll_back = ("override", "rollback-patch", str(entry), "--plan", str(plan))
    before = everything(land.checkout)
    tried = answer(settings, *roll_back, *WHY, "--dry-run")
    assert [each["to_state"] for each in tried["moves"]] == ["rolled_back"]
    assert "is not an operator" in answer(settings, *roll_back, "--by", "eve", "--reason", "x", code=2)["message"]
    assert everything(land.checkout) == before
    assert state(land.client, entry) == "committed"
    answer(settings, *roll_back, *WHY)
    assert state(land.client, entry) == "rolled_back"
    assert land.client.history(entry)[-1]["metadata"]["operator"] == "ann"


def test_the_patch_that_broke_it_is_named(land: Landscape) -> None:
    settings = land.runtime.settings
    for number in range(4):
        land.committed_patch({f"f{number}": "x\n"} if number != 2 else {"fault": "x\n"}, name=f"t{number}")
    land.validate_and_land()
    before = everything(land.checkout)
    for whose in (("--run", "demo"), ("--workstream", "demo/w")):
        found = answer(settings, "regression", "find", *whose, "--gate", "test ! -e fault")
        assert found["entry"] == "demo/w/t2^1"
    assert everything(land.checkout) == before
    assert git(land.checkout, "worktree", "list").count("\n") == 1
    nothing = answer(settings, "regression", "find", "--run", "demo", "--gate", "true", code=2)
    assert nothing["error"] == "NothingToFind"
    assert "--run or --workstream" in answer(settings, "regression", "find", "--gate", "true", code=2)["message"]


def test_a_gate_that_cannot_be_run_is_no_broken_tree(land: Landscape) -> None:
    land.committed_patch()
    told = answer(land.runtime.settings, "regression", "find", "--run", "demo", "--gate", "pytset -q", code=2)
    assert "ended with exit code 127" in told["message"]
    assert "pytset: not found" in told["message"]


def _interrupt(settings: Settings, number: int) -> None:
    """Begin a search, and interrupt it by a signal while its gate runs."""
    seconds = lasting(300 + number)  # to be seen by that: its sandbox lets a gate write nothing that we could look at
    words = ("regression", "find", "--run", "demo", "--gate", f"exec sleep {seconds}")
    searching = subprocess.Popen(
        [sys.executable, "-m", "interlock.cli.main", *words],
        cwd=ROOT,
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: sleepers(seconds), timeout=60)
    searching.send_signal(number)
    assert searching.wait(60) == 128 + number
    eventually(lambda: not sleepers(seconds))


def test_a_search_that_is_interrupted_leaves_nothing_behind(land: Landscape) -> None:
    land.committed_patch()
    before = everything(land.checkout)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        _interrupt(land.runtime.settings, number)
        assert everything(land.checkout) == before, number
        assert git(land.checkout, "worktree", "list").count("\n") == 1, f"the checkout's own, after {number!r}"
        assert not list(land.runtime.settings.worktrees_directory.glob("regression*")), number


def test_redriving_all_leaves_what_is_quarantined_and_says_so(land: Landscape) -> None:
    story = land.client.create("story", "S-1", project=land.project)["id"]
    for name in ("stop-1", "kill-1"):
        land.client.fire(story, "design_complete", by="agent", request_id=name)
    chosen = land.runtime.settings
    answer(chosen, "quarantine", "request", "stop-1", "kill-1", *WHY)
    assert answer(chosen, "redrive", "--all", *WHY) == {
        "redriven": [],
        "by": "ann",
        "reason": "seen to it",
        "left": {"quarantined": ["stop-1", "kill-1"], "unreadable": []},
    }
    said = interlock(chosen, "redrive", "--all", *WHY)
    assert "2 left: quarantined (stop-1, kill-1); name them to release them" in said
    assert answer(chosen, "redrive", "stop-1", *WHY)["redriven"] == ["stop-1"]


def test_redriving_tells_who_did_it(land: Landscape, dba: Dba) -> None:
    story = land.client.create("story", "S-1", project=land.project)["id"]
    receipt = land.client.fire(story, "design_complete", by="agent")
    dba.execute(
        "UPDATE trigger_requests SET status = 'dead', finished_at = now() WHERE request_id = %s", (receipt.request_id,)
    )
    answer(land.runtime.settings, "redrive", "--all", *WHY)
    land.settle()
    assert land.client.history(story)[-1]["metadata"] == {"redriven_by": "ann", "redriven_because": "seen to it"}


def test_only_operators_quarantine_and_redrive_requests(land: Landscape) -> None:
    story = land.client.create("story", "S-1", project=land.project)["id"]
    land.client.fire(story, "design_complete", by="agent", request_id="r-1")
    chosen, eve = land.runtime.settings, ("--by", "eve", "--reason", "mine")
    for words in (("quarantine", "request", "r-1"), ("redrive", "--all"), ("redrive", "r-1")):
        assert "'eve' is not an operator" in answer(chosen, *words, *eve, code=2)["message"]
    assert "--reason" in answer(chosen, "redrive", "--all", "--by", "ann", code=2)["message"]
    land.settle()
    assert state(land.client, story) == "design"
    assert land.dba.execute(
        "SELECT array_agg(format('%s %s', metadata->>'attempted', metadata->>'instance') ORDER BY seq)"
        "  FROM workflow_transitions WHERE workflow_type = 'refusal_log'"
    ).fetchone() == (["quarantine r-1", "redrive --all", "redrive r-1"],)
