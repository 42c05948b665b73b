"""A run's commands neither judge their own change nor land what its plan forbids, and leave the repository alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers.git import tampering
from interlock.workers.git.merge import merge
from interlock.workers.git.results import Committed, Refusal
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.operations.bisect import NothingToFind, find_regression
from interlock.workers.operations.rollback import CompensationFailed, compensation_plan, roll_back
from interlock.workers.runtime import Runtime
from tests.driving import state
from tests.landscape import Landscape
from tests.repositories import git, make, opened, put

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
COMMIT = "git config user.name c; git config user.email c; git add -A; git commit -qm mine"


def judged(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    found = Landscape(runtime, dba, root, {"path": "repo", "forbidden_paths": ["secret/"]})
    put(found.checkout, {"Makefile": "test:\n\tfalse\n"})
    git(found.checkout, "add", "-A")
    git(found.checkout, "commit", "-qm", "A judge")
    return found


def begin(runtime: Runtime, dba: Dba, root: Path) -> Landscape:
    """`begun`: a patch is committed."""
    land = judged(runtime, dba, root)
    land.committed_patch()
    return land


@pytest.fixture
def land(runtime: Runtime, dba: Dba, tmp_path: Path) -> Landscape:
    return judged(runtime, dba, tmp_path)


def test_a_patch_that_mends_its_own_judge_is_quarantined_and_never_passes_a_gate(land: Landscape) -> None:
    entry = land.patch({"Makefile": "test:\n\ttrue\n"})
    land.settle()
    row = land.entry(entry)
    assert (row["state"], "Makefile: is protected" in row["quarantine_reason"]) == ("quarantined", True)


def test_a_gate_runs_the_base_branchs_makefile_whatever_a_command_made_of_it(land: Landscape) -> None:
    mending = land.gate(["sh", "-c", f"printf 'test:\\n\\ttrue\\n' > Makefile; {COMMIT}"], "mend")
    land.settle()
    assert state(land.client, mending) == "PASSED"
    judge = land.gate(["make", "test"])
    land.settle()
    assert state(land.client, judge) == "FAILED"


def test_what_a_command_committed_against_the_plan_fails_the_workstream_and_leaves_main_alone(land: Landscape) -> None:
    land.gate(["sh", "-c", f"mkdir secret; echo x > secret/key; {COMMIT}; git update-ref refs/heads/main HEAD"])
    land.settle()
    land.validate_and_land()
    assert state(land.client, land.workstream) == "failed"
    said = land.said(land.workstream)
    assert said["files"] == ["secret/key"]
    assert "its branch may not land: secret/key: is under secret/" in said["reason"]
    assert git(land.checkout, "log", "--format=%s", "main") == "A judge\nFirst\n"
    refs = git(land.checkout, "for-each-ref", "--format=%(refname)", "refs/interlock/archive").split()
    assert git(land.checkout, "show", f"{refs[0]}:secret/key") == "x\n", "it is kept for whoever asks"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("git -C {0} config core.fsmonitor evil", "setting core.fsmonitor"),
        ("git -C {0} config filter.x.clean evil", "setting filter.x.clean"),
        ("echo evil > {0}/.git/hooks/pre-commit", "hook pre-commit"),
        ("echo '* filter=x' > {0}/.git/info/attributes", "file info/attributes"),
    ],
)
def test_a_workstream_whose_command_changed_what_the_repository_runs_does_not_land(
    begun: Landscape, change: str, named: str
) -> None:
    with begun.place.watched("task w/t"):  # as where nothing keeps commands out of it
        begun.in_place(change.format(begun.checkout))
    begun.validate_and_land()
    assert state(begun.client, begun.workstream) == "failed"
    reason = begun.said(begun.workstream)["reason"]
    assert named in reason
    assert reason.startswith("while task w/t ran, the repository")
    assert f"interlock run resume {begun.run}" in reason
    assert git(begun.checkout, "log", "--format=%s", "main") == "A judge\nFirst\n"


@pytest.mark.parametrize("search", [False, True], ids=["rollback", "regression"])
def test_neither_a_rollback_nor_a_search_goes_on_once_its_gate_changed_what_the_repository_runs(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path, search: bool
) -> None:
    land = Landscape(make_runtime(sandbox="off"), dba, tmp_path)
    hook = land.checkout / ".git" / "hooks" / "pre-commit"
    hook.parent.chmod(0o777)  # as where nothing keeps commands out of it
    planting = f"echo evil > {hook}"
    land.gate(planting, "plants", started=False)
    entry = land.committed_patch()
    plan = compensation_plan(land.runtime, entry).model_dump(mode="json")
    plan["actions"].append({"action": "run_tests", "test_suite": "plants", "required": True})
    before, made = land.entry(entry), CompensationPlan.model_validate(plan)
    refused = pytest.raises((CompensationFailed, NothingToFind), match="repo changed: hook pre-commit")
    if search:
        with refused:
            find_regression(land.runtime, planting, workstream_ref=str(land.workstream))
    else:
        with refused:
            roll_back(land.runtime, entry, made, by="ann", reason="regression")
    assert land.entry(entry) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("git -C {0} replace HEAD HEAD~", "ref refs/replace/"),
        ("git -C {0} reset -q --hard HEAD~", "branch main lost commits"),
        ("git -C {0} update-ref -d refs/heads/main", "branch main lost commits"),
        ("git -C {0} -c user.name=u -c user.email=u commit -q --amend -m other", "branch main lost commits"),
        ("git -C {0} merge -q {2}", "branch main got commits of interlock/"),
        ("git -C {1} push -q {0} HEAD:refs/heads/main", "branch main got commits of interlock/"),
        ("git -C {0} update-ref refs/heads/{2} main", "was rewritten"),
    ],
)
def test_refs_that_only_a_command_can_have_moved_keep_its_workstream_from_landing(
    begun: Landscape, change: str, named: str
) -> None:
    git(begun.checkout, "config", "receive.denyCurrentBranch", "ignore")
    with begun.place.watched("task w/t"):  # as where nothing keeps commands out of it
        made = f"GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=* {change}"
        begun.in_place(made.format(begun.checkout, begun.place.path, begun.place.branch))
    tree = begun.place.worktree()
    assert not isinstance(tree, Refusal)
    assert named in str(tampering.tampering(tree.repository, tree.path))


def test_what_people_and_other_workstreams_do_to_refs_meanwhile_is_no_alarm(begun: Landscape) -> None:
    repository = begun.checkout
    other = opened(repository, "other")
    put(other.path, {"other": "x\n"})
    git(other.path, "add", "-A")
    git(other.path, "commit", "-qm", "Another's")
    away = make(repository.parent / "away")
    with begun.place.watched("task w/t"):
        assert isinstance(merge(other, "m"), Committed)
        git(repository, "commit", "-q", "--allow-empty", "-m", "The user's own")
        git(repository, "tag", "v1")
        git(repository, "branch", "topic")
        git(repository, "fetch", "-q", str(away), "main:refs/remotes/away/main")
        git(repository, "notes", "add", "-m", "seen")
        git(repository, "checkout", "-q", "topic")
        git(repository, "commit", "-q", "--amend", "--allow-empty", "-m", "Rewritten, elsewhere")
        git(repository, "checkout", "-q", "main")
        git(repository, "merge", "-q", "--no-edit", "topic")
    tree = begun.place.worktree()
    assert not isinstance(tree, Refusal)
    assert tampering.tampering(tree.repository, tree.path) is None


def test_what_git_and_people_write_in_passing_keeps_nothing_from_landing(begun: Landscape) -> None:
    with begun.place.watched("task w/t"):
        begun.in_place(f"git -C {begun.checkout} config branch.main.remote origin; git -C {begun.checkout} tag v1")
        git(begun.checkout, "commit", "-q", "--allow-empty", "-m", "The user's own")
    begun.validate_and_land()
    assert state(begun.client, begun.workstream) == "completed"
