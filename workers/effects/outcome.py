"""The outcome of an effect that chooses itself which trigger to fire."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class EffectOutcome(NamedTuple):
    """Fire `trigger` on the instance, with this metadata."""

    trigger: str
    metadata: Mapping[str, Any]
