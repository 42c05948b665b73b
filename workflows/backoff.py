"""How long to wait before trying again: exponential, with full jitter where a caller has a chance to draw.

Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 ("full jitter").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Growth:
    """How a deadline grows with what a column of the instance's row counts: `base * factor**count`, capped.

    The base is the deadline's `seconds`; its field in the context, an object, may say its own `base`, `factor`, `cap`.
    """

    column: str
    cap_seconds: float
    factor: float = 2.0

    def seconds(self, base_seconds: float, said: Mapping[str, float], row: Mapping[str, Any]) -> float:
        """The seconds of one instance, given what its context says and its row counts."""
        return grown(
            int(row.get(self.column, 0)) + 1,
            base_seconds=float(said.get("base", base_seconds)),
            factor=float(said.get("factor", self.factor)),
            cap_seconds=float(said.get("cap", self.cap_seconds)),
        )


def grown(attempt: int, *, base_seconds: float, cap_seconds: float, factor: float = 2.0) -> float:
    """Seconds to wait before the next attempt: `base * factor**(attempt - 1)`, capped.

    Args:
        attempt: attempts made so far, from 1.
        base_seconds: the first wait.
        cap_seconds: the longest wait.
        factor: what each further wait is multiplied by, at most 10.
    """
    exponent = min(attempt - 1, 62)  # 2**62 is past any cap, and a float holds 10**62
    return min(cap_seconds, base_seconds * float(factor**exponent))


def full_jitter(attempt: int, *, base_seconds: float, cap_seconds: float, chance: float) -> float:
    """Seconds to wait before the next attempt: uniform between zero and `base * 2**(attempt - 1)`, capped.

    Args:
        attempt: attempts made so far, from 1.
        base_seconds: upper bound of the first wait.
        cap_seconds: upper bound of any wait.
        chance: a number in [0, 1) drawn by the caller; this module has no randomness of its own.
    """
    return chance * grown(attempt, base_seconds=base_seconds, cap_seconds=cap_seconds)
