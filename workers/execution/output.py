"""What a command writes, kept within a bound: its beginning and its end, and how much lay between."""


class Capture:
    """Takes bytes without end and holds a fixed number of them."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def take(self, chunk: bytes) -> None:
        """Keep what fits of the next bytes."""
        self._seen += len(chunk)
        room = self._head_limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._tail_limit:  # not at each chunk: moving bytes costs more than holding them
            self._forget()

    def _forget(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    @property
    def left_out_bytes(self) -> int:
        """How much was written and is not kept."""
        self._forget()
        return self._seen - len(self._head) - len(self._tail)

    def text(self) -> str:
        """What was kept, with a line in the gap that tells its size."""
        if not (left_out := self.left_out_bytes):
            return readable(self._head + self._tail)
        return f"{readable(self._head)}\n[{left_out} bytes left out]\n{readable(self._tail)}"


def readable(raw: bytes | bytearray) -> str:
    """Text that PostgreSQL takes: UTF-8, what is not becomes U+FFFD, and so does NUL."""
    return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")
