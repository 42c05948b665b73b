"""A patch goes through the ledger on a real repository: checked, applied, committed, or set aside and cleared away."""

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import effects as rows
from interlock.workers import effect_runner
from interlock.workers.effects import patches
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.driving import state
from tests.landscape import ONE_LINE, Landscape
from tests.repositories import diff, git
from tests.rights import fire

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
SETTINGS = {"max_attempts": 2}


def begin(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    """`begun`: a patch is applied."""
    land = Landscape(runtime, dba, root)
    land.applied_patch()
    return land


def test_a_patch_becomes_one_commit_of_its_workstreams_branch_and_leaves_the_worktree_clean(begun: Landscape) -> None:
    entry = begun.only_patch()
    assert (begun.place.path / "app.py").read_text() == ONE_LINE["app.py"]
    begun.leave({"left/by": "tests", "app.py": "spoilt by tests\n"})
    begun.fire(entry, "tests_passed")
    begun.settle()
    row = begun.entry(entry)
    assert row["state"] == "committed"
    assert row["commit_sha"] == git(begun.checkout, "rev-parse", begun.place.branch).strip()
    assert git(begun.checkout, "show", f"{row['commit_sha']}:app.py") == ONE_LINE["app.py"]
    assert git(begun.place.path, "status", "--porcelain", "--ignored") == ""
    trailers = git(begun.checkout, "log", "-1", "--format=%s%n%(trailers:only,unfold)", row["commit_sha"]).splitlines()
    assert set(filter(None, trailers)) == {
        "Mend",
        "Interlock-Run: demo",
        "Interlock-Task: demo/w/t",
        f"Interlock-Patch: {entry}",
    }
    assert all(row[f"validation_{name}_passed"] for name in ("format", "scope", "constraints", "tests"))
    assert git(begun.checkout, "log", "--format=%s", "main") == "First\n", "only a landing touches the base branch"


@pytest.mark.parametrize(
    ("patch", "verdicts", "reason"),
    [
        ("no diff at all", (False, False, False), "cannot read it as a diff"),
        ({"secret/key": "x\n"}, (True, False, True), "secret/key"),
        ({f"many/{each}": "x\n" for each in range(4)}, (True, True, False), "touches 4 files"),
    ],
)
def test_a_patch_that_is_not_allowed_is_quarantined_with_the_reason(
    runtime: Runtime, dba: Dba, tmp_path: Path, patch: Any, verdicts: tuple[bool, ...], reason: str
) -> None:
    land = Landscape(runtime, dba, tmp_path, {"path": "repo", "forbidden_paths": ["secret/"], "max_files": 3})
    entry = land.patch(patch)
    land.settle()
    row = land.entry(entry)
    assert row["state"] == "quarantined"
    assert reason in row["quarantine_reason"]
    assert tuple(row[f"validation_{name}_passed"] for name in ("format", "scope", "constraints")) == verdicts


def test_a_patch_without_a_repository_is_quarantined(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    land = Landscape(runtime, dba, tmp_path, repository=None)
    entry = land.patch(dict(ONE_LINE))
    land.settle()
    assert land.entry(entry)["quarantine_reason"] == "the plan has no repository for a patch to land in"


def test_each_further_try_goes_about_it_in_one_way_more(land: Landscape) -> None:
    text = diff(land.checkout, {"app.py": ONE_LINE["app.py"].replace("three", "3")})
    entry = land.patch(text.replace(" two\n", " two\r\n"))
    land.settle()
    land.fire(entry, "accept")
    land.settle()
    assert state(land.client, entry) == "apply_failed"
    assert land.said(entry)["files"] == ["app.py"]
    assert "exact" in land.said(entry)["reason"]
    assert git(land.place.path, "status", "--porcelain") == ""
    land.fire(entry, "retry_apply")
    land.settle()
    assert state(land.client, entry) == "applied"
    assert (land.said(entry)["try"], land.said(entry)["way"]) == (2, "whitespace")


def test_a_conflict_is_told_with_its_files_each_time_until_it_is_given_up(land: Landscape) -> None:
    entry = land.patch(diff(land.checkout, {"app.py": "x\n"}).replace("-one", "-never"))
    land.settle()
    land.fire(entry, "accept")
    for _ in range(3):
        land.settle()
        assert (state(land.client, entry), land.said(entry)["files"]) == ("apply_failed", ["app.py"])
        land.fire(entry, "retry_apply")
    land.settle()
    land.fire(entry, "give_up", reason=land.said(entry)["reason"])
    land.settle()
    assert "app.py" in land.entry(entry)["quarantine_reason"]
    assert git(land.place.path, "status", "--porcelain") == ""


def test_a_patch_whose_tests_fail_is_taken_out_of_the_worktree(begun: Landscape) -> None:
    entry = begun.only_patch()
    begun.leave({"left/by": "tests"})
    begun.fire(entry, "tests_failed", reason="3 failed")
    begun.settle()
    assert begun.effect(entry, "restore_worktree")["result"] == {"restored": True}
    assert (begun.place.path / "app.py").read_text().startswith("one\n")
    assert git(begun.place.path, "status", "--porcelain", "--ignored") == ""


@pytest.mark.promise("O13")
def test_a_gate_that_fails_quarantines_its_patch_with_its_name_its_code_and_its_output(land: Landscape) -> None:
    gate = land.gate(["sh", "-c", "echo 3 failed; exit 1"])
    entry = land.patch(dict(ONE_LINE), gates=[str(gate)])
    land.settle()
    land.fire(entry, "accept")
    land.settle()
    schedule(land.runtime, land.run)
    land.settle()
    row = land.entry(entry)
    assert row["quarantine_reason"] == "gate demo/w/g failed with exit code 1"
    assert row["quarantine_metadata"]["output"] == "3 failed\n"


def test_a_patch_that_is_given_up_is_quarantined_with_the_words_of_its_last_try(land: Landscape) -> None:
    entry = land.patch(diff(land.checkout, {"app.py": "x\n"}).replace("-one", "-never"))
    for _ in range(10):
        land.settle()
        schedule(land.runtime, land.run)
    row = land.entry(entry)
    assert (row["state"], row["apply_retries"]) == ("quarantined", 3)
    assert row["quarantine_reason"].startswith("it could not be applied in 4 tries: conflict in app.py: three_way")
    assert "patch failed: app.py:1" in row["quarantine_metadata"]["output"]


def test_the_next_patch_clears_away_what_the_last_one_left_and_is_not_cleared_with_it(land: Landscape) -> None:
    first, second = land.applied_patch(name="a"), land.patch({"other": "o\n"}, "b")
    land.settle()
    land.fire(first, "tests_failed", reason="3 failed")
    restore = land.due()
    land.fire(second, "accept")
    apply = [each for each in land.due() if each not in restore] or [land.effect(second, "apply_patch")["id"]]
    effect_runner.run(land.runtime, apply[0])  # overtakes
    assert (land.place.path / "other").exists()
    effect_runner.run(land.runtime, restore[0])
    land.settle()
    assert state(land.client, second) == "applied"
    assert land.effect(first, "restore_worktree")["result"] == {"restored": False}
    assert git(land.place.path, "status", "--porcelain") == "A  other\n"


def test_a_patch_waits_while_another_is_in_the_worktree(land: Landscape) -> None:
    first, second = land.applied_patch(name="a"), land.patch({"other": "o\n"}, "b")
    land.settle()
    land.fire(second, "accept")
    land.settle()
    waiting = land.effect(second, "apply_patch")
    assert (waiting["status"], waiting["attempts"]) == ("pending", 1)
    assert waiting["error"].startswith("WorktreeTaken")
    land.fire(first, "tests_passed")
    land.settle()
    land.make_due()
    land.settle()
    assert state(land.client, second) == "applied"


def test_a_patch_of_a_workstream_that_ended_opens_no_worktree_again(land: Landscape) -> None:
    entry = land.patch(dict(ONE_LINE))
    land.settle()
    land.fire(land.workstream, "cancel")
    land.fire(entry, "accept")
    land.settle()
    assert land.said(entry)["reason"] == "workstream demo/w is cancelled"
    assert not land.place.path.exists()


def test_a_worktree_that_somebody_removed_is_made_again_with_what_was_verified(begun: Landscape) -> None:
    entry = begun.only_patch()
    shutil.rmtree(begun.place.path)
    begun.fire(entry, "tests_passed")
    begun.settle()
    sha = begun.entry(entry)["commit_sha"]
    assert git(begun.checkout, "show", f"{sha}:app.py") == ONE_LINE["app.py"]


def test_a_patch_whose_commit_cannot_be_made_is_quarantined_with_the_reason(begun: Landscape) -> None:
    entry = begun.only_patch()
    git(begun.place.path, "reset", "-q", "--hard")
    begun.leave({"app.py": "somebody else's\n"})
    git(begun.place.path, "commit", "-qam", "By hand")
    begun.fire(entry, "tests_passed")
    begun.settle()
    assert state(begun.client, entry) == "verified"
    assert begun.effect(entry, "commit_patch")["error"].startswith("PatchLost")
    begun.make_due()
    begun.settle()
    assert begun.entry(entry)["state"] == "quarantined"
    assert "conflict in app.py" in begun.entry(entry)["quarantine_reason"]
    assert (begun.place.path / "app.py").read_text() == "somebody else's\n"


def test_a_verified_patch_of_a_workstream_that_ended_is_quarantined_and_opens_no_worktree_again(
    begun: Landscape,
) -> None:
    entry = begun.only_patch()
    begun.fire(entry, "tests_passed")
    begun.fail()
    archive = begun.effect(begun.workstream, "archive_workstream")["id"]
    effect_runner.run(begun.runtime, archive)
    begun.settle()
    assert begun.entry(entry)["quarantine_reason"] == "workstream demo/w is failed"
    assert not begun.place.path.exists()
    assert git(begun.checkout, "branch", "--list", "interlock/*") == ""


def test_a_task_submits_its_patch_once_until_nothing_comes_of_it(land: Landscape) -> None:
    task = {"task_id": land.task(dict(ONE_LINE))}
    first = patches.submit(land.runtime, task)
    assert patches.submit(land.runtime, task) == first
    land.settle()
    land.fire(first, "violate_policy", reason="phase is closed")
    second = patches.submit(land.runtime, task)
    assert second != first
    assert patches.submit(land.runtime, task) == second
    assert [land.entry(each)["entity_id"] for each in (first, second)] == ["demo/w/t^1", "demo/w/t^2"]
    assert land.entry(second)["context"]["retry_of"] == str(first)


def test_nobody_stops_a_patch_by_taking_its_name(land: Landscape) -> None:
    task = {"task_id": land.task(dict(ONE_LINE))}
    land.dba.execute("INSERT INTO patches (patch_id, body, created_by) VALUES ('theirs', 'diff', 'mallory')")
    context = {"workstream_id": str(land.workstream), "patch_id": "theirs"}
    theirs = land.client.create("patch_ledger", "demo/w/t^1", project=land.project, context=context)["id"]
    made = patches.submit(land.runtime, task)
    assert made != theirs
    assert re.fullmatch(r"demo/w/t\^1-[0-9a-f]{6}", land.entry(made)["entity_id"])
    assert patches.submit(land.runtime, task) == made


def test_a_task_without_a_patch_cannot_submit_one(land: Landscape) -> None:
    context = {"workstream_id": str(land.workstream)}
    task = land.client.create("task", "demo/w/plain", project=land.project, context=context)
    with pytest.raises(BadInput, match="has no patch"):
        patches.submit(land.runtime, {"task_id": task["id"]})


def test_a_patch_is_verified_only_once_its_tasks_gates_have_passed(land: Landscape) -> None:
    gate = land.gate(["true"])
    entry = land.patch(dict(ONE_LINE), gates=[str(gate)])
    land.dba.execute("UPDATE effects SET not_before = now() + interval '1 h' WHERE workflow_id = %s", (gate,))
    land.settle()
    land.fire(entry, "accept")
    land.settle()
    receipt = fire(land.client, entry, "tests_passed", by="scheduler")
    land.runtime.applier.apply_partition(entry.bytes[15] % 16)
    assert land.client.wait([receipt.request_id])[0].status == "rejected"
    land.make_due()
    land.settle()
    land.fire(entry, "tests_passed")


def test_of_effects_with_one_key_only_one_is_due_and_its_end_wakeups_the_next(land: Landscape, valkey: Any) -> None:
    entries = [land.patch({f"f{each}": "x\n"}, f"t{each}") for each in range(3)]
    land.settle()
    for each in entries:
        land.fire(each, "accept")
    (first,) = land.due()
    with transaction(land.runtime.database) as connection:
        held = rows.claim(connection, first, holder="w", lease_seconds=60)
    assert held is not None
    assert land.due() == []
    other = land.effect(entries[1], "apply_patch")["id"]
    with transaction(land.runtime.database) as connection:
        assert rows.claim(connection, other, holder="v", lease_seconds=60) is None
    with transaction(land.runtime.database) as connection:
        rows.finish(connection, held, status="pending")
    valkey.flushall()
    effect_runner.run(land.runtime, first)
    assert land.due() == [other]
    message = json.loads(valkey.lindex("interlock:effects", 0))
    assert str(other) in base64.b64decode(message["body"]).decode()
