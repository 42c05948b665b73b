"""A workstream that completes is merged once; one that fails is archived, with why."""

import json
import shutil
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers import effect_runner
from interlock.workers.audit import report_check, signing_keys
from interlock.workers.git.results import Refusal
from interlock.workers.runtime import Runtime
from tests.driving import drain_all, state
from tests.landscape import ONE_LINE, Landscape
from tests.repositories import everything, git, put
from tests.rights import fire

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


SETTINGS = {"max_attempts": 3}


@pytest.fixture
def land(make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path) -> Landscape:
    return Landscape(make_runtime(**SETTINGS), dba, tmp_path)


def begin(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    """`begun`: a patch is committed."""
    land = Landscape(runtime, dba, root)
    land.committed_patch()
    return land


def test_a_validated_workstream_is_merged_into_its_base_branch_and_its_worktree_closed(begun: Landscape) -> None:
    begun.validate_and_land()
    assert state(begun.client, begun.workstream) == "completed"
    assert begun.said(begun.workstream)["commit_sha"] == git(begun.checkout, "rev-parse", "main").strip()
    assert (begun.checkout / "app.py").read_text() == ONE_LINE["app.py"]
    assert not begun.place.path.exists()
    assert git(begun.checkout, "branch", "--list", "interlock/*") == ""


@pytest.mark.parametrize("opened", [False, True])
def test_a_workstream_without_commits_passes_at_once(land: Landscape, opened: bool) -> None:
    before = everything(land.checkout)
    if opened:
        land.gate(["true"])
        land.settle()
    land.validate_and_land()
    assert state(land.client, land.workstream) == "completed"
    assert everything(land.checkout) == before


def test_a_workstream_without_a_repository_passes_at_once(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    land = Landscape(runtime, dba, tmp_path, repository=None)
    land.validate_and_land()
    assert state(land.client, land.workstream) == "completed"


def test_a_link_that_a_command_puts_in_place_of_the_repository_meanwhile_is_not_followed(land: Landscape) -> None:
    """HTTP-20"""
    chosen = land.runtime.settings.model_copy(update={"api_plan_folders": (land.checkout.parent / "plans",)})
    inside, away = chosen.api_plan_folders[0] / "repo", land.checkout.parent / "away"
    shutil.copytree(land.checkout, inside)
    place = replace(land.place, directory=inside.parent, settings=chosen)
    assert not isinstance(place.worktree(), Refusal)
    inside.rename(away)
    inside.symlink_to(away)
    assert isinstance(found := place.worktree(), Refusal)
    assert "a link in INTERLOCK_API_PLAN_FOLDERS leads to" in str(found)


def test_a_conflict_fails_the_workstream_with_the_files_and_it_is_archived(begun: Landscape) -> None:
    put(begun.checkout, {"app.py": "another\n"})
    git(begun.checkout, "commit", "-qam", "Meanwhile")
    begun.validate_and_land()
    assert state(begun.client, begun.workstream) == "failed"
    assert begun.said(begun.workstream)["files"] == ["app.py"]
    assert git(begun.checkout, "log", "-1", "--format=%s", "main") == "Meanwhile\n"
    kept = json.loads((begun.place.archive / "reason.json").read_text())
    assert "conflict in app.py" in kept["reason"]["last_event"]["metadata"]["reason"]
    assert git(begun.checkout, "show", f"{kept['ref']}:app.py") == ONE_LINE["app.py"]
    assert not begun.place.path.exists()


def test_a_dirty_checkout_is_waited_for_a_few_times_then_the_workstream_fails_saying_what_to_do(
    begun: Landscape,
) -> None:
    put(begun.checkout, {"docs/read me.txt": "edited\n"})
    begun.validate()
    landing = begun.land()
    for _ in range(3):
        begun.make_due()
        begun.settle()
    assert begun.effect(begun.workstream, "land_workstream")["id"] == landing
    assert state(begun.client, begun.workstream) == "failed"
    assert "Commit or stash them there" in begun.said(begun.workstream)["reason"]
    assert (begun.checkout / "docs/read me.txt").read_text() == "edited\n"
    assert (begun.place.archive / "workstream.bundle").exists(), "nothing of its work is lost"


def test_a_checkout_that_is_cleaned_in_time_lands_the_workstream(begun: Landscape) -> None:
    put(begun.checkout, {"docs/read me.txt": "edited\n"})
    begun.validate_and_land()
    assert state(begun.client, begun.workstream) == "validating"
    git(begun.checkout, "checkout", "-q", ".")
    begun.make_due()
    begun.settle()
    assert state(begun.client, begun.workstream) == "completed"


def test_a_workstream_with_a_patch_that_is_not_committed_does_not_land(land: Landscape) -> None:
    entry = land.applied_patch()
    land.fire(entry, "tests_passed")
    land.dba.execute("UPDATE effects SET not_before = now() + interval '1 h' WHERE status = 'pending'")
    land.validate_and_land()
    assert "demo/w/t^1" in land.effect(land.workstream, "land_workstream")["error"]
    assert git(land.checkout, "log", "--format=%s", "main") == "First\n"
    land.dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending' AND name = 'commit_patch'")
    land.settle()  # the commit first: landing's own attempts are few
    land.make_due()
    land.settle()
    assert state(land.client, land.workstream) == "completed"


def test_a_workstream_cancelled_before_it_landed_is_not_merged(begun: Landscape) -> None:
    begun.validate()
    begun.land()
    begun.fire(begun.workstream, "cancel")
    begun.settle()
    assert begun.effect(begun.workstream, "land_workstream")["result"] == {"left_alone": "cancelled"}
    assert git(begun.checkout, "log", "--format=%s", "main") == "First\n"


def test_a_cancel_while_it_is_merged_comes_before_the_merge_or_after_it(begun: Landscape) -> None:
    begun.validate()
    landing = begun.land()
    fire(begun.client, begun.workstream, "cancel", by="ann")  # accepted, not applied: it still stands in `validating`
    effect_runner.run(begun.runtime, landing)
    assert git(begun.checkout, "log", "--format=%s", "main") == "First\n"
    assert "was not merged" in begun.effect(begun.workstream, "land_workstream")["error"]
    begun.settle()
    assert state(begun.client, begun.workstream) == "cancelled"
    begun.make_due()
    begun.settle()
    assert git(begun.checkout, "log", "--format=%s", "main") == "First\n"


def test_a_workstream_is_completed_by_the_commit_that_its_merge_belongs_to(begun: Landscape) -> None:
    begun.validate()
    effect_runner.run(begun.runtime, begun.land())
    assert state(begun.client, begun.workstream) == "completed"
    fire(begun.client, begun.workstream, "cancel", by="ann")
    begun.settle()
    assert state(begun.client, begun.workstream) == "completed"
    assert begun.effect(begun.workstream, "land_workstream")["status"] == "done"
    moves = [event["trigger"] for event in begun.client.history(begun.workstream)]
    assert moves.count("validation_passed") == 1


def archived(land: Landscape, path: str, text: str) -> dict[str, Any]:
    """The last event of a workstream of which only the archive is left, with this file."""
    kept = json.loads((land.place.archive / "reason.json").read_text())
    assert git(land.checkout, "show", f"{kept['ref']}:{path}") == text
    assert git(land.checkout, "branch", "--list", "interlock/*") == ""
    assert not land.place.path.exists()
    return dict(kept["reason"]["last_event"])


@pytest.mark.parametrize("trigger", ["cancel", "user_cancelled"])
def test_a_cancelled_workstream_is_kept_with_its_files_and_leaves_no_worktree(land: Landscape, trigger: str) -> None:
    land.applied_patch()
    land.fire(land.workstream, "all_tasks_created")
    land.fire(land.workstream, trigger, reason="no longer wanted")
    land.settle()
    assert archived(land, "app.py", ONE_LINE["app.py"])["metadata"]["reason"] == "no longer wanted"


def test_a_workstream_that_is_skipped_after_its_first_gate_is_kept_and_leaves_no_worktree(land: Landscape) -> None:
    land.fire(land.workstream, "all_tasks_created")
    gate = land.gate(["sh", "-c", "echo seen > left"])
    land.settle()
    assert state(land.client, gate) == "PASSED"
    assert land.place.path.exists()
    land.fire(land.workstream, "skip", reason="no longer wanted")
    land.settle()
    assert archived(land, "left", "seen\n")["trigger"] == "skip"


@pytest.mark.parametrize("trigger", ["cancel", "skip"])
@pytest.mark.parametrize("began", [False, True])
def test_a_cancelled_or_skipped_workstream_that_left_nothing_leaves_no_archive(
    land: Landscape, began: bool, trigger: str
) -> None:
    if began:
        land.fire(land.workstream, "all_tasks_created")
    land.fire(land.workstream, trigger, reason="no longer wanted")
    land.settle()
    assert not land.place.archive.exists()


def test_a_workstream_that_fails_is_kept_with_its_files_and_why(land: Landscape) -> None:
    land.applied_patch()
    land.leave({"unfinished": "work\n"})
    land.fail()
    land.settle()
    assert archived(land, "unfinished", "work\n")["trigger"] == "critical_task_failed"


def test_a_failed_workstream_without_a_worktree_keeps_its_reason(land: Landscape) -> None:
    land.validate()
    land.fire(land.workstream, "validation_failed", reason="a gate failed")
    land.settle()
    kept = json.loads((land.place.archive / "reason.json").read_text())
    assert kept["reason"]["last_event"]["metadata"]["reason"] == "a gate failed"


def test_a_worktree_is_archived_only_when_nobody_works_in_it_any_more(land: Landscape) -> None:
    gate = land.gate(["true"])
    land.dba.execute(
        "UPDATE effects SET status = 'leased', lease_until = now() + interval '1 h' WHERE workflow_id = %s", (gate,)
    )
    land.validate()
    land.fire(land.workstream, "validation_failed", reason="another gate failed")
    land.settle()
    assert land.effect(land.workstream, "archive_workstream")["error"].startswith("StillAtWork")
    land.make_due()
    land.settle()
    assert land.effect(land.workstream, "archive_workstream")["status"] == "done"


def test_a_landing_intended_twice_is_one_effect(land: Landscape) -> None:
    land.validate()
    assert land.land() == land.land()
    landings = [each for each in land.client.show(land.workstream)["effects"] if each["name"] == "land_workstream"]
    assert len(landings) == 1


def noted(land: Landscape, commit: str) -> dict[str, Any]:
    """The statement in a commit's note."""
    envelope = json.loads(git(land.checkout, "notes", "--ref=interlock", "show", commit))
    return dict(json.loads(b64decode(envelope["payload"])))


def test_each_commit_that_landed_has_a_signed_note_with_its_gates_and_their_tree(
    land: Landscape, tmp_path: Path
) -> None:
    entry = land.applied_patch()
    gate = land.gate(["grep", "-q", "two", "app.py"], moment="final")
    land.settle()
    land.fire(entry, "tests_passed")
    land.settle()
    config = (land.checkout / ".git/config").read_text()
    land.validate_and_land()
    patch = land.said(entry)["commit_sha"]
    tree = git(land.checkout, "rev-parse", f"{patch}^{{tree}}").strip()
    statement = noted(land, patch)
    assert {"gitCommit": patch} in [each["digest"] for each in statement["subject"]]
    (ran,) = statement["predicate"]["gates"]
    assert (ran["workflow_id"], ran["result"], ran["exit_code"]) == (str(gate), "PASSED", 0)
    assert (ran["ran_on"]["tree"], ran["ran_on"]["patch"]) == (tree, str(entry))
    assert next((each["sha"], each["tree"]) for each in statement["predicate"]["commits"]) == (patch, tree)
    merge = git(land.checkout, "rev-parse", "main").strip()
    whole = noted(land, merge)
    assert {each["digest"]["gitCommit"] for each in whole["subject"] if "gitCommit" in each["digest"]} == {patch, merge}
    file = tmp_path / "note.json"
    file.write_text(git(land.checkout, "notes", "--ref=interlock", "show", merge))
    keys = signing_keys.trusted_keys(land.runtime.settings.signing_directory)
    assert report_check.check(report_check.text_of(file), keys, land.runtime.catalogue).findings == ()
    assert (land.checkout / ".git/config").read_text() == config
    assert git(land.checkout, "status", "--porcelain") == ""


def test_the_note_of_a_commit_that_landed_says_who_approved_it_and_who_accepted_it(land: Landscape) -> None:
    entry = land.applied_patch()
    about = {"subject_id": str(entry), "subject": "patch_ledger/t", "trigger": "tests_passed", "author": "ann"}
    terms = {"quorum": 2, "deciders": ["bob", "cyd", "dan"]}
    approval = land.client.create("approval", "A-1", project=land.project, context=about | terms)["id"]
    for by in ("bob", "cyd"):
        land.client.fire(approval, "approve", by=by)
        drain_all(land.runtime)
    assert state(land.client, approval) == "approved"
    land.fire(entry, "tests_passed")
    land.settle()
    patch = land.said(entry)["commit_sha"]
    land.validate_and_land()
    accepted = {(each["trigger"], each["triggered_by"], each["authority"]) for each in land.client.history(entry)}
    for commit in (patch, git(land.checkout, "rev-parse", "main").strip()):
        said = noted(land, commit)["predicate"]
        (found,) = said["approvals"]
        assert (found["workflow_id"], found["subject"], found["trigger"]) == (
            str(approval),
            "patch_ledger/t",
            "tests_passed",
        )
        assert (found["state"], found["author"], found["quorum"]) == ("approved", "ann", 2)
        assert [(vote["by"], vote["vote"]) for vote in found["votes"]] == [("bob", "approve"), ("cyd", "approve")]
        moves = {(each["trigger"], each["triggered_by"], each["authority"]) for each in said["moves"]}
        assert accepted <= moves
        assert ("approve", "cyd", "decider") in moves


def test_notes_that_were_killed_are_written_when_the_landing_is_tried_again(
    begun: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.validate()
    landing = begun.land()

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr("interlock.workers.effects.landing_notes.write", kill)
        with pytest.raises(Killed):
            effect_runner.run(begun.runtime, landing)
    assert state(begun.client, begun.workstream) == "completed"
    begun.make_due()
    begun.settle()
    merge = begun.said(begun.workstream)["commit_sha"]
    assert noted(begun, merge)["predicate"]["scope"]["name"] == "default/workstream/demo/w"


def test_a_landing_without_a_key_lands_without_notes(begun: Landscape, capsys: pytest.CaptureFixture[str]) -> None:
    directory = begun.runtime.settings.signing_directory
    directory.mkdir(parents=True)
    (directory / "anchor.key").write_text("no key")
    begun.validate_and_land()
    assert state(begun.client, begun.workstream) == "completed"
    assert "note_failed" in capsys.readouterr().out
    assert git(begun.checkout, "for-each-ref", "refs/notes") == ""
