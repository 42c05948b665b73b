"""The effect that does nothing: what is left is what an effect costs."""

from interlock import EffectCall, effect


@effect("bench_nothing")
def nothing(call: EffectCall) -> None:
    """Does nothing."""
