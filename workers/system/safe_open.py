"""Opens files where others may write: follows no symbolic link, and blocks on no named pipe.

Few imports, as in `workers.system.safe_walk`: each command's shim imports both.
"""

import errno
import os
import stat

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
