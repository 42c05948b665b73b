"""The order that a shim gets, and the format of the values it exchanges. Few imports, for a fast start."""

import io
import marshal

TYPE_CHECKING = False  # importing `typing` would take a tenth of the shim's start-up time
if TYPE_CHECKING:
    from typing import Any

    from interlock.workers.sandbox.sandbox import Confinement


class Order:
    """One command, resolved: bytes as the kernel takes them."""

    def __init__(
        self,
        *,
        argv: list[bytes],
        cwd: bytes,
        env: dict[bytes, bytes],
        asking: int,
        timeout_seconds: float | None,
        grace_seconds: float,
        memory_bytes: int | None,
        cpu_seconds: int | None,
        open_files: int | None,
        nice: int,
        file_bytes: int | None,
        processes: int | None,
        tree_bytes: int | None,
        disk_bytes: int | None,
        writes: list[bytes],
        mark: bytes,
        account: tuple[int, int] | None,
        sandbox: "Confinement | None",
    ) -> None:
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.asking = asking  # the process that asked; its end ends the command
        self.timeout_seconds = timeout_seconds
        self.grace_seconds = grace_seconds
        self.memory_bytes = memory_bytes
        self.cpu_seconds = cpu_seconds
        self.open_files = open_files
        self.nice = nice
        self.file_bytes = file_bytes
        self.processes = processes
        self.tree_bytes = tree_bytes
        self.disk_bytes = disk_bytes
        self.writes = writes  # directories
        self.mark = mark  # the name of the variable that marks the command's processes
        self.account = account  # user and group id to drop to; None: the shim's own
        self.sandbox = sandbox


def packed(value: "Any") -> bytes:
    """Plain values as bytes, for a pipe whose other end is this same interpreter."""
    return marshal.dumps(value)


def unpacked(stream: io.BytesIO) -> "Any":
    """The next value. Raises `EOFError` if there is none, or only a part of one."""
    return marshal.load(stream)  # noqa: S302 - only our own processes ever hold the other end
