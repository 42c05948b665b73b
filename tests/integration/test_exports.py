"""Exports: every event in exactly one, read-only, signed; and event logs as files, checked without a server."""

import gzip
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

from interlock.cli.audit.audit import app
from interlock.workers import sweeps
from interlock.workers.audit import exports, log_validation, signing_keys
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.relay.journal import files
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, InterlockError
from interlock.workflows.input.json_text import read
from tests.driving import UP_TO_REVIEW, applied, drain_all
from tests.integration.test_journal import told
from tests.running import Stage
from tests.tampering import unprotected

pytestmark = pytest.mark.integration


@pytest.fixture
def story(client: Client, project: str) -> UUID:
    made: UUID = client.create("story", "S-1", project=project)["id"]
    applied(client, made, *UP_TO_REVIEW)
    return made


def hashes(runtime: Runtime) -> list[str]:
    """Of all events exported, in the exports' order."""
    return [
        read(line)["hash"]
        for path in sorted(exports.directory(runtime).glob("export-*"))
        for line in gzip.decompress((path / exports.EVENTS).read_bytes()).splitlines()
    ]


def said(runtime: Runtime, *paths: Path) -> list[str]:
    """Findings in files, without their paths."""
    found = [
        each
        for each in log_validation.validate(paths, runtime.catalogue)
        if isinstance(each, log_validation.LogFinding)
    ]
    return [f"{Path(each.file).name}:{each.line}: {each.message}" for each in found]


def seals(runtime: Runtime, *paths: Path) -> list[str]:
    return [
        each.message
        for each in log_validation.seals(paths, signing_keys.trusted_keys(runtime.settings.signing_directory))
    ]


def test_each_event_is_in_one_export_and_nothing_makes_none(runtime: Runtime, client: Client, story: UUID) -> None:
    one = exports.export(runtime)
    assert one is not None
    assert one.events == 3
    assert exports.export(runtime) is None
    applied(client, story, "block")
    other = exports.export(runtime)
    assert other is not None
    assert hashes(runtime) == told(client)
    manifests = [json.loads((each.directory / exports.MANIFEST).read_text()) for each in (one, other)]
    assert [each["number"] for each in manifests] == [1, 2]
    assert manifests[1]["behind"] == manifests[0]["upto"]
    assert manifests[0]["anchor"]["record"] != manifests[1]["anchor"]["record"]
    assert verify(runtime).ok
    for each in (one, other):
        assert seals(runtime, each.directory) == []
        assert said(runtime, each.directory) == []
        assert [path.stat().st_mode & 0o222 for path in (each.directory, *each.directory.iterdir())] == [0] * 4


def test_an_export_that_is_kept_back_or_replaced_shows_to_who_has_only_the_files(
    runtime: Runtime, client: Client, project: str, tmp_path: Path
) -> None:
    made = []
    for number in range(3):  # each of another story: no chain leads from one to the next
        applied(client, client.create("story", f"S-{number}", project=project)["id"], *UP_TO_REVIEW)
        one = exports.export(runtime)
        assert one
        made.append(one.directory)
    assert seals(runtime, *made) == []
    assert seals(runtime, made[0], made[2]) == ["gap: export 3 follows 1; expected 2"]
    other = shutil.copytree(made[1], tmp_path / "other")
    for path in (other, *other.iterdir()):
        path.chmod(0o750)
    (other / exports.MANIFEST).write_bytes((made[1] / exports.MANIFEST).read_bytes() + b"\n")
    assert "does not follow export 2 as it is here" in seals(runtime, made[0], other, made[2])
    (other / exports.SIGNATURE).unlink()
    assert "changed: its signature is not that of its content" in seals(runtime, other)
    (other / exports.MANIFEST).write_bytes(b"junk")
    (says,) = seals(runtime, other)
    assert says.startswith("is not a manifest of an export")
    (other / exports.MANIFEST).unlink()
    with pytest.raises(BadInput, match="not an export"):
        seals(runtime, other)


def test_one_left_by_a_killed_process_is_made_read_only_when_it_is_taken_over(
    runtime: Runtime, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "chmod", lambda *_: None)
        patched.setattr(exports, "_enter", lambda *_: None)
        exports.export(runtime)
    one = exports.export(runtime)
    assert one
    assert one.directory.stat().st_mode & 0o222 == 0


