"""The order that a shim gets, and the format of the values it exchanges. Few imports, for a fast start."""

import io
import marshal
from types import SimpleNamespace

TYPE_CHECKING = False  # importing `typing` would take a tenth of the shim's start-up time
if TYPE_CHECKING:
    from typing import Any

    from interlock.workers.sandbox.sandbox import Confinement


class ShimOrder(SimpleNamespace):
    """One command, resolved: bytes as the kernel takes them."""

    argv: list[bytes]
    cwd: bytes
    env: dict[bytes, bytes]
    asking: int  # the process that asked; its end ends the command
    timeout_seconds: float | None
    grace_seconds: float
    memory_bytes: int | None
    cpu_seconds: int | None
    open_files: int | None
    nice: int
    file_bytes: int | None
    processes: int | None
    tree_bytes: int | None
    disk_bytes: int | None
    writes: list[bytes]  # directories
    mark: bytes  # the name of the variable that marks the command's processes
    account: tuple[int, int] | None  # user and group id to drop to; None: the shim's own
    sandbox: "Confinement | None"


def packed(value: "Any") -> bytes:
    """Plain values as bytes, for a pipe whose other end is this same interpreter."""
    return marshal.dumps(value)


def unpacked(stream: io.BytesIO) -> "Any":
    """The next value. Raises `EOFError` if there is none, or only a part of one."""
    return marshal.load(stream)  # noqa: S302 - only our own processes ever hold the other end
