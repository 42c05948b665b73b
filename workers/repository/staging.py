"""Try a patch in an index of its own: neither the worktree nor its index notices, whatever comes of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.repository.changes import LINK, SUBMODULE, FileChange
from workers.repository.checking import Checked, PatchPolicy, judge
from workers.repository.git import Git, Said, split
from workers.repository.outcomes import Conflict
from workers.repository.paths import special


@dataclass(frozen=True, slots=True)
class Try:
    """One way to apply a patch."""

    name: str
    options: tuple[str, ...]


TRIES = (
    Try("exact", ()),  # every line of context must be there; hunks may have moved
    Try("whitespace", ("--ignore-whitespace",)),  # context may differ in blanks and line ends
    Try("three_way", ("--3way",)),  # merged with what the tree became since, by the blobs the patch names
)


@dataclass(frozen=True, slots=True)
class Staged:
    """A tree with the patch in it."""

    tree: str
    way: str
    paths: tuple[str, ...]


def stage(
    private: Git, patch: bytes, touched: Sequence[str], policy: PatchPolicy, tries: Sequence[Try] = TRIES
) -> Staged | Conflict | Checked:
    """The tree that HEAD becomes under the patch; or the conflict of the last try; or why the policy forbids it.

    What git staged is judged again: what a text hides (a renamed link, a mode that only git reads) shows here.

    Args:
        private: git in the worktree, with an index of its own.
        patch: the diff.
        touched: the paths it names.
        policy: what it may do.
        tries: which ways to try, in turn.
    """
    failed = Conflict((), "no try was made")
    for each in tries:
        private.run("read-tree", "HEAD")
        said = private.run("apply", "--cached", "--whitespace=nowarn", *each.options, "-", given=patch, accept=None)
        if said.status == 0:
            return _judged(private, each.name, policy)
        failed = Conflict(_conflicting(private, said, touched), f"{each.name}: {said.words}")
    return failed


def _judged(private: Git, way: str, policy: PatchPolicy) -> Staged | Conflict | Checked:
    changes = tuple(_staged(private))
    if not changes:
        return Conflict((), f"{way}: it changes nothing; the tree already is as it would make it")
    checked = judge(changes, policy, links=links(private))
    if not checked.passed:
        return checked
    return Staged(private.line("write-tree"), way, tuple(each.new for each in changes))


def _conflicting(private: Git, said: Said, touched: Sequence[str]) -> tuple[str, ...]:
    """The files in conflict: left unmerged by a three-way try, else those that git complains of."""
    unmerged = {entry.partition("\t")[2] for entry in private.records("ls-files", "--unmerged", "-z")}
    complaints = [line.removeprefix("error: ") for line in said.err.splitlines()]
    named = {
        path
        for path in touched
        for line in complaints
        if line.startswith((f"{path}: ", f"patch failed: {path}:")) or line.endswith(f": {path}")
    }
    return tuple(sorted(unmerged or named))


def _staged(private: Git) -> Iterator[FileChange]:
    """What the private index changes; renames as what they are, one file gone and one come."""
    counts = {
        path: counted
        for *counted, path in (
            each.split("\t", 2)
            for each in private.records("diff-index", "--cached", "--numstat", "-z", "--no-renames", "HEAD")
        )
    }
    entries = iter(private.records("diff-index", "--cached", "--raw", "-z", "--no-renames", "HEAD"))
    for entry, path in zip(entries, entries, strict=True):
        old_mode, new_mode, _, sha, _ = entry.removeprefix(":").split(" ")
        added, deleted = counts.get(path, ("0", "0"))
        yield FileChange(
            path,
            path,
            old_mode=int(old_mode, 8) or None,
            new_mode=int(new_mode, 8) or None,
            added=int(added) if added != "-" else 0,
            deleted=int(deleted) if deleted != "-" else 0,
            binary=added == "-",
            written=_written(private, path, int(new_mode, 8), sha),
        )


def _written(private: Git, path: str, mode: int, sha: str) -> tuple[str, ...]:
    """The new lines of a link or of git's attributes: the two whose content can do harm."""
    if mode in (0, SUBMODULE) or (mode != LINK and special(path) != ".gitattributes"):
        return ()
    content = private.run("cat-file", "blob", sha).out.decode(errors="surrogateescape")
    if mode == LINK:
        return tuple(content.split("\n"))
    before = private.run("cat-file", "blob", f"HEAD:{path}", accept=(0, 128)).out.decode(errors="surrogateescape")
    return tuple(line for line in content.split("\n") if line not in before.split("\n"))


def links(git: Git) -> frozenset[str]:
    """The symbolic links that HEAD has."""
    found = (entry.partition("\t") for entry in split(git.run("ls-tree", "-r", "-z", "HEAD").out))
    return frozenset(path for kind, _, path in found if kind.startswith(f"{LINK:o}"))