def test_what_is_signed_can_be_checked_without_us(runtime: Runtime, story: UUID, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    one = exports.export(runtime)
    assert one
    (public,) = runtime.settings.signing_directory.glob("*.pub")
    where = {"-in": one.directory / exports.MANIFEST, "-sigfile": one.directory / exports.SIGNATURE, "-inkey": public}
    command = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", *(str(x) for pair in where.items() for x in pair)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_more_than_one_part_is_exported_part_by_part(
    runtime: Runtime, client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "PART", 4)
    monkeypatch.setattr(exports, "BATCH", 2)
    client.fire_many([Firing(story, ("block", "unblock")[number % 2], "a") for number in range(8)])
    drain_all(runtime)
    assert [each.events for each in exports.export_all(runtime)] == [4, 4, 3]
    assert hashes(runtime) == told(client)


def test_killed_before_the_database_knew_it_is_taken_over_as_it_is(
    runtime: Runtime, client: Client, story: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(exports, "_enter", lambda *_: None)
        exports.export(runtime)
    (path,) = exports.directory(runtime).glob("export-*")
    before = (path / exports.MANIFEST).read_bytes()
    applied(client, story, "block")
    assert [each.events for each in exports.export_all(runtime)] == [3]
    assert (path / exports.MANIFEST).read_bytes() == before
    assert [each.events for each in exports.export_all(runtime)] == [1]
    assert hashes(runtime) == told(client)


def test_a_half_written_draft_is_thrown_away(runtime: Runtime, client: Client, story: UUID) -> None:
    draft = exports.directory(runtime) / ".draft-000001"
    draft.mkdir(parents=True)
    (draft / exports.EVENTS).write_bytes(b"half")
    exports.export(runtime)
    assert hashes(runtime) == told(client)
    assert not draft.exists()


def test_what_is_anothers_is_not_overwritten(runtime: Runtime, client: Client, story: UUID) -> None:
    other = exports.directory(runtime) / "export-000001.2020-01-01"
    other.mkdir(parents=True)
    with pytest.raises(exports.ExportFault, match=r"is not an export: .* is unreadable or incomplete"):
        exports.export(runtime)
    (other / exports.MANIFEST).write_text(
        json.dumps({"behind": {"xid": 5, "position": 6}, "upto": {"xid": 7, "position": 8}})
    )
    with pytest.raises(exports.ExportFault, match="another database"):
        exports.export(runtime)


def test_the_sweep_exports_when_it_is_time(
    make_runtime: Callable[..., Runtime], story: UUID, client: Client, dba: "psycopg.Connection[Any]"
) -> None:
    runtime = make_runtime(export_seconds=3_600.0)
    assert sweeps.SWEEPS["export"](runtime) == 3
    applied(client, story, "block")
    assert sweeps.SWEEPS["export"](runtime) == 0
    with unprotected(dba, "audit_exports"):
        dba.execute("ALTER TABLE audit_exports DISABLE TRIGGER ALL")
        dba.execute("UPDATE audit_exports SET made_at = made_at - interval '1 hour'")
    assert sweeps.SWEEPS["export"](runtime) == 1


def test_an_export_changed_shows(runtime: Runtime, client: Client, story: UUID) -> None:
    one = exports.export(runtime)
    assert one
    path = one.directory / exports.EVENTS
    text = gzip.decompress(path.read_bytes())
    one.directory.chmod(0o750)
    path.chmod(0o640)
    path.write_bytes(gzip.compress(text.replace(b'"triggered_by": "agent-1"', b'"triggered_by": "agent-2"', 1)))
    (broken,) = seals(runtime, one.directory)
    assert broken.startswith("its SHA-256 is")
    assert said(runtime, one.directory) == ["events.jsonl.gz:1: changed: its hash is not that of its content"]
    path.write_bytes(gzip.compress(text)[:-20])
    assert any("ends or is damaged here" in each for each in said(runtime, one.directory))
    manifest = one.directory / exports.MANIFEST
    manifest.chmod(0o640)
    manifest.write_text(manifest.read_text().replace('"events": 3', '"events": 2'))
    assert "changed: its signature is not that of its content" in seals(runtime, one.directory)
    assert [each.message for each in verify(runtime).problems] == ["changed: it is not the manifest that was written"]


def test_the_journal_of_real_runs_is_right_in_parts_and_whole(
    make_runtime: Callable[..., Runtime], dba: "psycopg.Connection[Any]", project: str
) -> None:
    runtime = make_runtime(journal_bytes=5_000)
    stage = Stage(runtime, dba)
    stage.submit(
        {"w": {}, "v": {"depends_on": ["w"]}},
        {
            "t": {"workstream": "w", "max_retries": 1},
            "u": {"workstream": "w"},
            "x": {"workstream": "v", "depends_on": ["t"], "critical": True},
        },
        {"g": {"workstream": "w"}},
    )
    stage.start()
    stage.work("t", exit_code=1)
    dba.execute("UPDATE trigger_requests SET not_before = now() WHERE status = 'scheduled'")
    sweeps.SWEEPS["dispatch"](runtime)
    stage.settle()
    for name in ("t", "u"):
        stage.work(name)
    stage.fire("g", "gate_passed", exit_code=0)
    stage.land()
    stage.work("x", exit_code=2)
    story = Client(runtime).create("story", "S-1", project=project)["id"]
    applied(Client(runtime), story, *UP_TO_REVIEW, "block")
    sweeps.SWEEPS["relay"](runtime)
    paths = files(runtime.settings.state_directory)
    assert len(paths) > 3
    assert said(runtime, *paths) == []
    for path in paths:
        assert said(runtime, path) == []
    assert any("leaves" in each or "goes back" in each for each in said(runtime, *reversed(paths)))


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        pytest.param(
            '"to_state": "design"',
            '"to_state": "review"',
            "1: illegal: analysis → review by design_complete",
            id="state",
        ),
        pytest.param('"severity": "info"', '"severity": "error"', "1: severity is error; expected info", id="severity"),
        pytest.param('"seq": 2', '"seq": 3', "2: gap: seq 3 follows 1 of line 1; expected 2", id="number"),
        pytest.param(
            '"request_id": "', '"request_id": "x', "1: changed: its hash is not that of its content", id="other"
        ),
    ],
)
def test_a_journal_changed_is_named_by_file_and_line(
    runtime: Runtime, story: UUID, tmp_path: Path, was: str, becomes: str, says: str
) -> None:
    sweeps.SWEEPS["relay"](runtime)
    (path,) = files(runtime.settings.state_directory)
    copy = tmp_path / "copy.jsonl"
    copy.write_text(path.read_text().replace(was, becomes, 1))
    assert any(each.startswith(f"copy.jsonl:{says}") for each in said(runtime, copy))


