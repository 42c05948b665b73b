"""Finds the commit that broke something, by bisection in a temporary worktree (PATCH-14)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import log2
from pathlib import Path

from interlock.workers.git import branches
from interlock.workers.git import repository as place
from interlock.workers.git.command import Git
from interlock.workers.git.git_directories import LockedWorktree
from interlock.workers.git.results import Refusal
from interlock.workers.git.worktree import temporary
from interlock.workers.isolation.apart import OURSELVES, Isolation

FLAKY = "Make the gate deterministic, or let it retry a failing test (three times, say): a flaky one proves nothing"
Trial = Callable[[Path], bool | None]
"""Whether a tree is good; None if it cannot be judged."""


@dataclass(frozen=True, slots=True)
class BadCommit:
    """The first bad commit, or one of `among`, which could not be judged; `tried`: the number of tried trees."""

    sha: str
    subject: str
    tried: int
    among: tuple[str, ...] = ()


def find(
    repository: Path,
    branch: str,
    commits: Collection[str],
    trial: Trial,
    *,
    scratch: Path,
    name: str = "regression",
    isolation: Isolation = OURSELVES,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> BadCommit | Refusal:
    """Bisect from before the oldest of some commits to a branch's tip. The result is tried twice.

    Args:
        repository: the user's checkout, or any worktree of it; neither is touched.
        branch: its tip's tree is bad.
        commits: commits on that branch; the tree before the first of them is good.
        trial: judges a tree.
        scratch: the parent directory of the worktree.
        name: of the worktree: two searches with one name wait for each other.
        isolation: who trials run as, and the sandbox for our git there.
        progress: called with how many trees were tried, and about how many it will be at most.

    Returns:
        The commit; or a refusal if none of the commits is on the branch, its tip is good, it was bad before, or `trial`
        judges the same tree differently.

    Raises:
        RepositoryBusy, GitFault: try again.
    """
    found = place.find(repository)
    if isinstance(found, Refusal):
        return found
    git = found.git()
    if (tip := branches.tip(git, branch)) is None:
        return Refusal(f"there is no branch {branch}", "Name another workstream or run")
    if (good := _before(git, tip, commits)) is None:
        return Refusal(f"{branch} contains none of its patches", "Name a workstream or run that was merged there")
    with temporary(found, tip, scratch / name, isolation) as there:
        return _Search(git, there, trial, progress).between(good, tip)


def _before(git: Git, tip: str, commits: Collection[str]) -> str | None:
    """The parent of the oldest of these commits that the branch has."""
    for sha in git.run("rev-list", "--topo-order", "--reverse", tip).out.decode().split():
        if sha in commits:
            result = git.run("rev-parse", "--verify", "--quiet", f"{sha}^", accept=(0, 1, 128))
            return result.out.decode().strip() or None
    return None


@dataclass(slots=True)
class _Search:
    git: Git
    checkout: LockedWorktree
    trial: Trial
    progress: Callable[[int, int], None]
    tried: int = 0
    goods: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)

    def between(self, good: str, bad: str) -> BadCommit | Refusal:
        """The first bad commit after `good`, up to `bad`, after checking that these two are good and bad."""
        left = len(self.git.run("rev-list", bad, f"^{good}").out.decode().split())
        total = 4 + max(0, int(log2(left)) + 1 if left > 1 else 0)
        if self._looks(bad, total) is not False:
            return Refusal(f"the gate does not fail at {bad[:12]}, the newest commit", "Name a gate that fails there")
        if self._looks(good, total) is not True:
            return Refusal(
                f"the gate does not pass at {good[:12]}", "It failed before the first of these patches already"
            )
        self.goods.append(good)
        while (middle := self._middle(bad)) is not None:
            match self._looks(middle, total):
                case True:
                    self.goods.append(middle)
                case False:
                    bad = middle
                case None:
                    self.skipped.add(middle)
        if self._looks(bad, total) is not False or self._looks(self.goods[-1], total) is not True:
            return Refusal(f"the gate passes and fails on the same commit ({bad[:12]})", FLAKY)
        self.progress(total, total)
        among = tuple(each for each in self._left(bad) if each in self.skipped)
        subject = self.git.line("log", "-1", "--format=%s", bad, "--")
        return BadCommit(bad, subject, self.tried, among)

    def _looks(self, sha: str, total: int) -> bool | None:
        self.progress(min(self.tried, total), total)
        self.checkout = self.checkout.at_commit(sha)
        self.checkout.repair()
        self.checkout.reset(sha, ("-ffdxq",))
        self.tried += 1
        return self.trial(self.checkout.path)

    def _middle(self, bad: str) -> str | None:
        """The commit to try next, which halves the rest."""
        return next((each for each in self._left(bad) if each != bad and each not in self.skipped), None)

    def _left(self, bad: str) -> list[str]:
        result = self.git.run("rev-list", "--bisect-all", bad, *(f"^{each}" for each in self.goods))
        return [line.split()[0] for line in result.out.decode().splitlines()]
