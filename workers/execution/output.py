"""Keeps a command's output within a limit: its beginning, its end, and the number of bytes between them.

Known values are masked with `***` before anything is cut off, so that no part of one is left at a cut, however the
output is split into chunks. Each value is found as it is, and as programs commonly write it: in base64 (at each of its
three alignments, both alphabets), percent-encoded, in hexadecimal, inside a JSON string, and, for values of several
lines, each line alone. A program that writes a value in another form, such as backwards, reveals it.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import quote, quote_plus

MASK = b"***"
LEAST_CHARACTERS = 4  # of a secret: masking a shorter one would mask half of all output
LEAST_PIECE = 8  # of a line of it, or of the part that only its own bytes decide within longer base64
RUNS = re.compile(rb"\x01+|\x00+")


class Masking:
    """Takes output in pieces and returns it masked. It holds back one byte less than the longest value."""

    def __init__(self, values: tuple[str, ...] = ()) -> None:
        self._forms = sorted({form for value in values for form in forms(value.encode(errors="surrogateescape"))})
        self._late = max(map(len, self._forms), default=1) - 1
        self._held = bytearray()
        self._marks = bytearray()  # for each byte held, whether it belongs to a value
        self._within = False

    def take(self, piece: bytes) -> bytes:
        """Take the next bytes; return what can be shown by now."""
        if not self._forms:
            return piece
        old = len(self._held)
        self._held += piece
        self._marks += bytes(len(piece))
        for form in self._forms:
            self._mark(form, max(0, old - len(form) + 1))
        return self._give(max(0, len(self._held) - self._late))

    def rest(self) -> bytes:
        """Return the bytes held back, at the end of the output."""
        return self._give(len(self._held))

    def _mark(self, form: bytes, start: int) -> None:
        while (start := self._held.find(form, start)) >= 0:  # overlapping occurrences, too
            self._marks[start : start + len(form)] = b"\x01" * len(form)
            start += 1

    def _give(self, count: int) -> bytes:
        output = bytearray()
        for run in RUNS.finditer(self._marks, 0, count):
            marked = self._marks[run.start()] == 1
            if not marked:
                output += self._held[run.start() : run.end()]
            elif not self._within:
                output += MASK
            self._within = marked
        del self._held[:count], self._marks[:count]
        return bytes(output)


def forms(value: bytes) -> Iterator[bytes]:
    """The forms in which programs write a value."""
    yield value
    yield from (line for line in value.splitlines() if len(line) >= LEAST_PIECE)
    yield from (value.hex().encode(), value.hex().upper().encode())
    for written in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield from (written.encode(), re.sub("%..", lambda escape: escape[0].lower(), written).encode())
    with suppress(UnicodeDecodeError):
        text = value.decode()
        yield from (json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield from (encode(value), encode(value).rstrip(b"="))
        for before in range(3):  # inside longer base64: the characters that only the value's own bytes decide
            whole = encode(bytes(before) + value)
            own = whole[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
            if len(own) >= LEAST_PIECE:
                yield own


class Capture:
    """Takes any number of bytes and keeps a fixed number of them; `into` gets all of them, masked."""

    def __init__(
        self, limit_bytes: int, secrets: tuple[str, ...] = (), into: Callable[[bytes], object] | None = None
    ) -> None:
        self._masking = Masking(secrets)
        self._into = into
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail_limit = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def take(self, chunk: bytes) -> None:
        """Take the next bytes, and keep what fits."""
        self._keep(self._masking.take(chunk))

    def _keep(self, chunk: bytes) -> None:
        if self._into and chunk:
            self._into(chunk)
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
        """The bytes kept, as text; a line in the gap gives its size."""
        if not (left_out := self.left_out_bytes):
            return readable(self._head + self._tail)
        return f"{readable(self._head)}\n[{left_out} bytes left out]\n{readable(self._tail)}"


def readable(raw: bytes | bytearray) -> str:
    """Text that PostgreSQL can store: invalid UTF-8 and NUL become U+FFFD."""
    return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")
