"""Keeps a command's output within a limit: its beginning, its end, and the number of bytes between them.

Known secrets are masked before anything is cut off, so that no part of one is left at a cut.
"""

from interlock.workers.execution.masking import Masking


class Capture:
    """Takes any number of bytes and keeps a fixed number of them."""

    def __init__(self, limit_bytes: int, secrets: tuple[str, ...] = ()) -> None:
        self._masking = Masking(secrets)
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def take(self, chunk: bytes) -> None:
        """Take the next bytes, and keep what fits."""
        self._keep(self._masking.take(chunk))

    def _keep(self, chunk: bytes) -> None:
        self._seen += len(chunk)
        room = self._head_limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._tail_limit:  # not for each chunk: moving bytes costs more than holding them
            self._forget()

    def _forget(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    @property
    def left_out_bytes(self) -> int:
        """How many bytes were written but not kept, once all is written."""
        self._keep(self._masking.rest())
        self._forget()
        return self._seen - len(self._head) - len(self._tail)

    def text(self) -> str:
        """The bytes kept, as text; a line in the gap tells its size."""
        if not (left_out := self.left_out_bytes):
            return readable(self._head + self._tail)
        return f"{readable(self._head)}\n[{left_out} bytes left out]\n{readable(self._tail)}"


def readable(raw: bytes | bytearray) -> str:
    """Text that PostgreSQL can store: invalid UTF-8 and NUL become U+FFFD."""
    return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")
