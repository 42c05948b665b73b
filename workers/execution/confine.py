"""Runs in the command's process before the program is executed: changes the user and prepares the sandbox."""

import ctypes
import os

from interlock.workers.execution.shim_protocol import ShimOrder
from interlock.workers.system import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from interlock.workers.sandbox.sandbox import Confinement, Word

CLONE_NEWNS = 0x00020000  # unshare(2)
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18  # mount(2)
STAGE = b"/tmp"


def drop(account: tuple[int, int]) -> None:
    """Become another user for good, without groups, and unable to gain rights from executed programs."""
    uid, gid = account
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    process_tree.control(process_tree.PR_SET_NO_NEW_PRIVS, 1)


def as_account(account: "tuple[int, int] | None", do: "Callable[[], object]") -> None:
    """Run `do` in a child as the given account: root in a container often may not set another user's limits.

    Raises `PermissionError` if it failed.
    """
    if account is None:
        do()
        return
    if (pid := os.fork()) == 0:
        try:
            drop(account)
            do()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError(f"user {account[0]} cannot set limits on its own process {pid}")


def sandboxed(order: ShimOrder, status: int, release: int) -> tuple[bytes, list[bytes]]:
    """The program and its arguments that run the command in its sandbox; the last step under our own user.

    As root, everything that the sandbox shows is first mounted at a place that the command's user can reach. That user
    runs bubblewrap, which mounts these sources, and the paths to them may be closed to that user.

    Args:
        order: the command.
        status: where bubblewrap reports the command's start and end.
        release: bubblewrap waits for this before it starts the command.
    """
    assert order.sandbox
    directory, below, words = mounted_on_stage(order.sandbox) if os.geteuid() == 0 and order.account else order.sandbox
    program = os.path.join(directory, below)
    environment = [each for name, value in order.env.items() for each in (b"--setenv", name, value)]
    arguments = b"".join(_plain(each) + b"\0" for each in [*words, b"--clearenv", *environment])
    pipes = [b"--json-status-fd", b"%d" % status, b"--block-fd", b"%d" % release]
    for each in (status, release):
        os.set_inheritable(each, True)
    return program, [b"bwrap", *pipes, b"--args", b"%d" % _file(arguments), b"--", *order.argv]


def _plain(word: "Word") -> bytes:
    if isinstance(word, bytes):
        if b"\0" in word:
            raise ValueError(f"a NUL in {word[:60]!r}")  # would begin another argument of bubblewrap
        return word
    return word[0] if len(word) == 1 else b"%d" % _file(word[1])


def _file(content: bytes) -> int:
    """An in-memory file with that content, positioned at its start, that stays open across exec."""
    made = os.memfd_create("interlock", 0)
    os.write(made, content)
    os.lseek(made, 0, os.SEEK_SET)
    return made


def mounted_on_stage(sandbox: "Confinement") -> "Confinement":
    """The same sandbox, its sources mounted below `STAGE` in a mount namespace of this process.

    Raises `OSError` if root may not mount, as in most containers.
    """
    directory, below, words = sandbox
    _checked(process_tree.LIBC.unshare(CLONE_NEWNS))
    _mount(b"none", b"/", MS_REC | MS_PRIVATE)
    sources = [directory, *(word[0] for word in words if isinstance(word, tuple) and len(word) == 1)]
    opened = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources]
    _mount(b"tmpfs", STAGE, MS_NOSUID | MS_NODEV, b"tmpfs", b"mode=0755,size=1m")
    staged = [_bound(number, source) for number, source in enumerate(opened)]
    rest = iter(staged[1:])
    held = [(next(rest),) if isinstance(word, tuple) and len(word) == 1 else word for word in words]
    return staged[0], below, held


def _bound(number: int, source: int) -> bytes:
    target = STAGE + b"/%d" % number
    if os.path.isdir(b"/proc/self/fd/%d" % source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
    _mount(b"/proc/self/fd/%d" % source, target, MS_BIND)
    return target


def _mount(source: bytes, target: bytes, flags: int, kind: bytes | None = None, data: bytes | None = None) -> None:
    _checked(process_tree.LIBC.mount(source, target, kind, ctypes.c_ulong(flags), data))


def _checked(answer: int) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
