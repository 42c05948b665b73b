"""Read what people type: JSON, instants and durations."""

import json
import re
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from workflows.errors import BadInput

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")


def json_object(option: str, text: str) -> dict[str, Any]:
    """A JSON object given on the command line, or `@FILE` that holds one.

    Raises:
        BadInput: it is not JSON, or not an object; says where it stops making sense.
    """
    source = text
    if text.startswith("@"):
        try:
            source = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{option}: {text[1:]} cannot be read: {error}") from error
    try:
        value = json.loads(source, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f'{option} is not JSON: {error}. Example: \'{{"author": "ann"}}\'') from error
    if not isinstance(value, dict):
        raise BadInput(f'{option} must be a JSON object, like \'{{"author": "ann"}}\'')
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def as_uuids(texts: list[str]) -> list[UUID]:
    """Those of `texts` that are UUIDs."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(UUID(text))
    return found


def when(text: str, option: str = "--after") -> datetime | timedelta:
    """`90s`, `10m`, `2h`, `3d`, or an instant with a time zone (`2026-11-21T15:00:00Z`).

    Raises:
        BadInput: it is neither.
    """
    try:
        if match := DURATION.fullmatch(text.strip()):
            return timedelta(**{UNITS[match[2]]: float(match[1])})
        instant = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise BadInput(f"{option} {text!r} is neither a duration (90s, 10m, 2h, 3d) nor an ISO instant") from None
    if instant.tzinfo is None:
        raise BadInput(f"{option} {text!r} has no time zone; add one, such as Z or +01:00")
    return instant
