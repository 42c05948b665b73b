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
from interlock.workers.git.command import TIMEOUT_SECONDS, Git, Said
from interlock.workers.git.repository import Repository
from interlock.workers.git.results import Refusal
from interlock.workers.isolation.apart import Apart
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


def own_directory(path: Path) -> Path:
    """Our git directory for a working tree: beside it."""
    return path.with_name(f".{path.name}.git")


@dataclass(frozen=True, slots=True)
class Desk:
    """One working tree whose lock we hold.

    Attributes:
        repository: the user's.
        path: the working tree.
        branch: its branch in the user's repository; None for one that has none.
        tip: the commit it is at, for us.
        ours: git at the user's refs and objects, under our configuration.
        apart: who commands run as, and how our git in the working tree is isolated.
    """

    repository: Repository
    path: Path
    branch: str | None
    tip: str
    ours: Git
    apart: Apart

    @property
    def account(self) -> Account | None:
        """The user that commands, and our git in the working tree, run as; None: our own."""
        return self.apart.account

    @property
    def own(self) -> Path:
        """Our git directory."""
        return own_directory(self.path)

    @property
    def store(self) -> Path:
        """The objects that commands here may read: the user's, or a copy if their account cannot reach those."""
        return store_of(self.repository, self.path, self.account)

    @property
    def there(self) -> Git:
        """Git in the working tree, to read and write files: with our git directory, isolated as commands are."""
        return self.there_and()

    def there_and(self, *places: Path) -> Git:
        """The same, which may also change other directories of ours."""
        path, own = self.path.resolve(), self.own.resolve()
        extra = {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": str(path),
            "GIT_INDEX_FILE": str(own / FILES_INDEX),
            "GIT_OBJECT_DIRECTORY": str(self.store.resolve()),
        }
        writes = (path, (own / FILES_INDEX).parent, *places)
        apart = replace(self.apart, reads=(own, *stores(self.store)), writes=writes)
        return replace(self.ours, directory=path, extra=extra, apart=apart, timeout_seconds=FILES_SECONDS)

    def at_files(self, *arguments: str, accept: tuple[int, ...] | None = (0,)) -> Said:
        """Run git in the working tree. Removes named pipes first: git would block on one named `.gitignore`."""
        inside.remove_pipes(self.path)
        return self.there.run(*arguments, accept=accept)

    def enter(self, *arguments: str, accept: tuple[int, ...] | None = (0,)) -> Said:
        """The same for commands that change the index, of which the commands' repository then gets a copy.

        Git follows a symbolic link at its index. Commands can put one into their own `.git`, but not into ours.
        """
        said = self.at_files(*arguments, accept=accept)
        self.show_index()
        return said

    def show_index(self) -> None:
        """Copy our index into the commands' repository, replacing whatever is there; no link is followed."""
        content = inside.read(self.own, FILES_INDEX, limit_bytes=INDEX_BYTES)
        if content is not None:
            inside.remove(self.path, ".git/index")
            inside.write(self.path, ".git/index", content, owner=self.account)

    def provide_index(self) -> None:
        """Make our index if there is none, as in an earlier version; remove the lock that a killed git left."""
        work = (self.own / FILES_INDEX).parent
        inside.remove(self.own, f"{FILES_INDEX}.lock")
        if not work.is_dir():
            work.mkdir(mode=0o700)
            if self.account:
                os.chown(work, self.account.uid, self.account.gid)
        if inside.kind(self.own, FILES_INDEX) is None:
            self.there.run("read-tree", (self.own / DETACHED).read_text().strip())

    @property
    def private(self) -> Git:
        """Git with a separate index: attempts there are visible nowhere else."""
        return self.ours.given(GIT_INDEX_FILE=str(self.own / INDEX))

    def standing_at(self, sha: str) -> "Desk":
        """The same at another commit, also for the commands' repository. Files and index stay as they are."""
        put(self.own / DETACHED, f"{sha}\n")
        self.hand_over(sha)
        name = f".git/refs/heads/{self.branch}" if self.branch else ".git/HEAD"
        inside.write(self.path, name, f"{sha}\n".encode(), owner=self.account)
        return replace(self, tip=sha)

    def hand_over(self, wanted: str) -> None:
        """Let commands read an object and all objects below it."""
        if self.store == self.repository.store:
            return
        reader = self.ours.given(GIT_OBJECT_DIRECTORY=str(self.store))
        if reader.run("cat-file", "-e", wanted, accept=None).status:
            kept = self.ours.run("cat-file", "-e", self.tip, accept=None).status == 0
            known = reader.run("cat-file", "-e", self.tip, accept=None).status == 0 and kept
            given = f"{wanted}\n{f'^{self.tip}' if known else ''}\n".encode()
            pack = self.ours.run("pack-objects", "--revs", "--stdout", "-q", given=given).out
            reader.run("index-pack", "--stdin", given=pack)
            for each in self.store.rglob("*"):
                each.chmod(0o755 if each.is_dir() else 0o444)

    def furnish(self, base: tuple[str, str] | None = None) -> None:
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

    def mend(self) -> None:
        """Make the commands' repository anew if they removed or replaced it; remove the locks of a killed git."""
        self.provide_index()
        if not all(inside.kind(self.path, f".git/{name}") for name in ("HEAD", "config", "objects", "refs")):
            self.furnish()
            self.show_index()
        for name in ("index.lock", "HEAD.lock"):
            inside.remove(self.path, f".git/{name}")
        for name in (INDEX, f"{INDEX}.lock"):
            (self.own / name).unlink(missing_ok=True)

    def follow(self) -> None:
        """Move the files to `tip` if they are at another commit; files with changes stay as they are."""
        if (before := (self.own / DETACHED).read_text().strip()) != self.tip:
            self.hand_over(self.tip)
            self.enter("read-tree", "-m", "-u", before, self.tip, accept=None)
            put(self.own / DETACHED, f"{self.tip}\n")

    def taken(self) -> "Desk | Refusal":
        """The same with the commits that commands made on its branch, checked and brought into the user's repository.

        Commits that they made elsewhere, and commits that they removed from the branch, are ignored.
        """
        assert self.branch
        made = fetch_commits.branch_of(self.path, self.branch)
        if made is None or made == self.tip:
            return self
        if fetch_commits.known(self.ours, made, self.tip):
            return self.standing_at(self.tip)
        try:
            fetch_commits.take(
                self.ours,
                self.repository.store,
                fetch_commits.Source(self.path),
                self.own / INCOMING,
                want=made,
                have=self.tip,
            )
        except fetch_commits.Unfit as unfit:
            return fetch_commits.refused(unfit)
        words = "interlock: committed in its worktree"
        self.ours.run("update-ref", "-m", words, f"refs/heads/{self.branch}", made, self.tip)
        self.hand_over(made)
        self.at_files("read-tree", "--reset", made)  # the index they committed from is theirs
        self.at_files("update-index", "-q", "--refresh", accept=(0, 1))
        return self.standing_at(made)

    def changed(self) -> Sequence[str]:
        """Tracked files that differ from the commit the working tree is at."""
        said = self.at_files("status", "--porcelain", "--no-renames", "--untracked-files=no")
        return [line[3:] for line in said.out.decode().splitlines()]


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
            said = (each / ALTERNATES).read_text(errors="surrogateescape").splitlines()
            named = [(each / line).resolve() for line in said if line and not line.startswith("#")]
            found += [other for other in named if other not in found and other.is_dir()]


