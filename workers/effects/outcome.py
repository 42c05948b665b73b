"""An outcome that an effect chose itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """Tell the instance `trigger`, with this metadata; `result` is kept with the effect."""

    trigger: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
