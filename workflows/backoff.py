"""The wait before another attempt: exponential backoff, optionally with full jitter.

Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 ("full jitter").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Growth:
    """Makes a deadline grow with a counter in a column of the instance's row: `base * factor**count`, capped.

    The base is the deadline's `seconds`. The deadline's context field, an object, can override `base`, `factor`, `cap`.
    """

    column: str
    cap_seconds: float
    factor: float = 2.0

    def seconds(self, base_seconds: float, options: Mapping[str, float], row: Mapping[str, Any]) -> float:
        """The seconds for one instance, from its context field `options` and its row."""
        return grown(
            int(row.get(self.column, 0)) + 1,
            base_seconds=float(options.get("base", base_seconds)),
            factor=float(options.get("factor", self.factor)),
            cap_seconds=float(options.get("cap", self.cap_seconds)),
        )


def grown(attempt: int, *, base_seconds: float, cap_seconds: float, factor: float = 2.0) -> float:
    """Seconds to wait before the next attempt: `base * factor**(attempt - 1)`, capped.

    Args:
        attempt: attempts made so far, from 1.
        base_seconds: the first wait.
        cap_seconds: the longest wait.
        factor: the multiplier of each further wait, at most 10.
    """
    exponent = min(attempt - 1, 62)  # 2**62 exceeds any cap, and 10**62 still fits in a float
    return min(cap_seconds, base_seconds * float(factor**exponent))


def full_jitter(attempt: int, *, base_seconds: float, cap_seconds: float, chance: float) -> float:
    """Seconds to wait before the next attempt: uniform between zero and `base * 2**(attempt - 1)`, capped.

    Args:
        attempt: attempts made so far, from 1.
        base_seconds: upper bound of the first wait.
        cap_seconds: upper bound of any wait.
        chance: a random number in [0, 1) from the caller; this module is deterministic.
    """
    return chance * grown(attempt, base_seconds=base_seconds, cap_seconds=cap_seconds)
