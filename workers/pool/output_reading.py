"""Reads what an attempt printed, while it is written or later, and compares it with its digest in history."""

import hashlib
import socket
from codecs import getincrementaldecoder
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from interlock.workers.pool.attempts import STREAMS, TaskAttempt
from interlock.workers.pool.output_files import Kept, path_of, pieces
from interlock.workers.settings import Settings


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """What is known of an output that was read.

    Attributes:
        verified: whether it is what history says; None: that cannot be known here, or not yet.
        note: what a reader must know: why there is no output, or not all of it; None: nothing.
    """

    verified: bool | None
    note: str | None = None


class OutputReading:
    """Reads the output of one attempt, from its beginning, as often as somebody wants more."""

    def __init__(self, settings: Settings, *, run_id: UUID, task_id: UUID, kind: str, attempt: TaskAttempt) -> None:
        """`attempt` may still be running; give its end to `verdict`."""
        self.attempt = attempt
        self._kind = kind
        self._keep_days = settings.keep_output_days
        self._path = path_of(settings, run_id, task_id, attempt.claim)
        self._read = 0
        self._hash = hashlib.sha256()
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def part(self, after: int, limit: int) -> tuple[str, int]:
        """A part of what was printed, independent of what was read before.

        Args:
            after: where it begins, in bytes.
            limit: the most to read, in bytes, at least 4: the longest character.

        Returns:
            The part, and where the next one begins. It cuts no character in two that is written whole.
        """
        read = bytearray()
        with suppress(FileNotFoundError):
            for piece in pieces(self._path, after):
                read += piece[: limit - len(read)]
                if len(read) == limit:
                    break
        decoder = getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(bytes(read), final=len(read) < limit and self.attempt.ended_at is not None)
        return text, after + len(read) - len(decoder.getstate()[0])

    def more(self) -> str:
        """What was printed since the last call, as far as it is here; empty if nothing was, or the file is not here."""
        texts = []
        try:
            for piece in pieces(self._path, self._read):
                self._read += len(piece)
                self._hash.update(piece)
                texts.append(self._decoder.decode(piece))
        except FileNotFoundError:
            pass
        return "".join(texts)

    def rest(self, attempt: TaskAttempt) -> str:
        """The rest of an attempt that has ended; for an agent, what it reported."""
        self.attempt = attempt
        rest = self.more() + self._decoder.decode(b"", final=True)
        if self._kind != "agent":
            return rest
        reported = [attempt.reported[name] for name in STREAMS if name in attempt.reported]
        return rest + "".join(each if each.endswith("\n") else f"{each}\n" for each in reported)

    def verdict(self) -> OutputVerdict:
        """What is known of what was read.

        Raises:
            OSError: the file is there and cannot be read.
        """
        attempt = self.attempt
        if self._kind == "agent" and attempt.logged:
            return self._compared(attempt.logged)
        if self._kind in ("agent", "patch"):
            return OutputVerdict(None, self._told_by_others())
        if attempt.ended_at is None:
            return OutputVerdict(None, self._unless_read("it is running and has printed nothing yet"))
        if attempt.kept is None:
            why = f"history has no digest: {attempt.trigger} ended the attempt before its worker reported"
            return OutputVerdict(None, why if self._read else self._nothing_here(why))
        return self._compared(attempt.kept)

    def _compared(self, kept: Kept) -> OutputVerdict:
        if kept.fault:
            return OutputVerdict(None, f"not all of it could be kept: {kept.fault}")
        if kept.bytes and (gone := self._unless_read(self._gone())):
            return OutputVerdict(None, gone)
        if (self._read, self._hash.hexdigest()) != (kept.bytes, kept.sha256):
            says = f"{kept.bytes:,} bytes with SHA-256 {kept.sha256}"
            found = f"{self._read:,} bytes with SHA-256 {self._hash.hexdigest()}"
            return OutputVerdict(False, f"the file was changed: history says {says}, the file has {found}")
        return OutputVerdict(True, None if kept.bytes else "it printed nothing")

    def _told_by_others(self) -> str | None:
        if self._kind == "patch":
            return "a patch runs nothing that could print"
        if self.attempt.ended_at is None:
            return f"agent {self.attempt.worker} is at work; its output is known once it has reported"
        return "as its agent reported it" if self.attempt.reported else "its agent reported no output"

    def _unless_read(self, otherwise: str) -> str | None:
        return None if self._read else self._nothing_here(otherwise)

    def _nothing_here(self, otherwise: str) -> str:
        """Why the file is not here."""
        if self.attempt.host and self.attempt.host != socket.gethostname():
            return (
                f"its output is on the machine {self.attempt.host}, where {self.attempt.worker} runs: "
                "use this command there"
            )
        return otherwise

    def _gone(self) -> str:
        return (
            f"its file is not here: {self._path}. It was deleted after {self._keep_days:g} days "
            "(INTERLOCK_KEEP_OUTPUT_DAYS) or by hand, or INTERLOCK_HOME or INTERLOCK_TASK_OUTPUT is another one here"
        )
