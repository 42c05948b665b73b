"""The problems of a plan, each with its position, and the error that lists them all."""

from collections.abc import Iterable
from dataclasses import dataclass

from interlock.workflows.errors import Refused
from interlock.workflows.output.escaping import shown

FieldPath = tuple[str | int, ...]
SHOWN = 100  # problems printed; a file that is not a plan can have one on every line
QUOTED_LENGTH = 80


@dataclass(frozen=True, slots=True)
class UnlocatedProblem:
    """A problem with its field, but without its line. `at_key`: the key itself is wrong, not its value."""

    path: FieldPath
    message: str
    hint: str = ""
    at_key: bool = False


@dataclass(frozen=True, slots=True, order=True)
class PlanProblem:
    """One problem. `line` and `column` count from 1, as in editors; `field` is a path, empty for the whole plan."""

    line: int
    column: int
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: " + (f"{self.field}: " if self.field else "")
        return where + self.message + (f"; {self.hint}" if self.hint else "")


class PlanInvalid(Refused):
    """The plan has errors; nothing was started. Correct every problem listed, then run it again."""

    def __init__(self, name: str, problems: Iterable[PlanProblem]) -> None:
        self.name = name
        self.problems = tuple(sorted(set(problems)))
        super().__init__(name, self.problems)  # both in `args`, so that it survives pickling

    def __str__(self) -> str:
        lines = [f"{self.name}:{problem}" for problem in self.problems[:SHOWN]]
        if left := len(self.problems) - SHOWN:
            lines += [f"and {left} more problems"] if left > 0 else []
        return "\n".join(lines)


def quoted(text: object) -> str:
    """A value from the file in double quotes, shortened, with control characters escaped."""
    string = str(text)
    return '"' + shown(string if len(string) <= QUOTED_LENGTH else string[: QUOTED_LENGTH - 1] + "…") + '"'


def dotted(path: FieldPath) -> str:
    """A path as text: `("tasks", 0, "id")` is `tasks[0].id`."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        elif step.replace("-", "_").isidentifier():
            written += f".{step}" if written else step
        else:
            written += f"[{quoted(step)}]"
    return written
