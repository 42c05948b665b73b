"""A command's whole process tree, seen from its shim.

On Linux the shim adopts orphans below it (`PR_SET_CHILD_SUBREAPER`), so processes that leave their parent, their group
and their session are still its descendants. Elsewhere only the command's own process group is known: a daemon with a
session of its own escapes.
"""

import ctypes
import os
import sys

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38  # prctl(2)
PR_SET_NAME = 15
NAME_BYTES = 15
LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: after a fork is too late


def set_dumpable(yes: bool) -> None:
    """Whether processes of the same user may read this one's memory and environment (prctl(2))."""
    control(PR_SET_DUMPABLE, int(yes))


def name_process(name: str) -> None:
    """Give this process a name of its own, which `ps -o comm` shows (prctl(2))."""
    if LINUX:
        LIBC.prctl(PR_SET_NAME, name.encode()[:NAME_BYTES], 0, 0, 0)


def control(what: int, value: int) -> None:
    """Call prctl(2), if there is one."""
    if LINUX:
        LIBC.prctl(what, value, 0, 0, 0)


def signal_all(leader: int, *numbers: int, spare_leader: bool = False) -> int:
    """Send signals to the whole tree; `leader` is the command. Returns how many process groups that were.

    Signals go to groups, not processes: the kernel signals a group at once, so no fork can escape in between. A group
    never reaches beyond the tree, because the command began as a session of its own. A sandbox's leader is bubblewrap,
    whose end also ends the command at once: it is spared during a grace period.
    """
    groups = {group for _, group, alive in descendants() if alive} if LINUX else {leader}
    groups -= {leader} if spare_leader else set()
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
    """Whether a process still runs that is not our child: never on Linux, where orphans become our children."""
    return not LINUX and _signalled(leader, (0,))


def descendants() -> list[tuple[int, int, bool]]:
    """Pid, group and whether alive, of every process below this one."""
    children: dict[int, list[tuple[int, int, bool]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := _process(entry)):
            pid, parent, group, alive = process
            children.setdefault(parent, []).append((pid, group, alive))
    found, pending = list[tuple[int, int, bool]](), [os.getpid()]
    while pending:
        below = children.get(pending.pop(), ())
        found += below
        pending += [pid for pid, _, _ in below]
    return found


def _process(pid: str) -> tuple[int, int, int, bool] | None:
    """Pid, parent, group and whether alive, from proc(5); None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent, group = stat.read().rpartition(b")")[2].split()[:3]  # a name may contain blanks and brackets
    except OSError:  # it has ended
        return None
    return int(pid), int(parent), int(group), state not in {b"Z", b"X"}


def threads_of(owner: int) -> int:
    """How many threads a user has."""
    return sum(threads(int(entry), owner) for entry in os.listdir("/proc") if entry.isdigit()) if LINUX else 0


def threads(pid: int, owner: int | None = None) -> int:
    """How many threads a process has; 0 if it has ended, or is not the owner's."""
    try:
        with open(f"/proc/{pid}/status", "rb") as opened:
            fields = dict(line.split(b":", 1) for line in opened if line.startswith((b"Uid:", b"Threads:")))
    except OSError:
        return 0
    return int(fields[b"Threads"]) if owner is None or int(fields[b"Uid"].split()[0]) == owner else 0
