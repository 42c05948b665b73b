"""Protected paths: files that judge a change are never taken from the change. A gate sees the base branch's files.

Files that differ in the worktree are set aside while the gate runs, and put back afterwards. They are recorded, so that
after a crash they are put back when the worktree is opened next.
"""

import contextlib
import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from interlock.workers.git import branches, inside, set_aside
from interlock.workers.git.command import Git, split
from interlock.workers.git.diff_summary import LINK
from interlock.workers.git.git_directories import LockedWorktree
from interlock.workers.git.lock import RepositoryBusy
from interlock.workers.git.worktree import Worktree, hold
from interlock.workers.system.safe_walk import walk
from interlock.workflows.plan.gate_programs import Named

BLOB_BYTES = 64 * 1024 * 1024
EXECUTABLE = "100755"
DEEPEST = 2048  # levels; a deeper path is longer than any program can open (PATH_MAX), so no gate finds it


def run_by(git: Git, branch: str, names: Iterable[Named]) -> tuple[str, ...]:
    """The files of a branch that commands run: named as program or script, or named anywhere and executable."""
    run = {path for each in names for path in each.run}
    other = {path for each in names for path in each.other} - run
    if not run | other:
        return ()
    found = _listed(git, branch)
    return tuple(sorted(p for p, (mode, _) in found.items() if p in run or (p in other and mode == EXECUTABLE)))


def _listed(git: Git, tree: str) -> dict[str, tuple[str, str]]:
    """Every file of a tree: its mode and its blob."""
    found = {}
    for entry in split(git.run("ls-tree", "-r", "-z", "--full-tree", tree).out):
        attributes, _, path = entry.partition("\t")
        mode, kind, sha = attributes.split(" ")
        if kind == "blob":
            found[path] = (mode, sha)
    return found


@contextlib.contextmanager
def of_base(where: Worktree, protected: GitIgnoreSpec) -> Iterator[tuple[str, ...]]:
    """Give a worktree's protected paths the base branch's content while the block runs; yields those that differed.

    Raises:
        NotAWorktree: there is no worktree at that path. Open it first.
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
        OSError: a file could not be set aside; none is.
    """
    with contextlib.ExitStack() as needing:
        with hold(where) as locked:
            alone = needing.enter_context(set_aside.needed(locked.git_directory))
            base = branches.tip(locked.user_git, where.base_branch) or locked.tip
            differing = _set_aside(locked, base, protected, alone)
        try:
            yield differing
        finally:
            needing.close()
            if differing:
                with hold(where):  # taking the lock puts back the files that nobody needs aside any more
                    pass


def _set_aside(
    locked: LockedWorktree, base: str, protected: GitIgnoreSpec, alone: Callable[[], bool]
) -> tuple[str, ...]:
    wanted = {path: found for path, found in _listed(locked.user_git, base).items() if protected.match_file(path)}
    present = {path for path in _present(locked.path) if protected.match_file(path)}
    differing = {path for path in present if path not in wanted or _differs(locked, path, *wanted[path])}
    missing = {path for path in wanted if path not in present}
    gone = _tops(differing | {above for path in missing if (above := _in_the_way(locked.path, path))})
    coming = sorted(missing | (differing & wanted.keys()))
    if not gone and not coming:
        return ()
    if not alone():
        raise RepositoryBusy(
            f"{locked.path}: {', '.join((*gone, *coming)[:5])} cannot be replaced while another gate runs"
        )
    set_aside.set_aside(locked.path, locked.git_directory, gone, coming)
    for path in coming:
        mode, sha = wanted[path]
        content = locked.user_git.run("cat-file", "blob", sha).out
        if int(mode, 8) == LINK:
            inside.link(locked.path, path, content)
        else:
            bits = 0o755 if mode == EXECUTABLE else 0o644
            inside.write(locked.path, path, content, mode=bits, owner=locked.account)
    return tuple(sorted({*gone, *coming}))


def _present(top: Path) -> Iterator[str]:
    """Every file and link of a working tree, except git's own directory; no link is followed."""
    with inside.folder(top, "") as where:
        for parts, _, names in walk(where, skip=".git", deepest=DEEPEST):
            yield from ("/".join((*parts, each)) for each in names if parts or each != ".git")


def _differs(locked: LockedWorktree, path: str, mode: str, sha: str) -> bool:
    kind = inside.kind(locked.path, path)
    if kind is None or not stat.S_ISREG(kind) or int(mode, 8) == LINK or bool(kind & 0o100) != (mode == EXECUTABLE):
        return True
    content = inside.read(locked.path, path, limit_bytes=BLOB_BYTES) or b""
    return hashlib.new(locked.repository.objects, b"blob %d\0" % len(content) + content).hexdigest() != sha


def _in_the_way(top: Path, path: str) -> str | None:
    """An entry at the path itself, or one that is not a directory on the way to it."""
    parts = PurePosixPath(path).parts
    for count in range(1, len(parts) + 1):
        kind = inside.kind(top, above := "/".join(parts[:count]))
        if kind is None:
            return None
        if not stat.S_ISDIR(kind) or count == len(parts):
            return above
    return None


def _tops(paths: set[str]) -> list[str]:
    """The paths that no other one of them contains."""
    return sorted(path for path in paths if not any(path.startswith(f"{each}/") for each in paths))
