"""What a warden is told, and how it and who started it pass values. Few imports: it starts anew for each command."""

import io
import marshal

TYPE_CHECKING = False  # importing `typing` would cost a tenth of the warden's start
if TYPE_CHECKING:
    from typing import Any


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
    ) -> None:
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.asking = asking  # the process for which this is done; its end ends the command
        self.timeout_seconds = timeout_seconds
        self.grace_seconds = grace_seconds
        self.memory_bytes = memory_bytes
        self.cpu_seconds = cpu_seconds
        self.open_files = open_files
        self.nice = nice


def packed(value: "Any") -> bytes:
    """Plain values as bytes, for a pipe whose other end is this same interpreter."""
    return marshal.dumps(value)


def unpacked(said: io.BytesIO) -> "Any":
    """The next value. Raises `EOFError` where there is none, or only a part of one."""
    return marshal.load(said)  # noqa: S302 - only our own processes ever hold the other end
