"""A workstream's two git directories: the commands' in its working tree, and ours beside it, where no command writes.

Commands find a repository of their own in `.git`, which shares the user's objects read-only. Whatever they do to it, we
never run git with its configuration. Our git works on the same files with our own directory, as the user that the
commands run as, and in a sandbox like theirs. So a link that they plant leads our git nowhere that they could not go
themselves.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interlock.workers.git import fetch_commits, inside, state_files
from interlock.workers.git.command import TIMEOUT_SECONDS, Git, GitResult
from interlock.workers.git.repository import Repository
from interlock.workers.git.results import Refusal
from interlock.workers.isolation.apart import Isolation
from interlock.workers.system.users import Account, obstacle

MARK = "interlock-patch.json"
RECORD = "interlock-worktree.json"
INDEX = "interlock-index"
FILES_INDEX = "work/index"
ALTERNATES = "info/alternates"
FILES_SECONDS = 120.0
INDEX_BYTES = 512 * 1024 * 1024
INCOMING = "incoming"
THEIR_CONFIG = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = {objects}\n"
DETACHED = "HEAD"
STATUS = ("status", "--porcelain", "--no-renames", "--untracked-files=no")


def own_directory(path: Path) -> Path:
    """Our git directory for a working tree: beside it."""
    return path.with_name(f".{path.name}.git")


@dataclass(frozen=True, slots=True)
class LockedWorktree:
    """One working tree whose lock we hold.

    Attributes:
        repository: the user's.
        path: the working tree.
        branch: its branch in the user's repository; None for one that has none.
        tip: the commit it is at, for us.
        user_git: git at the user's refs and objects, under our configuration.
        isolation: who commands run as, and how our git in the working tree is isolated.
    """

    repository: Repository
    path: Path
    branch: str | None
    tip: str
    user_git: Git
    isolation: Isolation

    @property
    def account(self) -> Account | None:
        """The user that commands, and our git in the working tree, run as; None: our own."""
        return self.isolation.account

    @property
    def git_directory(self) -> Path:
        """Our git directory."""
        return own_directory(self.path)

    @property
    def store(self) -> Path:
        """The objects that commands here may read: the user's, or a copy if their account cannot reach those."""
        return store_of(self.repository, self.path, self.account)

    def worktree_git(self, *places: Path) -> Git:
        """Git in the working tree, to read and write files: with our git directory, isolated as commands are.

        Args:
            places: other directories of ours that it may change.
        """
        path, own = self.path.resolve(), self.git_directory.resolve()
        extra = {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": str(path),
            "GIT_INDEX_FILE": str(own / FILES_INDEX),
            "GIT_OBJECT_DIRECTORY": str(self.store.resolve()),
        }
        writes = (path, (own / FILES_INDEX).parent, *places)
        isolation = replace(self.isolation, reads=(own, *stores(self.store)), writes=writes)
        return replace(self.user_git, directory=path, extra=extra, isolation=isolation, timeout_seconds=FILES_SECONDS)

    def run_in_worktree(self, *arguments: str, accept: tuple[int, ...] | None = (0,)) -> GitResult:
        """Run git in the working tree. Removes named pipes first: git would block on one named `.gitignore`."""
        inside.remove_pipes(self.path)
        return self.worktree_git().run(*arguments, accept=accept)

    def reset(self, sha: str, *cleaning: Sequence[str]) -> None:
        """Make files and index those of a commit, then run `git clean` with these options, once for each."""
        inside.remove_pipes(self.path)
        self.worktree_git().run_all(("read-tree", "--reset", "-u", sha), *(("clean", *each) for each in cleaning))
        self.show_index()

    def run_and_copy_index(self, *arguments: str, accept: tuple[int, ...] | None = (0,)) -> GitResult:
        """The same for commands that change the index, of which the commands' repository then gets a copy.

        Git follows a symbolic link at its index. Commands can put one into their own `.git`, but not into ours.
        """
        result = self.run_in_worktree(*arguments, accept=accept)
        self.show_index()
        return result

    def show_index(self) -> None:
        """Copy our index into the commands' repository, replacing whatever is there; no link is followed."""
        content = inside.read(self.git_directory, FILES_INDEX, limit_bytes=INDEX_BYTES)
        if content is not None:
            inside.remove(self.path, ".git/index")
            inside.write(self.path, ".git/index", content, owner=self.account)

    def provide_index(self) -> None:
        """Make our index if there is none, as in an earlier version; remove the lock that a killed git left."""
        self.make_index_directory()
        if inside.kind(self.git_directory, FILES_INDEX) is None:
            self.worktree_git().run("read-tree", (self.git_directory / DETACHED).read_text().strip())

    def make_index_directory(self) -> None:
        """Make the directory of our index, without the lock that a killed git left."""
        work = (self.git_directory / FILES_INDEX).parent
        inside.remove(self.git_directory, f"{FILES_INDEX}.lock")
        if not work.is_dir():
            work.mkdir(mode=0o700)
            if self.account:
                os.chown(work, self.account.uid, self.account.gid)

    @property
    def private(self) -> Git:
        """Git with a separate index: attempts there are visible nowhere else."""
        return self.user_git.with_environment(GIT_INDEX_FILE=str(self.git_directory / INDEX))

    def at_commit(self, sha: str) -> "LockedWorktree":
        """The same at another commit, also for the commands' repository. Files and index stay as they are."""
        put(self.git_directory / DETACHED, f"{sha}\n")
        self.share_objects(sha)
        name = f".git/refs/heads/{self.branch}" if self.branch else ".git/HEAD"
        inside.write(self.path, name, f"{sha}\n".encode(), owner=self.account)
        return replace(self, tip=sha)

    def share_objects(self, wanted: str) -> None:
        """Let commands read an object and all objects below it."""
        if self.store == self.repository.store:
            return
        reader = self.user_git.with_environment(GIT_OBJECT_DIRECTORY=str(self.store))
        if reader.run("cat-file", "-e", wanted, accept=None).status:
            have_tip = self.user_git.run("cat-file", "-e", self.tip, accept=None).status == 0
            shares_tip = reader.run("cat-file", "-e", self.tip, accept=None).status == 0 and have_tip
            revisions = f"{wanted}\n{f'^{self.tip}' if shares_tip else ''}\n".encode()
            pack = self.user_git.run("pack-objects", "--revs", "--stdout", "-q", stdin=revisions).out
            reader.run("index-pack", "--stdin", stdin=pack)
            for each in self.store.rglob("*"):
                each.chmod(0o755 if each.is_dir() else 0o444)

    def create_commands_repository(self, base: tuple[str, str] | None = None) -> None:
        """Create the commands' repository anew, replacing what is there.

        Args:
            base: the base branch and its commit, which commands can name too.
        """
        inside.remove(self.path, ".git")
        refs = {self.branch: self.tip, **(dict([base]) if base else {})} if self.branch else {}
        files = {f"refs/heads/{name}": f"{sha}\n" for name, sha in refs.items()} | {
            "config": THEIR_CONFIG.format(objects=self.repository.objects),
            f"objects/{ALTERNATES}": f"{self.store}\n",
            "HEAD": f"ref: refs/heads/{self.branch}\n" if self.branch else f"{self.tip}\n",
        }
        for name, content in files.items():
            inside.write(self.path, f".git/{name}", content.encode(errors="surrogateescape"), owner=self.account)

    def repair(self) -> None:
        """Make the commands' repository anew if they removed or replaced it; remove the locks of a killed git."""
        self.provide_index()
        if not all(inside.kind(self.path, f".git/{name}") for name in ("HEAD", "config", "objects", "refs")):
            self.create_commands_repository()
            self.show_index()
        for name in ("index.lock", "HEAD.lock"):
            inside.remove(self.path, f".git/{name}")
        for name in (INDEX, f"{INDEX}.lock"):
            (self.git_directory / name).unlink(missing_ok=True)

    def follow(self) -> None:
        """Move the files to `tip` if they are at another commit; files with changes stay as they are."""
        if (before := (self.git_directory / DETACHED).read_text().strip()) != self.tip:
            self.share_objects(self.tip)
            self.noting().run_all(STATUS, ("read-tree", "-m", "-u", before, self.tip), accept=None)
            self.show_index()
            put(self.git_directory / DETACHED, f"{self.tip}\n")

    def with_new_commits(self) -> "LockedWorktree | Refusal":
        """The same with the commits that commands made on its branch, checked and brought into the user's repository.

        Commits that they made elsewhere, and commits that they removed from the branch, are ignored.
        """
        assert self.branch
        sha = fetch_commits.branch_of(self.path, self.branch)
        if sha is None or sha == self.tip:
            return self
        if fetch_commits.known(self.user_git, sha, self.tip):
            return self.at_commit(self.tip)
        try:
            fetch_commits.take(
                self.user_git,
                self.repository.store,
                fetch_commits.ObjectSource(self.path),
                self.git_directory / INCOMING,
                want=sha,
                have=self.tip,
            )
        except fetch_commits.Unfit as unfit:
            return Refusal(str(unfit), fetch_commits.REMEDY)
        words = "interlock: committed in its worktree"
        self.user_git.run("update-ref", "-m", words, f"refs/heads/{self.branch}", sha, self.tip)
        self.share_objects(sha)
        self.run_in_worktree("read-tree", "--reset", sha)  # the index they committed from is theirs
        self.run_in_worktree("update-index", "-q", "--refresh", accept=(0, 1))
        return self.at_commit(sha)

    def changed(self) -> Sequence[str]:
        """Tracked files that differ from the commit the working tree is at."""
        return [line[3:] for line in self.noting().run(*STATUS).out.decode().splitlines()]

    def noting(self) -> Git:
        """Git in the working tree; its `status` notes in our index which files were touched and are not changed."""
        inside.remove_pipes(self.path)
        return self.worktree_git().with_environment(GIT_OPTIONAL_LOCKS="1")


