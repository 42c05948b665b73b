"""Measures the resources of a command's whole process tree, because the kernel limits only each process by itself."""

import os
import stat
import time

from interlock.workers.execution.shim_protocol import ShimOrder
from interlock.workers.system import process_tree
from interlock.workers.system.safe_walk import walk

LOOK_SECONDS = 0.25
CLOCKS_APART_SECONDS = 1.0  # a file system's clock may be behind ours
_BLOCK = 512  # stat(2): st_blocks


class UsageWatch:
    """Checks a command against the limits on all its processes together. Linux only."""

    def __init__(self, order: ShimOrder) -> None:
        self.reached_processes = False
        self._order = order
        places = order.writes if order.disk_bytes is not None else []
        self._places = [place for place in map(_opened, places) if place is not None]
        self._began = time.time() - CLOCKS_APART_SECONDS
        self._free = list(map(_free_bytes, self._places))
        self._disk_bytes = min([order.disk_bytes or 0, *(free // 2 for free in self._free)])  # never all free space
        self._memory_device = _memory_device()

    def excess(self) -> str | None:
        """A text for operators on the limit that was exceeded; None while none is."""
        if not process_tree.LINUX:
            return None
        pids = [pid for pid, _, alive in process_tree.descendants() if alive]
        if (limit := self._order.processes) is not None and sum(map(process_tree.threads, pids)) >= limit:
            self.reached_processes = True
        return self._memory(pids) or self._disk(pids)

    def _memory(self, pids: list[int]) -> str | None:
        limit = self._order.tree_bytes
        if limit is None or sum(map(_resident, pids)) + (unnamed := self._in_descriptors(pids)) <= limit:
            return None
        # Exact, and slow: shared pages count once. Memory behind descriptors may be mapped, too, or not.
        own, shared = (sum(each) for each in zip(*map(_proportional, pids), strict=True)) if pids else (0, 0)
        held = own + max(shared, unnamed)
        return f"its processes held {_size(held)} of memory together, of {_size(limit)}" if held > limit else None

    def _disk(self, pids: list[int]) -> str | None:
        if all(
            free - _free_bytes(place) <= self._disk_bytes for place, free in zip(self._places, self._free, strict=True)
        ):
            return None
        unlinked = {key: size for key, size in _unlinked(pids).items() if key[0] != self._memory_device}
        written = sum(_written_below(place, self._began) for place in self._places) + sum(unlinked.values())
        if written <= self._disk_bytes:
            return None
        return f"it wrote {_size(written)} to disk, of {_size(self._disk_bytes)}"

    def _in_descriptors(self, pids: list[int]) -> int:
        """Bytes of memory in files without a name (memfd_create(2)), mapped or not."""
        return sum(size for key, size in _unlinked(pids).items() if key[0] == self._memory_device)


def _memory_device() -> int:
    if not process_tree.LINUX:
        return -1
    with open(os.memfd_create("interlock", 0), "rb") as made:
        return os.fstat(made.fileno()).st_dev


def _free_bytes(place: int) -> int:
    try:
        found = os.statvfs(place)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _opened(directory: bytes) -> int | None:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # the command will be refused there, with the reason
        return None


def _written_below(directory: int, since: float) -> int:
    """Bytes of the files below a directory that changed after `since`. Symbolic links are not followed."""
    total = 0
    for _, opened, names in walk(directory):
        for name in names:
            try:
                found = os.stat(name, dir_fd=opened, follow_symlinks=False)
            except OSError:
                continue
            total += found.st_blocks * _BLOCK if found.st_ctime >= since else 0
    return total


def _unlinked(pids: list[int]) -> dict[tuple[int, int], int]:
    """Bytes of the open files of processes that have no name any more, by device and inode."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it has ended
            continue
        for name in names:
            try:
                each = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:  # it has been closed
                continue
            if stat.S_ISREG(each.st_mode) and each.st_nlink == 0:
                found[each.st_dev, each.st_ino] = each.st_blocks * _BLOCK
    return found


def _resident(pid: int) -> int:
    """Memory of a process that belongs to no file, as in proc(5); shared memory counts in full."""
    return _lines(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def _proportional(pid: int) -> tuple[int, int]:
    """A process's share of memory that belongs to no file: private, and shared."""
    rollup = f"/proc/{pid}/smaps_rollup"
    own, shared = _lines(rollup, (b"Pss_Anon:",)), _lines(rollup, (b"Pss_Shmem:",))
    return (own, shared) if own or shared else (_resident(pid), 0)


def _lines(file: str, names: tuple[bytes, ...]) -> int:
    try:
        with open(file, "rb") as opened:
            return sum(int(line.split()[1]) << 10 for line in opened if line.startswith(names))
    except OSError:  # it has ended
        return 0


def _size(number: int) -> str:
    return f"{number / (1 << 20):,.0f} MiB"
