"""How long to wait before trying again: exponential with full jitter.

Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 ("full jitter").
"""


def full_jitter(attempt: int, *, base_seconds: float, cap_seconds: float, chance: float) -> float:
    """Seconds to wait before the next attempt: uniform between zero and `base * 2**(attempt - 1)`, capped.

    Args:
        attempt: attempts made so far, from 1.
        base_seconds: upper bound of the first wait.
        cap_seconds: upper bound of any wait.
        chance: a number in [0, 1) drawn by the caller; this module has no randomness of its own.
    """
    exponent = min(attempt - 1, 62)  # 2**62 is past any cap, and a float still holds it
    return chance * min(cap_seconds, base_seconds * float(2**exponent))
