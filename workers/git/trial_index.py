"""Tries a patch in a separate index, so that neither the worktree nor its index changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock.workers.git.command import Git, GitResult, split
from interlock.workers.git.diff_summary import LINK, SUBMODULE, FileChange
from interlock.workers.git.forbidden_paths import special
from interlock.workers.git.policy import Checked, PatchPolicy, judge
from interlock.workers.git.results import Conflict


@dataclass(frozen=True, slots=True)
class Try:
    """One way to apply a patch."""

    name: str
    options: tuple[str, ...]


TRIES = (
    Try("exact", ()),  # every line of context must be there; hunks may have moved
    Try("whitespace", ("--ignore-whitespace",)),  # context may differ in blanks and line ends
    Try("three_way", ("--3way",)),  # merged with later changes of the tree, by the blobs that the patch names
)


@dataclass(frozen=True, slots=True)
class Staged:
    """A tree with the patch in it."""

    tree: str
    way: str
    paths: tuple[str, ...]


def stage(
    private: Git,
    head: str,
    patch: bytes,
    touched: Sequence[str],
    *,
    policy: PatchPolicy,
    tries: Sequence[Try] = TRIES,
) -> Staged | Conflict | Checked:
    """The tree of a commit with the patch applied; or the conflict of the last try; or the policy's verdict against it.

    What git staged is judged again: it shows what a text can hide (a renamed link, a mode that only git reads).

    Args:
        private: git with a separate index.
        head: the commit.
        patch: the diff.
        touched: the paths it names.
        policy: what it may do.
        tries: which ways to try, in turn.
    """
    failed = Conflict((), "no try was made")
    for each in tries:
        Path(private.extra["GIT_INDEX_FILE"] + ".lock").unlink(missing_ok=True)  # of a git that a patch aborted
        private.run("read-tree", head)
        result = private.run("apply", "--cached", "--whitespace=nowarn", *each.options, "-", stdin=patch, accept=None)
        if result.status == 0:
            return _judged(private, head, each.name, policy)
        failed = Conflict(_conflicting(private, result, touched), f"{each.name}: {result.words}")
    return failed


def _judged(private: Git, head: str, way: str, policy: PatchPolicy) -> Staged | Conflict | Checked:
    tree = private.line("write-tree")
    changes = between(private, head, tree)
    if not changes:
        return Conflict((), f"{way}: it changes nothing; the tree already is as it would make it")
    checked = judge(changes, policy, links=links(private, head))
    return Staged(tree, way, tuple(each.new for each in changes)) if checked.passed else checked


def _conflicting(private: Git, result: GitResult, touched: Sequence[str]) -> tuple[str, ...]:
    """The files in conflict: those left unmerged by a three-way try, else those that git complains about."""
    unmerged = {entry.partition("\t")[2] for entry in private.records("ls-files", "--unmerged", "-z")}
    complaints = [line.removeprefix("error: ") for line in result.err.splitlines()]
    named = {
        path
        for path in touched
        for line in complaints
        if line.startswith((f"{path}: ", f"patch failed: {path}:")) or line.endswith(f": {path}")
    }
    return tuple(sorted(unmerged or named))


def between(git: Git, old: str, new: str) -> tuple[FileChange, ...]:
    """What one tree changes in another, file by file; a rename is one file removed and one added.

    Args:
        git: at the repository.
        old, new: trees, or commits that stand for their trees.
    """
    command = ("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--raw", "--numstat")
    records = iter(git.records(*command, old, new))  # all entries, each with its path after it, then all counts
    entries = list[tuple[str, str]]()
    counts = dict[str, Sequence[str]]()
    for record in records:
        if record.startswith(":"):
            entries.append((record, next(records)))
        else:
            *counted, path = record.split("\t", 2)
            counts[path] = counted
    return tuple(_change(git, old, entry, path, counts) for entry, path in entries)


def _change(git: Git, old: str, entry: str, path: str, counts: Mapping[str, Sequence[str]]) -> FileChange:
    old_mode, new_mode, _, sha, _ = entry.removeprefix(":").split(" ")
    added, deleted = counts.get(path, ("0", "0"))
    return FileChange(
        path,
        path,
        old_mode=int(old_mode, 8) or None,
        new_mode=int(new_mode, 8) or None,
        added=int(added) if added != "-" else 0,
        deleted=int(deleted) if deleted != "-" else 0,
        binary=added == "-",
        written=_written(git, old, path, int(new_mode, 8), sha),
    )


def _written(git: Git, old: str, path: str, mode: int, sha: str) -> tuple[str, ...]:
    """The new lines of a link or of a `.gitattributes` file, the two whose content can do harm."""
    if mode in (0, SUBMODULE) or (mode != LINK and special(path) != ".gitattributes"):
        return ()
    content = git.run("cat-file", "blob", sha).out.decode(errors="surrogateescape")
    if mode == LINK:
        return tuple(content.split("\n"))
    before = git.run("cat-file", "blob", f"{old}:{path}", accept=(0, 128)).out.decode(errors="surrogateescape")
    return tuple(line for line in content.split("\n") if line not in before.split("\n"))


def links(git: Git, tree: str) -> frozenset[str]:
    """The symbolic links in a tree."""
    found = (entry.partition("\t") for entry in split(git.run("ls-tree", "-r", "-z", tree).out))
    return frozenset(path for kind, _, path in found if kind.startswith(f"{LINK:o}"))
