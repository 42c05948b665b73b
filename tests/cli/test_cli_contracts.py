"""What each command promises to those who call it: exit codes, JSON, references, repetition."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.cli.server.up_down import KINDS
from interlock.db.audit import verification
from interlock.workers.settings import Settings
from interlock.workers.system.users import os_user
from interlock.workflows.catalogue import catalogue
from interlock.workflows.forms.forms import FORMS
from tests.cli.terminal import LOOK_SECONDS, Terminal, json_values
from tests.cli.walking import every_command
from tests.waiting import eventually

EXAMPLES_PROMISED = (
    ("up",), ("down",), ("status",), ("create",), ("fire",), ("watch",),
    ("definitions", "show"), ("definitions", "graph"),
    ("operator", "grant"), ("operator", "revoke"), ("operator", "list"), ("quarantine", "list"), ("quarantine", "show"),
    ("compensation", "plan"), ("regression", "find"), ("patch", "create"), ("redrive",),
    ("effect", "list"), ("effect", "show"), ("effect", "retry"),
    *(("override", name) for name in (
        "complete-task", "fail-task", "reset-task", "unblock-task", "skip-step", "fail-workstream",
        "validate-workstream", "rollback-patch", "drop-patch", "reset-breaker",
    )),
    ("definitions", "diff"), ("definitions", "lock"), ("definitions", "migrate"), ("definitions", "handover"),
    ("definitions", "deprecate"), ("definitions", "remove"), ("definitions", "narrow"), ("definitions", "narrowed"),
    *(("audit", name) for name in ("verify", "anchor", "checkpoint", "export", "validate", "rebuild", "key")),
    ("metrics", "serve"), ("metrics", "show"), ("completion",), ("open",), ("api", "serve"), ("api", "document"),
    ("mcp", "serve"), ("mcp", "install"),
)  # fmt: skip
OTHERS = (
    (), ("show",), ("history",), ("list",), ("doctor",), ("dead",), ("migrate",),
    ("definitions",), ("definitions", "list"), ("definitions", "check"), ("definitions", "export"),
    ("definitions", "deprecated"),
    ("audit",),
)  # fmt: skip


def test_every_command_explains_itself_with_examples_where_words_are_not_enough(tmp_path: Path) -> None:
    commands = [*EXAMPLES_PROMISED, *OTHERS]
    for answer in Terminal(tmp_path).each([(*words, "--help") for words in commands]):
        assert answer.code == 0, answer.said
        assert r"\b" not in answer.out, answer.out
        prose = [line for line in answer.out.splitlines() if line.strip() and "Usage" not in line]
        assert len(prose) > 3, answer.out
        if answer.words[:-1] in EXAMPLES_PROMISED:
            assert "Example" in answer.out, answer.out
            assert "interlock " + " ".join(answer.words[:-1]) in answer.out.partition("Example")[2], answer.out
        if answer.words[0] == "create":
            assert {definition.type for definition in catalogue()} <= set(re.findall(r"\w+", answer.out))


def test_the_command_as_installed_tells_by_its_exit_code_what_became_of_it(terminal: Terminal, story: str) -> None:
    fire = ("fire", story, "design_complete", "--by", "ann", "--wait", "--json")
    applied, rejected = terminal.execute(*fire), terminal.execute(*fire)
    nowhere = terminal.set(DATABASE_URL="postgresql://127.0.0.1:1/interlock").execute(*fire)
    assert [(each.code, each.json.get("status")) for each in (applied, rejected)] == [(0, "applied"), (2, "rejected")]
    assert (nowhere.code, nowhere.json["error"]) == (1, "DatabaseError")


def test_create_answers_with_the_new_instance(terminal: Terminal, project: str, name: str) -> None:
    made = terminal.ok("create", "story", name, "--context", '{"size": 3}', "--by", "ann")
    assert made["current_state"] == "analysis"
    assert (made["workflow_type"], made["entity_id"], made["project"]) == ("story", name, project)
    assert (made["context"], made["created_by"], made["version"]) == ({"size": 3}, "ann", 0)


def test_create_takes_an_older_version_and_names_those_there_are(terminal: Terminal, name: str) -> None:
    """VERSION-7, LEGACY-1."""
    made = terminal.ok("create", "workstream@0.1.0", name)
    assert (made["definition_version"], made["current_state"]) == ("0.1.0", "S_PENDING")
    answer = terminal.run("create", "workstream@0.3.0", f"{name}-2")
    assert answer.code == 2
    answer.is_one_clear_line("0.3.0", "0.1.0, 0.2.0, 1.0.0, 1.1.0")


def test_who_acts_is_the_os_user_in_every_command_unless_somebody_is_named() -> None:
    acting = {words: each for words, command in every_command() for each in command.params if each.name == "by"}
    assert acting.pop(("override", "list")).default is None  # it filters
    assert len(acting) > 40
    assert {(each.required, each.default, each.show_default) for each in acting.values()} == {
        (False, os_user, "the OS user")
    }


def test_help_is_wrapped_by_the_terminal_and_not_as_its_source_is() -> None:
    for words, command in every_command():
        prose = [each for each in command.help.split("\n\n") if not each.startswith("\b")]
        assert not any("\n" in each for each in [*prose, command.short_help or ""]), words
        assert len(words) == 1 or command.short_help, words


def test_context_can_come_from_a_file(terminal: Terminal, project: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "context.json").write_text('{"author": "ann"}')
    made = terminal.ok("create", "story", name, "--context", f"@{tmp_path}/context.json")
    assert made["context"] == {"author": "ann"}


def test_an_instance_answers_to_its_entity_id_its_type_with_that_and_its_uuid(
    terminal: Terminal, project: str, story: str
) -> None:
    found = [terminal.ok("show", ref) for ref in (story, f"story/{story}")]
    found.append(terminal.ok("show", found[0]["id"]))
    assert {each["id"] for each in found} == {found[0]["id"]}
    assert found[0]["legal"] == ["design_complete", "block", "move_to_sprint", "leave_sprint"]
    assert {"links", "requests", "effects", "version", "definition_version"} <= found[0].keys()


def test_show_says_who_may_fire_what_not_everybody_may(terminal: Terminal, name: str) -> None:
    made = terminal.ok("create", "approval", name, "--context", '{"subject": "x"}')
    assert terminal.ok("show", made["id"])["may"] == {
        "approve": ["decider"],
        "reject": ["decider"],
        "expire": ["machinery"],
    }
    shown = terminal.run("show", made["id"]).out.splitlines()
    start = shown.index("legal now: nothing that anyone may fire")
    assert shown[start + 1 : start + 3] == [
        "  only by its deciders: approve, reject",
        "  only by Interlock itself: expire",
    ]


def test_an_ambiguous_entity_id_is_refused_with_its_candidates(terminal: Terminal, project: str, story: str) -> None:
    terminal.ok("create", "sprint", story)
    answer = terminal.run("fire", story, "block", "--by", "ann")
    assert answer.code == 2
    answer.is_one_clear_line(f"story/{story}", f"sprint/{story}", "TYPE/ENTITY_ID")
    assert terminal.ok("fire", f"story/{story}", "block", "--by", "ann", "--wait")["status"] == "applied"


def test_fire_returns_once_accepted_and_with_wait_once_applied(terminal: Terminal, story: str) -> None:
    accepted = terminal.ok("fire", story, "design_complete", "--by", "ann")
    assert accepted["status"] in {"pending", "applied"}
    assert accepted["replayed"] is False
    applied = terminal.ok("fire", story, "start_coding", "--by", "ann", "--wait", "--data", '{"sha": "abc"}')
    assert applied["status"] == "applied"
    assert (applied["result"]["from"], applied["result"]["to"], applied["result"]["seq"]) == (
        "design",
        "implementation",
        2,
    )
    assert terminal.ok("history", story)[1]["metadata"] == {"sha": "abc"}


def test_a_refused_trigger_exits_2_and_says_what_would_be_legal(terminal: Terminal, story: str) -> None:
    answer = terminal.run("fire", story, "tests_pass", "--by", "ann", "--wait", "--json")
    assert answer.code == 2
    assert answer.json["status"] == "rejected"
    assert answer.json["result"]["legal"] == ["design_complete", "block", "move_to_sprint", "leave_sprint"]
    told = terminal.run("fire", story, "tests_pass", "--by", "ann", "--wait")
    assert told.code == 2
    assert "rejected" in told.err
    assert "legal in 'analysis': design_complete, block, move_to_sprint, leave_sprint" in told.err


def test_a_held_trigger_exits_0_and_names_its_approval(terminal: Terminal, project: str, name: str) -> None:
    terminal.ok("create", "sprint", name, "--context", '{"author": "ann"}')
    held = terminal.ok("fire", name, "start", "--by", "ann", "--wait")
    assert held["status"] == "waiting"
    own = terminal.run("fire", held["result"]["approval"], "approve", "--by", "ann", "--wait")
    assert own.code == 2
    terminal.ok("fire", held["result"]["approval"], "approve", "--by", "bob", "--wait")
    eventually(lambda: terminal.ok("show", name)["current_state"] == "active", timeout=30)


def test_a_dead_trigger_exits_1_until_it_is_redriven(
    terminal: Terminal, project: str, name: str, tmp_path: Path
) -> None:
    fault = tmp_path / "fault"
    fault.touch()
    data = json.dumps({"broken_while": str(fault)})
    terminal.ok("create", "ticket", name)
    fire = ("fire", name, "take", "--by", "ann", "--request-id", f"take-{name}", "--data", data, "--wait", "--json")
    dead = terminal.run(*fire)
    assert dead.code == 1
    assert (dead.json["status"], dead.json["error"]) == ("dead", "ValueError: broken for now")
    assert terminal.ok("show", name)["error"] == "ValueError: broken for now"
    assert f"take-{name}" in [each["request_id"] for each in terminal.ok("dead")["requests"]]
    fault.unlink()
    assert terminal.ok("redrive", f"take-{name}", "--reason", "mended")["redriven"] == [f"take-{name}"]
    again = terminal.run(*fire)
    assert (again.code, again.json["status"], again.json["replayed"]) == (0, "applied", True)
    assert terminal.ok("redrive", "--all", "--reason", "mended")["redriven"] == []


def test_the_same_request_again_is_the_same_trigger(terminal: Terminal, story: str) -> None:
    fire = ("fire", story, "design_complete", "--by", "ann", "--request-id", f"once-{story}", "--wait")
    first, second = terminal.ok(*fire), terminal.ok(*fire)
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert second["result"] == first["result"]
    assert len(terminal.ok("history", story)) == 1


def test_the_same_request_again_says_so_also_if_it_has_to_wait(terminal: Terminal, story: str) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    fire = ("fire", story, "design_complete", "--by", "ann", "--request-id", f"once-{story}", "--after", soon)
    terminal.ok(*fire)
    again = terminal.ok(*fire, "--wait")
    assert (again["status"], again["replayed"]) == ("applied", True)


@pytest.mark.parametrize(
    "other",
    [("block", "--by", "ann"), ("design_complete", "--by", "bob"), ("design_complete", "--by", "ann", "--data", "{}1")],
)
def test_a_request_id_with_another_body_is_refused(terminal: Terminal, story: str, other: tuple[str, ...]) -> None:
    words = tuple('{"a": 1}' if word == "{}1" else word for word in other)
    used = ("--request-id", f"used-{story}")
    terminal.ok("fire", story, "design_complete", "--by", "ann", *used)
    answer = terminal.run("fire", story, *words, *used)
    assert answer.code == 2
    answer.is_one_clear_line(f"used-{story}", "another body")


def test_after_holds_a_trigger_back_until_then(terminal: Terminal, story: str) -> None:
    later = terminal.ok("fire", story, "design_complete", "--by", "ann", "--after", "1h")
    assert later["status"] == "scheduled"
    soon = terminal.ok("fire", story, "block", "--by", "ann", "--after", "1s")
    assert soon["status"] == "scheduled"
    past = terminal.ok("fire", story, "tests_pass", "--by", "ann", "--after", "2020-01-01T00:00:00Z")
    assert past["status"] != "scheduled"
    eventually(lambda: terminal.ok("show", story)["current_state"] == "blocked", timeout=30, every=LOOK_SECONDS)


def test_history_is_chained_and_names_its_events(terminal: Terminal, story: str) -> None:
    for trigger in ("design_complete", "block"):
        terminal.ok("fire", story, trigger, "--by", "ann", "--wait")
    first, second = terminal.ok("history", story)
    assert (first["seq"], second["seq"]) == (1, 2)
    assert (second["from_state"], second["trigger"], second["to_state"]) == ("design", "block", "blocked")
    assert second["prev_hash"] == first["hash"] != second["hash"]
    assert len(first["hash"]) == 64
    assert first["event_id"].startswith("evt_")
    assert len(first["event_id"]) == 30


def test_watch_tells_each_move_until_the_end(terminal: Terminal, project: str, name: str) -> None:
    terminal.ok("create", "ticket", name)
    with terminal.start("watch", name, "--json", "--timeout", "60") as watching:
        for trigger in ("take", "give_back", "take", "close"):
            terminal.ok("fire", name, trigger, "--by", "ann")
        out, err = watching.communicate(timeout=60)
    assert watching.returncode == 0, err
    events = terminal.run("history", name, "--json").json
    told = json_values(out)
    assert told == [{key: each[key] for key in each if key != "problems"} for each in events]
    assert [each["trigger"] for each in told] == ["take", "give_back", "take", "close"]


def test_list_shows_the_newest_of_a_type_in_a_state(terminal: Terminal, story: str) -> None:
    found = terminal.ok("list", "--type", "story", "--state", "analysis", "--limit", "1")
    assert terminal.ok("list", "--type", "story", "--state", "ANALYSIS", "--limit", "1") == found
    assert terminal.ok("list", "--type", "job", "--state", "failed") == [], "a job's is FAILED: the alert asks so"
    assert [each["entity_id"] for each in found] == [story]


def test_status_gives_every_part_and_where_it_listens(terminal: Terminal) -> None:
    found = terminal.ok("status")
    numbered = {
        "triggers": ("triggers1", "triggers2"),
        "work": ("work1",),
        "flower": (),
    }  # without this one
    assert {part["name"] for part in found["parts"]} == {name for kind in KINDS for name in numbered.get(kind, (kind,))}
    assert all(part["state"] == "ready" and part["pid"] for part in found["parts"])
    assert found["running"] is True
    assert found["home"] == str(terminal.home.resolve())
    assert found["broker_url"].startswith("redis://")
    with psycopg.connect(found["database_url"]) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_doctor_finds_a_healthy_installation_well(terminal: Terminal) -> None:
    # Other tests stop a part for a moment; a doctor called then has something to say.
    found = eventually(lambda: terminal.ok("doctor"), timeout=60)
    assert found["ok"] is True
    assert {"database", "beat", "workers", "redis", "backlog"} <= {each["check"] for each in found["findings"]}
    assert all(set(each) == {"check", "level", "message", "cure"} for each in found["findings"])


def test_migrating_again_changes_nothing(terminal: Terminal) -> None:
    told = terminal.ok("migrate")
    assert told["recorded"] == []
    assert told["revision"]


def test_audit_verify_tells_what_it_read_and_exits_1_at_a_changed_event(
    terminal: Terminal, story: str, dba: "psycopg.Connection[Any]"
) -> None:
    terminal.ok("fire", story, "design_complete", "--by", "ann", "--wait")
    verdict = terminal.ok("audit", "verify")
    assert (verdict["ok"], verdict["problems"]) == (True, [])
    assert min(verdict["instances"], verdict["transitions"]) >= 1
    event, asked = (terminal.ok("history", story)[0][each] for each in ("id", "request_id"))
    journal = terminal.home / ".state" / "transitions.jsonl"
    eventually(lambda: f'"{story}"' in journal.read_text())  # or it would tell of what was changed, for ever
    as_a_bad_dba = (
        "BEGIN; SET LOCAL session_replication_role = replica; ALTER TABLE workflow_transitions DISABLE TRIGGER USER; "
        "UPDATE workflow_transitions SET triggered_by = '{by}' WHERE id = '{event}'; {enable}; COMMIT"
    )
    triggers = [
        row[0]
        for row in dba.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'workflow_transitions'::regclass"
            " AND NOT tgisinternal AND tgenabled = 'A'"
        )
    ]
    enable = "; ".join(f"ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER {each}" for each in triggers)
    for lock in (verification.COMPARE_LOCK, verification.VERIFY_LOCK):  # in the sweeps' order: they would tell all day
        dba.execute("SELECT pg_advisory_lock(%s)", (lock,))
    dba.execute(as_a_bad_dba.format(by="mallory", event=event, enable=enable))  # type: ignore[arg-type]
    try:
        found = terminal.run("audit", "verify", "--json")
        shown, past = (terminal.run(verb, story, "--json") for verb in ("show", "history"))
        read = terminal.run("history", story)
    finally:
        dba.execute(as_a_bad_dba.format(by="ann", event=event, enable=enable))  # type: ignore[arg-type]
        dba.execute("SELECT pg_advisory_unlock_all()")
    assert found.code == 1
    assert found.json["ok"] is False
    instance = terminal.ok("show", story)["id"]
    # The journal told of the event before it was changed, and contradicts history now.
    told = [each for each in found.json["problems"] if "jsonl:" not in each["instance"]]
    assert {each["instance"] for each in told} == {instance}
    # Whoever reads this instance alone is told, too.
    assert [each.code for each in (shown, past, read)] == [1, 1, 1]
    changed = "changed: its hash is not that of its content"
    of_the_request = f"trigger_requests {asked} was changed: event 1 says otherwise"
    assert told == shown.json["problems"]
    assert [(each["seq"], each["message"]) for each in told] == [(1, changed), (None, of_the_request)]
    assert [each["problems"] for each in past.json] == [[changed]]
    assert f"event 1: {changed}" in read.said
    assert "verified: the chain is whole" in terminal.run("history", story).said
    assert terminal.ok("audit", "verify")["ok"] is True


def test_definitions_export_has_the_promised_shape(tmp_path: Path) -> None:
    here = Terminal(tmp_path)
    exported = here.ok("definitions", "export")
    assert here.run("definitions", "export").json == exported
    known = {(each.type, each.version): each for each in catalogue(Settings().definitions)}
    assert {(each["type"], each["version"]) for each in exported} == set(known)
    for each in exported:
        definition = known[each["type"], each["version"]]
        assert set(each) == {"type", "version", "initial", "states", "transitions"}
        assert each["states"] == {state: {"terminal": state in definition.terminal} for state in definition.states}
        assert each["initial"] in each["states"]
        sources = sum(len(move.sources) for move in definition.transitions)
        assert len(each["transitions"]) == sources
        assert all(set(move) - {"event"} == {"trigger", "source", "dest", "by"} for move in each["transitions"])
    assert here.run("definitions", "export", "--output", f"{tmp_path}/all.json").code == 0
    assert json.loads((tmp_path / "all.json").read_text()) == exported


def test_definitions_are_exported_in_other_forms(tmp_path: Path) -> None:
    here, known = Terminal(tmp_path / "never"), catalogue(Settings().definitions)
    for form in FORMS.values():
        printed = here.run("definitions", "export", "task@1.0.0", "--format", form.name)
        assert (printed.code, printed.out) == (0, form.write(known.get("task", "1.0.0")))
    assert here.run("definitions", "export", "--format", "sql", "--output", f"{tmp_path}/sql/all").code == 0
    files = {each.name: each.read_text() for each in (tmp_path / "sql" / "all").iterdir()}
    assert files == {FORMS["sql"].file_name(each): FORMS["sql"].write(each) for each in known}
    (tmp_path / "file").touch()
    for wrong, why in (
        (["--format", "sql"], "or with --output a directory for all"),
        (["--format", "bpmn"], "there is no format 'bpmn'. There are: json, mermaid,"),
        (["story@9.9.9"], "no version '9.9.9' of 'story'"),
        (["--format", "asl", "--output", f"{tmp_path}/file"], "cannot be made"),
    ):
        refused = here.run("definitions", "export", *wrong)
        assert refused.code == 2
        assert why in refused.said
    assert not here.home.exists()


def test_definitions_are_listed_shown_checked_and_drawn_without_a_server(tmp_path: Path) -> None:
    here = Terminal(tmp_path / "never")
    listed, shown, checked, drawn = here.each(
        [("definitions", *words, "--json") for words in (["list"], ["show", "story"], ["check"], ["graph", "story"])]
    )
    assert {each["type"] for each in listed.json} >= {"story", "sprint", "pr_review", "approval"}
    assert shown.json["checksum"] == next(each["checksum"] for each in listed.json if each["type"] == "story")
    assert checked.json["ok"] is True
    assert drawn.json["mermaid"].startswith("stateDiagram-v2")
    assert not here.home.exists()


def test_a_definition_is_shown_with_all_that_its_contexts_and_events_must_say(tmp_path: Path) -> None:
    here = Terminal(tmp_path / "never")
    task, breaker, patch = here.each(
        [("definitions", "show", each) for each in ("task", "circuit_breaker", "patch_ledger")]
    )
    said = "each event says: worker_id, duration_seconds, retry_count, exit_code, timeout_occurred"
    assert said in task.out
    assert "ends in completed, failed, cancelled" in task.out
    assert "running is left by timeout_exceeded after 30 min, or after what its timeout_sec says" in task.out
    assert "depends_on names a task: its depends_on, which knows this one among its dependents" in task.out
    assert re.search(r"workstream_id *│ yes *│ the UUID of its workstream", task.out)
    assert "never ends" in breaker.out
    assert "each event says" not in breaker.out
    assert "its birth asks for the effect validate_patch" in patch.out