def test_a_journal_with_a_line_taken_out_or_two_swapped_shows(runtime: Runtime, story: UUID, tmp_path: Path) -> None:
    sweeps.SWEEPS["relay"](runtime)
    (path,) = files(runtime.settings.state_directory)
    first, second, third = path.read_text().splitlines(keepends=True)
    copy = tmp_path / "copy.jsonl"
    copy.write_text(first + third)
    assert "copy.jsonl:2: chain broken: it does not follow line 1" in said(runtime, copy)
    copy.write_text(first + third + second)
    assert any(each.startswith("copy.jsonl:3: commit order goes back") for each in said(runtime, copy))


@pytest.mark.parametrize(
    ("field", "becomes", "says"),
    [
        ("hash", None, "has no hash, but line 1 has one"),
        ("reason", "lunch", "changed: reason is 'lunch', but its metadata say None"),
        ("operator", "ann", "changed: operator is 'ann', but its metadata say None"),
        ("event_type", "manual_override", "changed: event_type is 'manual_override'"),
        ("entity_id", "S-9", "changed: line 1 calls it 'S-1'"),
    ],
)
def test_what_is_not_hashed_itself_cannot_be_changed_either(
    runtime: Runtime, story: UUID, tmp_path: Path, field: str, becomes: str | None, says: str
) -> None:
    sweeps.SWEEPS["relay"](runtime)
    (path,) = files(runtime.settings.state_directory)
    lines = path.read_text().splitlines()
    event = json.loads(lines[1]) | {field: becomes}
    lines[1] = json.dumps({name: value for name, value in event.items() if value is not None or name != field})
    copy = tmp_path / "copy.jsonl"
    copy.write_text("\n".join(lines) + "\n")
    assert any(each.startswith(f"copy.jsonl:2: {says}") for each in said(runtime, copy)), said(runtime, copy)


