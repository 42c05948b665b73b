"""Takes what commands committed in their own repository into the user's: copies the objects, and verifies each of them.

Nothing of that repository is executed or trusted. Its branch is read as text, and its objects are copied as plain files
(no link is followed). Then git reads the copy under our configuration: before any object enters the user's repository,
git computes every object name again, checks every object (`--strict`), and checks that none is missing.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interlock.workers.git import inside
from interlock.workers.git.command import Git

OBJECTS_BYTES = 512 * 1024 * 1024
OBJECTS_FILES = 100_000
FEW = 200  # up to this many objects are stored as loose ones in the user's repository; more are stored as a pack
NAME = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
SINGLE = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?\Z")
PACK = re.compile(r"pack-[0-9a-f]{40,64}\.pack\Z")
CHUNK_BYTES = 1024 * 1024
REF_BYTES, PACKED_BYTES = 200, 16 * 1024 * 1024
REMEDY = "What it left is archived; let its tasks commit less at once, or leave committing to patches"


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """A directory of objects written by others, inside a directory in which only we can create entries."""

    top: Path
    folder: str = ".git/objects"


class Unfit(Exception):
    """The commits there cannot be taken; the message says why."""


def branch_of(tree: Path, branch: str) -> str | None:
    """The commit of a branch in the commands' repository, if a file there names one."""
    content = inside.read(tree, f".git/refs/heads/{branch}", limit_bytes=REF_BYTES)
    if content is None:
        packed = inside.read(tree, ".git/packed-refs", limit_bytes=PACKED_BYTES) or b""
        ending = f" refs/heads/{branch}".encode()
        content = next((line.removesuffix(ending) for line in packed.splitlines() if line.endswith(ending)), b"")
    return content.strip().decode() if NAME.match(content.strip()) else None


def known(git: Git, commit: str, tip: str) -> bool:
    """Whether a commit is the tip or one of its ancestors; False if one of them does not exist."""
    return git.run("merge-base", "--is-ancestor", commit, tip, accept=(0, 1, 128)).status == 0


def take(
    git: Git, store: Path, source: "ObjectSource", scratch: Path, *, want: str, have: str, strict: bool = True
) -> None:
    """Bring a commit or tree, with all that it needs, from the commands' objects into the user's repository.

    Args:
        git: at the user's repository, under our configuration.
        store: the user's objects.
        source: the commands' objects.
        scratch: a directory of ours for the copies; removed at the end.
        want: the object.
        have: a commit of the user's repository, whose objects need not be brought.
        strict: refuse objects that `git fsck` calls broken or dangerous.

    Raises:
        Unfit: the objects are too many, too large, broken or missing, or `want` is no descendant of `have`.
        GitFault: git cannot work here; try again.
    """
    inside.remove_tree(scratch)
    try:
        _copied(source, scratch)
        quarantine = git.with_environment(
            GIT_OBJECT_DIRECTORY=str(scratch), GIT_ALTERNATE_OBJECT_DIRECTORIES=str(store)
        )
        for pack in sorted(scratch.glob("pack/*.pack")):
            _run_checked(quarantine, "index-pack", str(pack))
        commit = _run_checked(quarantine, "cat-file", "-t", want).strip() == b"commit"
        if commit:
            _require_built_on(quarantine, want, have)
        revisions = f"{want}\n^{have}\n".encode()
        taken = _run_checked(quarantine, "pack-objects", "--revs", "-q", str(scratch / "taken"), stdin=revisions)
        name = taken.decode().strip()
        _store(git, scratch / f"taken-{name}.pack", strict=strict)
        _run_checked(git, "rev-list", "--objects", "--quiet", want, f"^{have}")  # fails if any object is missing
        if commit:
            _require_built_on(git, want, have)  # again, now that every object's name is verified
    finally:
        inside.remove_tree(scratch)


def _require_built_on(git: Git, want: str, have: str) -> None:
    if not known(git, have, want):
        raise Unfit(f"its commit {want[:12]} does not build on {have[:12]}: commits of its branch were rewritten")


def _store(git: Git, pack: Path, *, strict: bool) -> None:
    with pack.open("rb") as file:
        few = int.from_bytes(file.read(12)[8:], "big") <= FEW
    command = ("unpack-objects", "-q") if few else ("index-pack", "--stdin")
    _run_checked(git, *command, *(["--strict"] if strict else []), stdin=pack)


def _run_checked(git: Git, *arguments: str, stdin: bytes | Path = b"") -> bytes:
    result = git.run(*arguments, stdin=stdin, accept=None)
    if result.status != 0:
        raise Unfit(f"its commits are broken: git {arguments[0]}: {result.words[:500]}")
    return result.out


def _copied(source: ObjectSource, scratch: Path) -> None:
    """Copy loose objects and packs. Indexes of packs are not copied, but made again."""
    (scratch / "pack").mkdir(parents=True)
    left = OBJECTS_BYTES
    for files, name in enumerate(_names(source)):
        left -= _copy(source, name, scratch, left)
        if left <= 0 or files > OBJECTS_FILES:
            raise Unfit(
                f"its repository has more than {OBJECTS_BYTES:,} bytes or {OBJECTS_FILES:,} files of git objects"
            )


def _names(source: ObjectSource) -> Iterator[str]:
    try:
        with inside.folder(source.top, source.folder) as top:
            found = sorted(os.listdir(top))
    except OSError:
        raise Unfit("its repository has no objects: `.git` was removed or replaced") from None
    for each in found:
        pattern = PACK if each == "pack" else SINGLE if re.fullmatch("[0-9a-f]{2}", each) else None
        if pattern:
            try:
                with inside.folder(source.top, f"{source.folder}/{each}") as below:
                    names = [name for name in sorted(os.listdir(below)) if pattern.match(name)]
            except OSError:
                continue  # a link, or no directory: not git's
            yield from (f"{each}/{name}" for name in names)


def _copy(source: ObjectSource, name: str, scratch: Path, limit: int) -> int:
    """Copy one file, up to a limit. Returns the number of copied bytes."""
    target, done = scratch / name, 0
    target.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as reading:
        try:
            file = reading.enter_context(inside.opened(source.top, f"{source.folder}/{name}"))
        except OSError:
            return 0  # a link, or gone: not git's
        with target.open("wb") as copy:
            while done < limit and (chunk := os.read(file, CHUNK_BYTES)):
                done += copy.write(chunk)
    return done
