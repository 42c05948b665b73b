"""What is wrong with a plan: each problem with its place, and the error that holds them all."""

from collections.abc import Iterable
from dataclasses import dataclass

from workflows.errors import Refused

FieldPath = tuple[str | int, ...]
SHOWN = 100  # problems printed; a file that is no plan at all can have one on every line
QUOTED_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that knows its field but not yet its line. `at_key`: the key itself is wrong, not its value."""

    path: FieldPath
    says: str
    hint: str = ""
    at_key: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to mend. `line` and `column` count from 1, as editors do; `field` is a path, empty for the whole."""

    line: int
    column: int
    field: str
    says: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: " + (f"{self.field}: " if self.field else "")
        return where + self.says + (f"; {self.hint}" if self.hint else "")


class PlanInvalid(Refused):
    """The plan cannot be run as it is written; nothing was started. Mend every place it names, then run it again."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.name = name
        self.problems = tuple(sorted(set(problems)))
        super().__init__(name, self.problems)  # both in `args`, so that it survives pickling

    def __str__(self) -> str:
        lines = [f"{self.name}:{problem}" for problem in self.problems[:SHOWN]]
        if left := len(self.problems) - SHOWN:
            lines += [f"and {left} more problems"] if left > 0 else []
        return "\n".join(lines)


def quoted(text: object) -> str:
    """A value from the file in double quotes: shortened, and with nothing in it that a terminal would obey."""
    shown = str(text)
    shown = shown if len(shown) <= QUOTED_LENGTH else shown[: QUOTED_LENGTH - 1] + "…"
    return '"' + "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in shown) + '"'


def dotted(path: FieldPath) -> str:
    """`("tasks", 0, "id")` as a reader writes it: `tasks[0].id`."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        elif step.replace("-", "_").isidentifier():
            written += f".{step}" if written else step
        else:
            written += f"[{quoted(step)}]"
    return written
