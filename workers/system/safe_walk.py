"""Opens files and walks trees that others may have made: follows no link, blocks on no pipe, and no tree is too deep.

`os.walk` and `os.fwalk` recurse on Python 3.11, and `os.fwalk` keeps a descriptor open for each level.
"""

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Known = tuple[int, int]  # device and inode


def walk(top: int, *, skip: str = "", deepest: int | None = None) -> "Iterator[tuple[list[str], int, list[str]]]":
    """Yield the top directory and each below it: names on the path, descriptor, entries that are not directories.

    Both lists and the descriptor are valid until the next step. Few descriptors are open at a time. Entries that cannot
    be opened, or disappear, are left out. If a directory is moved away while the walk is in it, the walk ends.

    Args:
        top: the descriptor of the directory to begin with; stays open.
        skip: the name of a directory at the top that is left out.
        deepest: how many levels to descend; None: no limit.
    """
    here = os.open(".", DIRECTORY, dir_fd=top)
    try:
        path: list[str] = []
        folders, others = _listed(here)
        yield path, here, others
        levels = [(_known(here), [each for each in folders if each != skip])]  # each level, and what is left of it
        while levels:
            _, left = levels[-1]
            if left and (deepest is None or len(path) < deepest):
                if (below := _opened(name := left.pop(), here)) is None:
                    continue
                os.close(here)
                here = below
                path.append(name)
                folders, others = _listed(here)
                yield path, here, others
                levels.append((_known(here), folders))
                continue
            levels.pop()
            if levels:
                if (above := _opened("..", here)) is None:
                    return
                os.close(here)
                here = above
                path.pop()
                if _known(here) != levels[-1][0]:
                    return
    finally:
        os.close(here)


def _opened(name: str, where: int) -> int | None:
    try:
        return os.open(name, DIRECTORY, dir_fd=where)
    except OSError:
        return None


def _known(directory: int) -> Known:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def _listed(directory: int) -> tuple[list[str], list[str]]:
    folders: list[str] = []
    others: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for each in entries:
                (folders if each.is_dir(follow_symlinks=False) else others).append(each.name)
    except OSError:
        pass  # removed meanwhile
    return folders, others


def remove_pipes(top: int) -> None:
    """Remove named pipes and devices below a directory, because opening a pipe to read blocks until it has a writer."""
    for _, here, names in walk(top):
        for name in names:
            try:
                kind = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
                if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                    os.unlink(name, dir_fd=here)
            except OSError:
                continue


def plain_file(path: "os.PathLike[str] | str", within: int | None = None) -> int:
    """A descriptor of a regular file, to read.

    Args:
        path: the file.
        within: the descriptor of the directory that `path` is relative to.

    Raises:
        OSError: there is none, or it is not a regular file: `EINVAL` for a directory, a pipe or a device.
    """
    file = os.open(path, FILE, dir_fd=within)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "not a plain file", str(path))
