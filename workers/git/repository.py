"""A repository on disk: finding it, or refusing it with a remedy; its lock; and our access to its refs and objects."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from interlock.workers.git.command import Git
from interlock.workers.git.lock import LOCK_SECONDS, held
from interlock.workers.git.results import Refusal

LOCK = "interlock.lock"
VIEW = "interlock"
SHARED = ("objects", "refs", "packed-refs", "logs", "shallow")
CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = true
\tlogAllRefUpdates = true
[extensions]
\tobjectFormat = {objects}
"""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository by its common directory, the `.git` that all of its worktrees share; and its object format."""

    directory: Path
    objects: str = "sha1"

    def git(self) -> Git:
        """Git at the repository's refs and objects, under our own configuration: no filter, driver, hook or program
        that the repository's configuration names is ever run. It sees no checkout and no index."""
        return Git(self.directory, extra={"GIT_DIR": str(self._view())})

    @property
    def store(self) -> Path:
        """The directory of its objects."""
        return self.directory / "objects"

    @property
    def config(self) -> str:
        """A configuration for a git directory of ours that reads its objects."""
        return CONFIG.format(objects=self.objects)

    def _view(self) -> Path:
        """A git directory of ours, whose refs and objects link to the repository's, as `git-new-workdir` makes it."""
        view = self.directory / VIEW
        if not self._stands(view):
            (self.directory / "logs").mkdir(exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=f"{VIEW}-", dir=self.directory))
            for name in SHARED:
                (draft / name).symlink_to(Path("..", name))
            (draft / "HEAD").write_text("ref: refs/interlock/none\n")
            (draft / "config").write_text(self.config)
            self._put(draft, view)
        return view

    def _stands(self, view: Path) -> bool:
        try:
            links = [os.readlink(view / name) for name in SHARED]
            return (
                links == [f"../{name}" for name in SHARED]
                and (view / "config").read_text() == self.config
                and sorted(os.listdir(view)) == sorted([*SHARED, "HEAD", "config"])
            )
        except OSError:
            return False

    def _put(self, draft: Path, view: Path) -> None:
        try:
            draft.rename(view)  # fails if another process was first, or `view` was tampered with
        except OSError:
            if not self._stands(view):
                shutil.rmtree(view, ignore_errors=True)
                view.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    draft.rename(view)
            shutil.rmtree(draft, ignore_errors=True)


def find(path: Path) -> Repository | Refusal:
    """The repository that a path is in: the user's checkout, or any worktree of it."""
    if not path.is_dir():
        return Refusal(f"{path} does not exist", "Name the directory of a git repository")
    options = ("--path-format=absolute", "--git-common-dir", "--is-bare-repository", "--show-object-format")
    result = Git(path).run("rev-parse", *options, accept=None)
    if result.status != 0:
        return Refusal(
            f"{path} is not a usable git repository: {result.words}", "Run `git init` there, or name another"
        )
    common, bare, objects = result.out.decode(errors="surrogateescape").splitlines()
    if bare == "true":
        return Refusal(f"{path} is a bare repository", "Name a clone with a working tree: `git clone` makes one")
    if (Path(common) / "reftable").exists():
        return Refusal(f"{path} keeps its refs as a reftable", "Run `git refs migrate --ref-format=files` there")
    return Repository(Path(common), objects)


@contextlib.contextmanager
def hold(repository: Repository, timeout_seconds: float = LOCK_SECONDS) -> Iterator[Git]:
    """Hold the lock on the repository's refs and worktrees against other Interlock processes; yields git there.

    Raises:
        RepositoryBusy: another held it for longer than `timeout_seconds`; names its pid.
    """
    with held(repository.directory / LOCK, timeout_seconds) as lock:
        yield replace(repository.git(), keep=(lock,))
