"""Compares the answers of a form with those of `decide`."""

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field, replace
from functools import cache

from interlock.workflows.catalogue import catalogue
from tests.conformance.sequences import Answer, Sequence, sequence

Play = Callable[[Listed[Sequence]], Iterable[tuple[Answer, ...]]]
SHOWN = 5
CHUNK = 1000  # sequences that are played at once


@dataclass(slots=True)
class Comparison:
    """What came of it: `kinds` counts the steps by their answer, `differing` shows the first that differ."""

    sequences: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    moves: set[tuple[str, str, str, str]] = field(default_factory=set)
    differences: int = 0
    differing: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How many steps were played."""
        return self.kinds.total()


@cache  # several forms play the same
def drawn(first: int, count: int) -> tuple[Sequence, ...]:
    """So many random sequences over every shipped definition, those of a definition together.

    Args:
        first: the seed of the first one; the next one's is the next number.
        count: how many.
    """
    known = list(catalogue())
    chosen = [sequence(known[seed % len(known)], seed) for seed in range(first, first + count)]
    return tuple(sorted(chosen, key=lambda each: (each.definition.type, each.definition.version)))


def compare(play: Play, count: int, seed: int, seen: Callable[[Answer], Answer] = lambda answer: answer) -> Comparison:
    """Play random sequences in a form, and compare each answer with that of `decide`.

    Args:
        play: the form.
        count: how many sequences.
        seed: of the first; the next one's is the next number.
        seen: what of an answer the form says; default: all.
    """
    found = Comparison()
    for first in range(seed, seed + count, CHUNK):
        played = drawn(first, min(CHUNK, seed + count - first))
        for one, answers in zip(played, play(played), strict=True):
            expected = tuple(map(seen, one.answers))
            _compare(found, replace(one, answers=expected), answers)
    return found


def _compare(found: Comparison, one: Sequence, answers: tuple[Answer, ...]) -> None:
    found.sequences += 1
    state = one.definition.initial
    for step, expected in zip(one.steps, one.answers, strict=True):
        found.kinds[expected.code or expected.status] += 1
        if expected.status == "applied":
            found.moves.add((one.definition.type, step.trigger, state, expected.state))
        state = expected.state
    if answers != one.answers:
        found.differences += 1
        at = next((at for at, pair in enumerate(zip(one.answers, answers, strict=False)) if pair[0] != pair[1]), -1)
        name, step = f"{one.definition.type}@{one.definition.version} seed {one.seed} step {at}", one.steps[at]
        if len(found.differing) < SHOWN:
            found.differing.append(
                f"{name} {step.kind} {step.trigger}: decide {one.answers[at]}, form {answers[at:][:1]}"
            )
