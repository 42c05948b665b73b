"""The result of a benchmark: a figure for each round, the ratio to the other side, and its bar."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Bar:
    """The limit that a figure must reach (`≥`) or not exceed (`≤`, `<`)."""

    sign: Literal["≥", "≤", "<"]
    value: float

    def met(self, figure: float) -> bool:
        """Whether `figure` is within the limit."""
        return {"≥": figure >= self.value, "≤": figure <= self.value, "<": figure < self.value}[self.sign]

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        name: the benchmark and, after a dot, the name of the figure.
        compared: the two things compared.
        unit: the unit of `ours` and `theirs`.
        ours, theirs: one figure per round; `theirs` is empty if there is no comparison.
        bar: the limit of the median ratio, or of the median of `ours` if there is no ratio; None: no limit.
        note: what a reader needs to know to judge the figure.
    """

    name: str
    compared: str
    unit: str
    ours: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    bar: Bar | None = None
    note: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        """`ours` divided by `theirs`, for each round."""
        return tuple(one / other for one, other in zip(self.ours, self.theirs, strict=True)) if self.theirs else ()

    @property
    def judged(self) -> float | None:
        """The figure that the bar applies to; None if nothing was measured."""
        figures = self.ratios or self.ours
        return median(figures) if figures else None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if there is none or nothing was measured."""
        return None if self.bar is None or self.judged is None else self.bar.met(self.judged)

    def as_json(self) -> dict[str, Any]:
        """All figures, for the results file."""
        return {
            "name": self.name,
            "compared": self.compared,
            "unit": self.unit,
            "ours": self.ours,
            "theirs": self.theirs,
            "ratios": self.ratios,
            "median": self.judged,
            "bar": str(self.bar) if self.bar else None,
            "met": self.met,
            "note": self.note,
        }


Side = Callable[[], float]


def interleaved(rounds: Iterable[object], *sides: Side) -> list[tuple[float, ...]]:
    """Measure the sides in turn, A B A B …, so that other load on the machine affects them equally.

    Returns:
        For each side, its figures of all rounds.
    """
    figures = [tuple(side() for side in sides) for _ in rounds]
    return [tuple(column) for column in zip(*figures, strict=True)]
