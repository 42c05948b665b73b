"""What a benchmark found: a figure for each round, the ratio to what it is measured against, and its bar."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Bar:
    """What the figure has to reach (`≥`) or stay within (`≤`, `<`)."""

    sign: Literal["≥", "≤", "<"]
    value: float

    def met(self, figure: float) -> bool:
        """Whether `figure` clears it."""
        return {"≥": figure >= self.value, "≤": figure <= self.value, "<": figure < self.value}[self.sign]

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        name: the benchmark and, after a dot, which of its figures.
        compared: what is set against what.
        unit: of `ours` and `theirs`.
        ours, theirs: one figure a round; `theirs` is empty where there is nothing to compare with.
        bar: for the median ratio, or for the median of `ours` where there is no ratio; None: for information.
        note: what a reader must know to judge the figure.
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
        """Ours by theirs, round by round."""
        return tuple(one / other for one, other in zip(self.ours, self.theirs, strict=True)) if self.theirs else ()

    @property
    def judged(self) -> float | None:
        """The figure the bar is for; None where nothing was measured."""
        figures = self.ratios or self.ours
        return median(figures) if figures else None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none or nothing was measured."""
        return None if self.bar is None or self.judged is None else self.bar.met(self.judged)

    def as_json(self) -> dict[str, Any]:
        """Every figure, for the results file."""
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
    """Measure the sides in turn, A B A B …, so that what the machine does meanwhile hits them alike.

    Returns:
        for each side, its figure of each round.
    """
    figures = [tuple(side() for side in sides) for _ in rounds]
    return [tuple(column) for column in zip(*figures, strict=True)]
