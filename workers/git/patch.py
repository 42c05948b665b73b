"""Reads a patch as git will: paths from git itself, lines and modes from `unidiff`; the two must agree.

If our own parser read another path than `git apply`, the scope check would have a hole. So the paths are those that
`git apply` prints, forward and in reverse, which gives both sides of every file.
"""

import re
from pathlib import Path

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchedFile, PatchSet

from interlock.workers.git.command import Git, GitResult, split
from interlock.workers.git.diff_summary import FileChange, PatchReason

MODES = re.compile(rb"^ (?:create mode (\d{6})|delete mode (\d{6})|mode change (\d{6}) => (\d{6}))", re.MULTILINE)
ANYWHERE = Path("/")  # `git apply --numstat` reads no repository


def encode(patch_text: str) -> bytes:
    """The patch's bytes. Text that was not UTF-8 is expected to be decoded with `surrogateescape`."""
    return patch_text.encode(errors="surrogateescape")


def read(patch_text: str, *, max_bytes: int) -> tuple[FileChange, ...] | PatchReason:
    """Every file's change, in the patch's order; or why it is not a patch.

    Args:
        patch_text: a unified diff, git's or a plain one, with its original line ends.
        max_bytes: larger patches are refused unread.
    """
    if not patch_text.strip():
        return PatchReason("", "empty", "The patch is empty")
    if (size := len(patch := encode(patch_text))) > max_bytes:
        return PatchReason("", "size", f"The patch has {size} bytes, more than the {max_bytes} allowed")
    if b"\0" in patch:
        return PatchReason(
            "", "diff", "The patch holds a NUL byte; binary content must come as `git diff --binary` gives it"
        )
    return _read(patch_text, patch)


def _read(patch_text: str, patch: bytes) -> tuple[FileChange, ...] | PatchReason:
    git = Git(ANYWHERE)
    forward = git.run("apply", "--numstat", "--summary", "-z", "-", stdin=patch, accept=None)
    if forward.status != 0:
        return PatchReason("", "diff", f"Git cannot read it as a diff: {forward.words}")
    backward = git.run("apply", "--reverse", "--numstat", "-z", "-", stdin=patch, accept=None)
    if backward.status != 0:
        return PatchReason("", "diff", f"Git cannot reverse it: {backward.words}")
    try:
        return _agreed(PatchSet(patch_text), forward, backward)
    except (UnidiffParseError, ValueError) as error:  # ValueError: a mode that is not an octal number
        return PatchReason("", "diff", f"It is not a well-formed diff: {error}")


def _agreed(files: PatchSet, forward: GitResult, backward: GitResult) -> tuple[FileChange, ...] | PatchReason:
    table, _, summary = forward.out.rpartition(b"\0")  # counts end with a NUL; the summary after them has lines
    after, before = _counted(table), _counted(backward.out)[::-1]
    counts = [("-", "-") if each.is_binary_file else (str(each.added), str(each.removed)) for each in files]
    if not counts == [each[:2] for each in after] == [(each[1], each[0]) for each in before]:
        return PatchReason("", "diff", "Git and a strict parser read different files from it")
    found = tuple(_change(file, old[2], new[2]) for file, old, new in zip(files, before, after, strict=True))
    known = {mode for each in found for mode in (each.old_mode, each.new_mode)}
    if not {int(mode, 8) for modes in MODES.findall(summary) for mode in modes if mode} <= known:
        return PatchReason("", "diff", "Git and a strict parser read different file modes from it")
    return found


def _counted(table: bytes) -> list[tuple[str, str, str]]:
    parted = (each.split("\t", 2) for each in split(table))
    return [(added, deleted, path) for added, deleted, path in parted]


def _change(file: PatchedFile, old: str, new: str) -> FileChange:
    return FileChange(
        old,
        new,
        old_mode=_mode(file.source_mode),
        new_mode=None if file.is_removed_file else _mode(file.target_mode or file.source_mode),
        added=file.added,
        deleted=file.removed,
        binary=file.is_binary_file,
        without_content=file.is_binary_file and any(line.startswith("Binary file") for line in file.patch_info or ()),
        written=tuple(line.value.removesuffix("\n") for hunk in file for line in hunk if line.is_added),
    )


def _mode(digits: str | None) -> int | None:
    return int(digits, 8) if digits else None
