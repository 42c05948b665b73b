"""What a home lets others read or list."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_entries(home: Path) -> Iterator[str]:
    """Each entry of a home, with its mode, that users other than its owner can read or list.

    Of root's, other users pass through to the worktrees, in which their commands work.
    """
    passable = {home, home / "worktrees", home / "worktrees" / ".exchange"} if os.geteuid() == 0 else set()
    for path in (home, *home.rglob("*")):
        with suppress(FileNotFoundError):  # servers run, and delete files of theirs
            if path.is_symlink():
                continue
            hidden = any(mode(above) & 0o077 == 0 for above in path.parents if above.is_relative_to(home))
            allowed = 0o711 if path in passable else 0o700
            if not hidden and mode(path) & ~allowed:
                yield f"{path} is {mode(path):o}"
