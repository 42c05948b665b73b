"""Parse command-line values: JSON, instants, durations."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from interlock.workflows.errors import BadInput
from interlock.workflows.input import limits
from interlock.workflows.output.escaping import shown

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")


def json_object(option: str, text: str) -> dict[str, Any]:
    """A JSON object given on the command line, or `@FILE` that holds one.

    Raises:
        BadInput: it is not JSON (the message says where), or not an object.
    """
    value = json_value(option, text)
    if not isinstance(value, dict):
        raise BadInput(f'{option} must be a JSON object, like \'{{"author": "ann"}}\'')
    return value


def json_value(option: str, text: str) -> Any:
    """A JSON value given on the command line, or `@FILE` that holds one.

    Raises:
        BadInput: it is not JSON; the message says where.
    """
    source = text
    if text.startswith("@"):
        try:
            source = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{option}: {shown(text[1:])} cannot be read: {error}") from error
    try:
        return limits.read(source, parse_constant=_no_constant)
    except ValueError as error:
        raise BadInput(f'{option} is not JSON: {error}. Example: \'{{"author": "ann"}}\'') from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def instant(text: str, option: str) -> datetime:
    """Parse a duration from now, or an instant. Raises as `when`."""
    parsed = when(text, option)
    return datetime.now(UTC) + parsed if isinstance(parsed, timedelta) else parsed


def past(text: str, option: str) -> datetime:
    """Parse a duration until now, or an instant. Raises as `when`."""
    parsed = when(text, option)
    return datetime.now(UTC) - parsed if isinstance(parsed, timedelta) else parsed


def period_seconds(text: str, option: str) -> float:
    """Parse a period in seconds; a unit alone (`s`, `m`, `h`, `d`) is one of it.

    Raises:
        BadInput: it is no duration.
    """
    parsed = when(f"1{text}" if text in UNITS else text, option)
    if not isinstance(parsed, timedelta):
        raise BadInput(f"{option} {text!r}: the period is a duration, such as 90s, 10m or 2h")
    return parsed.total_seconds()


def when(text: str, option: str = "--after") -> datetime | timedelta:
    """Parse a duration (`90s`, `10m`, `2h`, `3d`) or an instant with a time zone (`2026-11-21T15:00:00Z`).

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
        raise BadInput(f"{option} {text!r} has no time zone; for UTC write {instant.isoformat()}Z")
    return instant
