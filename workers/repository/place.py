"""A repository on disk: found, or refused with what to do; and its lock."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from workers.repository.git import Git, Identity
from workers.repository.lock import LOCK_SECONDS, held
from workers.repository.outcomes import Refusal

LOCK = "interlock.lock"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by its common directory: the `.git` that all of its worktrees share."""

    directory: Path

    def git(self, identity: Identity | None = None) -> Git:
        """Git at the common directory: from there it reaches refs and objects, and no checkout nor index."""
        return Git(self.directory, identity or Identity())


def find(path: Path) -> Repository | Refusal:
    """The repository that a path is in: the user's checkout, or any worktree of it."""
    if not path.is_dir():
        return Refusal(f"{path} does not exist", "Name the directory of a git repository")
    said = Git(path).run("rev-parse", "--path-format=absolute", "--git-common-dir", "--is-bare-repository", accept=None)
    if said.status != 0:
        return Refusal(f"{path} is not a usable git repository: {said.words}", "Run `git init` there, or name another")
    common, bare = said.out.decode(errors="surrogateescape").splitlines()
    if bare == "true":
        return Refusal(f"{path} is a bare repository", "Name a clone with a working tree: `git clone` makes one")
    return Repository(Path(common))


@contextlib.contextmanager
def hold(
    repository: Repository, identity: Identity | None = None, timeout_seconds: float = LOCK_SECONDS
) -> Iterator[Git]:
    """Be the only one of us at work on the repository's refs and worktrees; yields git there.

    Raises:
        RepositoryBusy: another held it for longer than `timeout_seconds`; names its pid.
    """
    with held(repository.directory / LOCK, timeout_seconds) as lock:
        yield replace(repository.git(identity), keep=(lock,))
