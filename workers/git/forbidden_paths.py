"""Paths that no patch may touch, whatever its policy."""

import posixpath
from collections.abc import Collection

IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)  # macOS reads `.g\u200cit` as `.git`
TRAILING = " ."  # Windows drops these at the end of a name
OWN = (".git", ".interlock")
SHORT = "git~1"  # the 8.3 name of .git


def outside(path: str) -> str | None:
    """Why a path does not stay within its tree, or None."""
    if path.startswith("/"):
        return "is an absolute path"
    parts = path.split("/")
    if ".." in parts:
        return "climbs out with '..'"
    if not path or "." in parts or "" in parts:
        return "is no plain path"
    return "has a backslash, which is a separator elsewhere" if "\\" in path else None


def own(path: str) -> str | None:
    """The part of a path, at any depth, that some file system reads as git's or Interlock's own; or None."""
    for part in path.split("/"):
        plain = part.translate(IGNORED_BY_HFS).split(":")[0].rstrip(TRAILING).casefold()
        if plain in OWN or plain == SHORT:
            return part
    return None


def special(path: str) -> str:
    """The file name as git might interpret it on any file system, whatever its spelling."""
    return posixpath.basename(path).translate(IGNORED_BY_HFS).split(":")[0].rstrip(TRAILING).casefold()


def above(path: str, links: Collection[str]) -> str | None:
    """The symbolic link that a path goes through, or None."""
    parts = path.split("/")
    return next((link for count in range(1, len(parts)) if (link := "/".join(parts[:count])) in links), None)


def leaves(link: str, target: str) -> bool:
    """Whether a symbolic link could point out of its tree, or into git's own directory.

    A `..` after a name counts, because that name may be a link to a directory higher up.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    depth = link.count("/")
    return (
        target.startswith("/")
        or "\\" in target
        or "\0" in target
        or climbs > depth
        or ".." in parts[climbs:]
        or own("/".join(parts) or "x") is not None
    )
