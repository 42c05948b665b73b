"""The outcome of an effect that chooses itself which trigger to fire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EffectOutcome:
    """Fire `trigger` on the instance, with this metadata."""

    trigger: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