def store_of(repository: Repository, path: Path, account: Account | None) -> Path:
    """The objects that a working tree's commands share: the user's or, if their account cannot reach those, a copy
    beside the working tree."""
    closed = account is not None and obstacle(repository.store, account) is not None
    return own_directory(path) / "objects" if closed else repository.store


def stores(store: Path) -> Iterator[Path]:
    """A directory of objects, and the directories it borrows from, as a clone made with `--shared` does."""
    found = [store.resolve()]
    for each in found:
        yield each
        with contextlib.suppress(FileNotFoundError):
            lines = (each / ALTERNATES).read_text(errors="surrogateescape").splitlines()
            named = [(each / line).resolve() for line in lines if line and not line.startswith("#")]
            found += [other for other in named if other not in found and other.is_dir()]


def prepare(locked: LockedWorktree) -> LockedWorktree:
    """Create a working tree with both of its git directories; nothing may exist there yet."""
    path, repository, account = locked.path, locked.repository, locked.account
    path.parent.mkdir(parents=True, exist_ok=True)
    if account:
        path.parent.chmod(path.parent.stat().st_mode | 0o011)  # may be passed through, but not listed
    locked.git_directory.mkdir()
    record = {"repository": str(repository.directory), "branch": locked.branch, "whole": False}
    state_files.write(locked.git_directory / RECORD, record)
    for folder in ("refs", "objects"):
        (locked.git_directory / folder).mkdir()
    put(locked.git_directory / "config", repository.config.replace("bare = true", "bare = false"))
    put(locked.git_directory / DETACHED, f"{locked.tip}\n")
    for each in (locked.git_directory, locked.git_directory / "refs", locked.git_directory / "objects"):
        each.chmod(0o755)
    path.mkdir(mode=0o700)
    return locked


def finish(locked: LockedWorktree, base: tuple[str, str] | None) -> LockedWorktree:
    """Give the working tree to the commands' account, check out its files, and record that it is complete."""
    if locked.account:
        os.chown(locked.path, locked.account.uid, locked.account.gid)
    locked.share_objects(locked.tip)
    locked.create_commands_repository(base)
    locked.make_index_directory()
    replace(locked.worktree_git(), timeout_seconds=TIMEOUT_SECONDS).run("read-tree", "--reset", "-u", locked.tip)
    locked.show_index()
    record = {"repository": str(locked.repository.directory), "branch": locked.branch, "whole": True}
    state_files.write(locked.git_directory / RECORD, record)
    return locked


def put(file: Path, content: str) -> None:
    """Write, in one step, a file of our own directory that the commands' account may read."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(content)
    draft.chmod(0o644)
    draft.replace(file)
