"""Prints what tasks printed, one attempt after another: as text, or as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interlock.cli.lib.output import console, errors, one_line, print_json, say, stream
from interlock.workers.pool.attempts import TaskAttempt
from interlock.workers.pool.output_reading import OutputReading, OutputVerdict
from interlock.workflows.output.counts import number_of

Row = Mapping[str, Any]


@dataclass(slots=True)
class LoggedTask:
    """A task whose output is shown.

    Attributes:
        row: of the run's tree.
        attempts: those of its row's version.
        due: the number of the attempt to show next, from 1 on.
        reading: of that attempt, once it has begun to be shown.
    """

    row: Row
    attempts: list[TaskAttempt]
    due: int
    reading: OutputReading | None = None

    @property
    def name(self) -> str:
        """Its name in the run."""
        return str(self.row["name"] or self.row["entity_id"])

    @property
    def attempt(self) -> TaskAttempt | None:
        """The attempt to show next; None: it has not begun."""
        return self.attempts[self.due - 1] if 1 <= self.due <= len(self.attempts) else None


class LogLines:
    """Prints outputs, one after another: as text, or as JSON."""

    def __init__(self, *, as_json: bool, follow: bool) -> None:
        self.many = self.changed = False
        self._as_json, self._follow = as_json, follow
        self._now: tuple[object, int] | None = None  # whose output was printed last
        self._in_line = False
        self._texts: list[str] = []
        self._answer: list[dict[str, Any]] = []

    def piece(self, task: LoggedTask, attempt: TaskAttempt, text: str) -> None:
        """A part of an attempt's output."""
        if self._as_json and self._follow and text:
            print_json(_who(task, attempt) | {"text": text}, lines=True)
        elif self._as_json:
            self._texts.append(text)
        elif text:
            self._begin(task, attempt)
            stream(text)
            self._in_line = not text.endswith("\n")

    def end(self, task: LoggedTask, attempt: TaskAttempt, verdict: OutputVerdict) -> None:
        """The end of what there is of an attempt."""
        self.changed |= verdict.verified is False
        if self._as_json:
            about = _who(task, attempt) | _told(task, attempt) | asdict(verdict)
            if self._follow:
                print_json(about, lines=True)
            else:
                self._answer.append(about | {"text": "".join(self._texts)})
            self._texts = []
            return
        self._begin(task, attempt)
        self._end_line()
        for value in attempt.result.values():
            say(("result: ", "bold"), one_line(value), to=errors)
        if verdict.note:
            say(("changed: " if verdict.verified is False else "", "bold red"), (verdict.note, "dim"), to=errors)

    def no_attempt(self, task: LoggedTask) -> None:
        """A task that has no such attempt."""
        number = task.due
        note = (
            f"it has {number_of(len(task.attempts), 'attempt')}"
            if number
            else f"it has not begun; it is {task.row['state']}"
        )
        if self._as_json:
            self._answer.append(
                {"task": task.name, "attempt": number or None, "verified": None, "note": note, "text": ""}
            )
        else:
            say((f"{task.name}: ", "bold"), (note, "dim"), to=errors)

    def finish(self) -> None:
        """Print the answer, if it is one JSON value."""
        if self._as_json and not self._follow:
            print_json(self._answer)

    def _begin(self, task: LoggedTask, attempt: TaskAttempt) -> None:
        if self._now == (task.row["id"], attempt.number):
            return
        self._now = task.row["id"], attempt.number
        self._end_line()
        on = f" on {attempt.host}" if attempt.host else ""
        how = "running" if attempt.ended_at is None else f"{attempt.trigger}"
        words = f", attempt {attempt.number}, {attempt.worker}{on}: {how}"
        say((task.name, "bold"), (words, "dim"), to=console if self.many else errors)

    def _end_line(self) -> None:
        if self._in_line:
            stream("\n")
            self._in_line = False


def _who(task: LoggedTask, attempt: TaskAttempt) -> dict[str, Any]:
    return {"task": task.name, "attempt": attempt.number}


def _told(task: LoggedTask, attempt: TaskAttempt) -> dict[str, Any]:
    names = ("worker", "host", "began_at", "ended_at", "trigger", "exit_code", "error")
    kept = attempt.kept
    return (
        {"state": task.row["state"]}
        | {name: getattr(attempt, name) for name in names}
        | {
            "result": attempt.result.get("result"),
            "bytes": kept.bytes if kept else None,
            "sha256": kept.sha256 if kept else None,
            "left_out_bytes": kept.left_out_bytes if kept else None,
        }
    )
