"""Bisection names the commit that broke it, tries few trees, and leaves the repository as it was."""

from math import ceil, log2
from pathlib import Path

import pytest

from interlock.workers.git import bisect
from interlock.workers.git.bisect import BadCommit
from interlock.workers.git.results import Refusal
from tests.repositories import everything, git, make, put

pytestmark = pytest.mark.integration


def commit(where: Path, name: str, content: str) -> str:
    put(where, {name: content})
    git(where, "add", "-A")
    git(where, "commit", "-qm", f"{name} {content}")
    return git(where, "rev-parse", "HEAD").strip()


def sound(tree: Path) -> bool | None:
    """Broken once `fault` is there; nothing can be told where `odd` is."""
    if (tree / "odd").exists():
        return None
    return not (tree / "fault").exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make(tmp_path / "repo")


@pytest.mark.parametrize("place", [0, 1, 6, 12])
def test_the_commit_that_broke_it_is_found_in_few_trials(checkout: Path, tmp_path: Path, place: int) -> None:
    made = [commit(checkout, "fault" if each == place else f"f{each}", "x") for each in range(13)]
    put(checkout, {"mine": "not committed"})
    before, told = everything(checkout), list[tuple[int, int]]()
    found = bisect.find(
        checkout, "main", made, sound, scratch=tmp_path / "scratch", progress=lambda *at: told.append(at)
    )
    assert isinstance(found, BadCommit)
    assert (found.sha, found.subject, found.among) == (made[place], "fault x", ())
    assert found.tried <= 4 + ceil(log2(13)) + 1
    assert all(done <= total for done, total in told)
    assert told[-1][0] == told[-1][1]
    assert everything(checkout) == before
    assert git(checkout, "worktree", "list").count("\n") == 1
    assert not list((tmp_path / "scratch").glob("*"))


def test_a_fault_in_a_branch_that_was_merged_is_found_there(checkout: Path, tmp_path: Path) -> None:
    first = commit(checkout, "f1", "x")
    git(checkout, "switch", "-qc", "side")
    fault = commit(checkout, "fault", "x")
    after = commit(checkout, "f2", "x")
    git(checkout, "switch", "-q", "main")
    aside = commit(checkout, "f3", "x")
    git(checkout, "merge", "-q", "--no-ff", "--no-edit", "side")
    found = bisect.find(checkout, "main", [first, fault, after, aside], sound, scratch=tmp_path / "scratch")
    assert isinstance(found, BadCommit)
    assert found.sha == fault


def test_trees_that_tell_nothing_are_passed_over_and_named(checkout: Path, tmp_path: Path) -> None:
    good = commit(checkout, "f1", "x")
    odd = commit(checkout, "odd", "x")
    put(checkout, {"fault": "x"})
    git(checkout, "rm", "-q", "odd")
    bad = commit(checkout, "f2", "x")
    found = bisect.find(checkout, "main", [good, odd, bad], sound, scratch=tmp_path / "scratch")
    assert isinstance(found, BadCommit)
    assert (found.sha, found.among) == (bad, (odd,))


@pytest.mark.parametrize(
    ("fault", "says"), [(None, "does not fail at"), ("before", "failed before the first"), ("gone", "none of its")]
)
def test_where_there_is_nothing_to_find_it_says_so(checkout: Path, tmp_path: Path, fault: str, says: str) -> None:
    if fault == "before":
        commit(checkout, "fault", "x")
    made = [commit(checkout, "f1", "x")] if fault != "gone" else ["0" * 40]
    found = bisect.find(checkout, "main", made, sound, scratch=tmp_path / "scratch")
    assert isinstance(found, Refusal)
    assert says in str(found)


@pytest.mark.parametrize("wrong", [3, 4, 5, 6])
def test_a_trial_that_is_not_always_of_the_same_opinion_accuses_nobody(
    checkout: Path, tmp_path: Path, wrong: int
) -> None:
    made = [commit(checkout, "fault" if each == 3 else f"f{each}", "x") for each in range(8)]
    trials = list[Path]()

    def flaky(tree: Path) -> bool | None:
        trials.append(tree)
        return sound(tree) is not (len(trials) == wrong)

    found = bisect.find(checkout, "main", made, flaky, scratch=tmp_path / "scratch")
    assert isinstance(found, Refusal), "once it said the contrary of what is so"
    assert "passes and fails on the same commit" in str(found)
