"""Detects changes in a repository to what runs programs or redirects git, by comparing it before and after a command.

Of its refs, only changes are detected that neither the user's work nor another landing makes: replaced objects, a base
branch that loses commits or gains those of the worktree itself, a rewritten branch of the worktree. People may move all
others as they like. Settings of branches and the user's name are not compared, because git and editors write them in
passing.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from interlock.workers.git import branches, fetch_commits, inside, state_files
from interlock.workers.git.command import split
from interlock.workers.git.git_directories import own_directory
from interlock.workers.git.repository import Repository
from interlock.workers.git.worktree import Worktree

RECORD = "interlock-tampering.json"
FILES = ("info/attributes", "info/exclude", "info/grafts", "objects/info/alternates", "commondir", "shallow")
HARMLESS = ("branch.", "user.name", "user.email")
FILE_BYTES = 4 * 1024 * 1024

RepositoryState = dict[str, str]


@dataclass(frozen=True, slots=True)
class BranchTips:
    """The tips of a worktree's branch and its base branch, and of the branch in the commands' repository."""

    own: str | None
    base: str | None
    made: str | None


def repository_state(repository: Repository) -> RepositoryState:
    """What is compared, by name: settings (with included ones), hooks, replaced objects, files that redirect git."""
    directory = repository.directory
    files = {f"file {name}": _print(directory, name) for name in FILES if inside.kind(directory, name) is not None}
    return {**_settings(repository), **_hooks(directory), **files, **_replaced(repository)}


def branch_tips(tree: Worktree) -> BranchTips:
    """The present tips of its branches."""
    git = tree.repository.git()
    own, base = branches.tip(git, tree.branch), branches.tip(git, tree.base_branch)
    return BranchTips(own, base, fetch_commits.branch_of(tree.path, tree.branch))


def moves(tree: Worktree, before: BranchTips, after: BranchTips) -> tuple[str, ...]:
    """Changes of its branches that only one of its own commands can have made.

    A removed branch does not count: archiving a worktree removes it. Nor does one that moved forward: patches are
    committed.
    """
    git = tree.repository.git()
    found = []
    if before.own and after.own and not fetch_commits.known(git, before.own, after.own):
        found.append(f"branch {tree.branch} was rewritten")
    if before.base and after.base != before.base:
        if after.base is None or not fetch_commits.known(git, before.base, after.base):
            found.append(f"branch {tree.base_branch} lost commits")
        else:
            tips = {before.own, before.made, after.own, after.made} - {None}
            known = fetch_commits.known
            landed = [tip for tip in tips if tip and known(git, tip, after.base) and not known(git, tip, before.base)]
            found += [f"branch {tree.base_branch} got commits of {tree.branch}"] if landed else []
    return tuple(found)


def _replaced(repository: Repository) -> RepositoryState:
    result = repository.git().run("for-each-ref", "--format=%(objectname) %(refname)", "refs/replace/")
    lines = result.out.decode(errors="surrogateescape").splitlines()
    return {f"ref {name}": sha for sha, _, name in (line.partition(" ") for line in lines)}


def _settings(repository: Repository) -> RepositoryState:
    git = repository.git().at(repository.directory)
    result = git.run("config", "--list", "--includes", "-z", accept=None)
    if result.status:
        return {"its configuration": f"unreadable: {result.words}"}
    found: RepositoryState = {}
    for entry in split(result.out):
        name, _, value = entry.partition("\n")
        if not name.startswith(HARMLESS):
            found[f"setting {name}"] = found.get(f"setting {name}", "") + f"{value}\0"
    return found


def _hooks(directory: Path) -> RepositoryState:
    try:
        with inside.folder(directory, "hooks") as where:
            names = [each for each in sorted(os.listdir(where)) if not each.endswith(".sample")]
    except OSError:
        return {}
    return {f"hook {name}": _print(directory, f"hooks/{name}") for name in names}


def _print(directory: Path, name: str) -> str:
    mode = stat.filemode(inside.kind(directory, name) or 0)
    content = inside.read(directory, name, limit_bytes=FILE_BYTES)
    return mode if content is None else f"{mode} {hashlib.sha256(content).hexdigest()}"


def differences(before: RepositoryState, after: RepositoryState) -> tuple[str, ...]:
    """The names of what was changed, created or removed."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


@contextlib.contextmanager
def compared(repository: Repository) -> Iterator[list[str]]:
    """Once the block has ended, the list that it got names what changed in the repository meanwhile."""
    before, changed = repository_state(repository), list[str]()
    try:
        yield changed
    finally:
        changed += differences(before, repository_state(repository))


@contextlib.contextmanager
def watched(tree: Worktree, what: str) -> Iterator[None]:
    """Record beside a worktree what changed in the user's repository while the block ran.

    Args:
        tree: the worktree.
        what: what ran, for the reason.
    """
    changed: list[str] = []
    repository, path, tips_before = tree.repository, tree.path, branch_tips(tree)
    try:
        with compared(repository) as changed:
            yield
    finally:
        changed = [*changed, *moves(tree, tips_before, branch_tips(tree))]
        if changed and own_directory(path).is_dir():
            note = {"what": what, "changed": changed[:20], "at": datetime.now(UTC).isoformat()}
            if not (own_directory(path) / RECORD).exists():
                state_files.write(own_directory(path) / RECORD, note)


def tampering(repository: Repository, path: Path) -> str | None:
    """Why nothing of a worktree may land: what changed in the repository while its commands ran; or None."""
    if (note := state_files.read(own_directory(path) / RECORD)) is None:
        return None
    changed = ", ".join(note["changed"])
    return f"while {note['what']} ran, the repository {repository.directory} changed: {changed}"