def prepare(desk: Desk) -> Desk:
    """Create a working tree with both of its git directories; nothing may exist there yet."""
    path, repository, account = desk.path, desk.repository, desk.account
    path.parent.mkdir(parents=True, exist_ok=True)
    if account:
        path.parent.chmod(path.parent.stat().st_mode | 0o011)  # may be passed through, but not listed
    desk.own.mkdir()
    record = {"repository": str(repository.directory), "branch": desk.branch, "whole": False}
    state_files.write(desk.own / RECORD, record)
    for folder in ("refs", "objects"):
        (desk.own / folder).mkdir()
    put(desk.own / "config", repository.config.replace("bare = true", "bare = false"))
    put(desk.own / DETACHED, f"{desk.tip}\n")
    for each in (desk.own, desk.own / "refs", desk.own / "objects"):
        each.chmod(0o755)
    path.mkdir(mode=0o700)
    return desk


def finish(desk: Desk, base: tuple[str, str] | None) -> Desk:
    """Give the working tree to the commands' account, check out its files, and record that it is complete."""
    if desk.account:
        os.chown(desk.path, desk.account.uid, desk.account.gid)
    desk.hand_over(desk.tip)
    desk.furnish(base)
    desk.provide_index()
    replace(desk.there, timeout_seconds=TIMEOUT_SECONDS).run("read-tree", "--reset", "-u", desk.tip)
    desk.show_index()
    record = {"repository": str(desk.repository.directory), "branch": desk.branch, "whole": True}
    state_files.write(desk.own / RECORD, record)
    return desk


def put(file: Path, content: str) -> None:
    """Write, in one step, a file of our own directory that the commands' account may read."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(content)
    draft.chmod(0o644)
    draft.replace(file)
