"""Rounds with a progress bar, which iterating over them advances."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.progress import Progress, TaskID


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of one benchmark."""

    number: int
    progress: Progress
    task: TaskID

    def __iter__(self) -> Iterator[int]:
        for done in range(self.number):
            self.say(f"round {done + 1} of {self.number}", done)
            yield done
        self.say("", self.number)

    def say(self, what: str, done: int = 0) -> None:
        """Show what is being done. Drawn here, without a thread, which would disturb the measurement."""
        self.progress.update(self.task, completed=done, total=self.number, doing=what)
        self.progress.refresh()
