"""The outcome of an effect that says itself what is told to its instance."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class EffectOutcome(NamedTuple):
    """Fire `trigger` on the instance, if there is one, with this metadata; the effect's row keeps `kept` of it."""

    trigger: str | None
    metadata: Mapping[str, Any]
    kept: Mapping[str, Any] | None = None
