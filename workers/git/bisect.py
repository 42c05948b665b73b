"""Find the commit that broke something: bisection in a worktree of its own, which is gone afterwards (SSOT 2.5.4)."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from math import log2
from pathlib import Path

from workers.repository import branches, place
from workers.repository.git import Git, Identity
from workers.repository.outcomes import Refusal
from workers.repository.worktree import temporary

FLAKY = "It cannot be told who broke it: let the gate say the same each time, as by trying what fails three times"
Trial = Callable[[Path], bool | None]
"""Whether a tree is good; None where that cannot be told of it."""


@dataclass(frozen=True, slots=True)
class Broke:
    """The first commit whose tree is bad, or one of `among`, of which it cannot be told; and how many were tried."""

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
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Broke | Refusal:
    """Bisect from before the oldest of some commits to a branch's tip; what it comes to is looked at twice.

    Args:
        repository: the user's checkout, or any worktree of it; neither is touched.
        branch: at whose tip the tree is bad.
        commits: on that branch; the tree before the first of them is good.
        trial: looks at a tree.
        scratch: where the worktree may stand.
        name: of the worktree: two searches of one name wait for each other.
        progress: told how many trees were tried, and how many it will be at most, about.

    Returns:
        The commit; or a refusal where none of the commits is on the branch, its tip is good, it was bad before, or
        `trial` says now this, now that of the same tree.

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
        return Refusal(f"none of its patches is on {branch}", "Nothing of it landed there")
    with temporary(found, tip, scratch / name, Identity()) as there:
        return _Search(git, there, trial, progress).between(good, tip)


def _before(git: Git, tip: str, commits: Collection[str]) -> str | None:
    """The commit before the oldest of these that the branch has."""
    for sha in git.run("rev-list", "--topo-order", "--reverse", tip).out.decode().split():
        if sha in commits:
            said = git.run("rev-parse", "--verify", "--quiet", f"{sha}^", accept=(0, 1, 128))
            return said.out.decode().strip() or None
    return None


@dataclass(slots=True)
class _Search:
    git: Git
    there: Git
    trial: Trial
    progress: Callable[[int, int], None]
    tried: int = 0
    goods: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)

    def between(self, good: str, bad: str) -> Broke | Refusal:
        """The first bad commit after `good`, up to `bad`, once both are what they are said to be."""
        left = len(self.git.run("rev-list", bad, f"^{good}").out.decode().split())
        total = 4 + max(0, int(log2(left)) + 1 if left > 1 else 0)
        if self._looks(bad, total) is not False:
            return Refusal(f"the gate does not fail at {bad[:12]}", "Nothing is broken there, or it cannot be told")
        if self._looks(good, total) is not True:
            return Refusal(f"the gate does not pass at {good[:12]}", "It was broken before the first of these patches")
        self.goods.append(good)
        while (middle := next(self._middles(bad), None)) is not None:
            match self._looks(middle, total):
                case True:
                    self.goods.append(middle)
                case False:
                    bad = middle
                case None:
                    self.skipped.add(middle)
        if self._looks(bad, total) is not False or self._looks(self.goods[-1], total) is not True:
            return Refusal(f"the gate says now this, now that of the same tree ({bad[:12]})", FLAKY)
        self.progress(total, total)
        among = tuple(each for each in self._left(bad) if each in self.skipped)
        subject = self.git.line("log", "-1", "--format=%s", bad, "--")
        return Broke(bad, subject, self.tried, among)

    def _looks(self, sha: str, total: int) -> bool | None:
        self.progress(min(self.tried, total), total)
        self.there.run("checkout", "--quiet", "--force", "--detach", sha)
        self.there.run("clean", "-ffdxq")
        self.tried += 1
        return self.trial(self.there.directory)

    def _middles(self, bad: str) -> Iterator[str]:
        """Commits to try next, that which halves the rest first."""
        return (each for each in self._left(bad) if each != bad and each not in self.skipped)

    def _left(self, bad: str) -> list[str]:
        said = self.git.run("rev-list", "--bisect-all", bad, *(f"^{each}" for each in self.goods))
        return [line.split()[0] for line in said.out.decode().splitlines()]
