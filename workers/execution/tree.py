"""A command's whole tree of processes, seen from its warden.

On Linux the warden adopts what is orphaned below it (`PR_SET_CHILD_SUBREAPER`), so whoever leaves their parent, their
group and their session are still its descendants. Elsewhere there is only the command's own process group: a daemon
that made itself a session gets away.
"""

import ctypes
import os
import signal
import sys

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_LIBC = ctypes.CDLL(None) if LINUX else None  # loaded here: after a fork is too late


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when our parent is."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def signal_all(leader: int, *numbers: int) -> int:
    """Send signals to all of the tree; `leader` is the command. Returns how many process groups that were.

    To groups, not processes: the kernel does a group at once, and a fork cannot slip between. A group never reaches
    beyond the tree, because the command began as a session of its own.
    """
    groups = _groups() if LINUX else {leader}
    return sum(_signalled(group, numbers) for group in groups)


def _signalled(group: int, numbers: tuple[int, ...]) -> bool:
    try:
        for number in numbers:
            os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def outlives(leader: int) -> bool:
    """Whether something runs that we are not the parent of: never on Linux, where we become it."""
    return not LINUX and _signalled(leader, (0,))


def _groups() -> set[int]:
    """The process groups of all our descendants, zombies left out."""
    children: dict[int, list[tuple[int, int, bool]]] = {}
    for pid, parent, group, alive in _processes():
        children.setdefault(parent, []).append((pid, group, alive))
    groups, pending = set[int](), [os.getpid()]
    while pending:
        for pid, group, alive in children.get(pending.pop(), ()):
            pending.append(pid)
            groups |= {group} if alive else set()
    return groups


def _processes() -> list[tuple[int, int, int, bool]]:
    """Pid, parent, group and being alive of every process of this machine, from proc(5)."""
    return [found for entry in os.listdir("/proc") if entry.isdigit() and (found := _process(entry))]


def _process(pid: str) -> tuple[int, int, int, bool] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent, group = stat.read().rpartition(b")")[2].split()[:3]  # a name may hold blanks and brackets
    except OSError:  # it ended meanwhile
        return None
    return int(pid), int(parent), int(group), state not in {b"Z", b"X"}