GOOD = (
    b'{"timestamp": "2024-01-15T10:30:00.000Z", "event_type": "task_state_transition", "severity": "info",'
    b' "entity_id": "t", "from_state": "pending", "to_state": "queued", "trigger": "scheduler_assigned"%b}\n'
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\xef\xbb\xbf" + (GOOD % b"").replace(b"\n", b"\r\n"), []),
        (b"\xff\x00\xfe junk\n" + GOOD % b"", ["1: no JSON object"]),
        (b"[" * 100_001 + b"\n" + GOOD % b"", ["1: no JSON object: nested more than 100,000 deep"]),
        (GOOD % b', "metadata": {"a": 1e999999999}', ["1: no JSON object: a number of more than 131,072 digits"]),
        (GOOD % b', "metadata": {"a": 1e99999999999999999999}', ["1: no JSON object: not a number"]),
        (GOOD % b', "metadata": {"a": 1.0}' + (GOOD % b"")[:60], ["2: no JSON object"]),
        (b"x" * 3_000 + b"\n" + GOOD % b"", ["1: longer than"]),
        (b"x" * 3_000, ["1: longer than"]),
        (gzip.compress(GOOD % b"")[:60], ["1: the packed file ends or is damaged here"]),
    ],
    ids=[
        "nothing",
        "byte order mark",
        "binary",
        "nested deeply",
        "too many digits",
        "no number",
        "last line cut",
        "long line",
        "long last line",
        "packed and cut",
    ],
)
def test_whatever_a_file_holds_is_a_finding_and_no_fault(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, expected: list[str]
) -> None:
    monkeypatch.setattr(log_validation, "LONGEST", 1_000 if b"xxx" in content else log_validation.LONGEST)
    log = tmp_path / "log.jsonl"
    log.write_bytes(content)
    says = said(runtime, log)
    assert len(says) == len(expected)
    assert all(each.startswith(f"log.jsonl:{wanted}") for each, wanted in zip(says, expected, strict=True)), says


def test_a_log_comes_through_a_pipe_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(GOOD % b""),))
    writing.start()
    answer = CliRunner().invoke(app, ["validate", str(pipe)])
    writing.join()
    assert (answer.exit_code, "ok: 1 event" in answer.stdout) == (0, True)


def test_what_would_steer_a_terminal_is_spelled_out(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes((GOOD % b"").replace(b"scheduler_assigned", b"x\\u001b]0;y"))
    answer = CliRunner().invoke(app, ["validate", str(log)])
    assert answer.exit_code == 1
    assert "\x1b" not in answer.stdout
    assert "by x\\x1b]0;y" in answer.stdout


def test_the_command_names_file_and_line_and_exits_1(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    good = {
        "timestamp": "2024-01-15T10:30:00.000Z", "event_type": "task_state_transition", "severity": "info",
        "entity_id": "task-ulid-001", "from_state": "running", "to_state": "validating",
        "trigger": "execution_completed", "metadata": {"duration_seconds": 45, "retry_count": 0},
    }  # fmt: skip
    log.write_text(json.dumps(good) + "\n")
    right = CliRunner().invoke(app, ["validate", str(log)])
    assert (right.exit_code, "ok: 1 event" in right.stdout) == (0, True)
    log.write_text(json.dumps(good) + "\n" + json.dumps(good | {"to_state": "completed"}) + "\n")
    wrong = CliRunner().invoke(app, ["validate", str(log)])
    assert wrong.exit_code == 1
    assert f"{log}:2: illegal: running → completed by execution_completed" in wrong.stdout
    answer = CliRunner().invoke(app, ["validate", str(log), "--json"])
    assert answer.exit_code == 1
    read_back = json.loads(answer.stdout)
    assert (read_back["ok"], read_back["events"], read_back["found"]) == (False, 2, 2)
    assert {each["line"] for each in read_back["problems"]} == {2}
    assert CliRunner().invoke(app, ["validate", str(tmp_path / "none")]).exit_code == 2


@pytest.mark.parametrize("command", ["anchor", "export"])
def test_a_directory_that_cannot_be_written_is_an_error_that_says_which(
    make_runtime: Callable[..., Runtime], story: UUID, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    runtime = make_runtime(audit=Path("/dev/null/audit"))
    monkeypatch.setattr("interlock.cli.audit.audit.Client", lambda: Client(Runtime(runtime.settings)))
    answer = CliRunner().invoke(app, [command])
    assert isinstance(answer.exception, InterlockError)
    assert "/dev/null/audit" in str(answer.exception)
    assert "INTERLOCK_AUDIT" in str(answer.exception)
