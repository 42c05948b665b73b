"""What a caller asks for, checked and turned into rows: triggers to fire and instances to create."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from workflows.errors import BadInput

RESERVED = ("operator", "override")  # in metadata: what overrides say, and nobody else
NAME_LIMIT = 100
REQUEST_ID_LIMIT = 200
LONGEST = timedelta(days=36_525)
UNKEPT = re.compile("[\x00\ud800-\udfff]")  # what PostgreSQL's text cannot hold
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Firing:
    """A trigger to fire.

    Attributes:
        ref: the instance: its UUID, `TYPE/ENTITY_ID`, or an entity id that only one instance has.
        trigger: one of its definition's triggers.
        by: who fires it: an agent, a user or `system`.
        request_id: makes firing it again harmless; a new UUIDv7 unless given.
        data: kept in the event's metadata.
        after: not before this instant, or not before so long from acceptance.
    """

    ref: str | UUID
    trigger: str
    by: str
    request_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    after: datetime | timedelta | None = None


def row(firing: Firing, workflow_id: UUID, *, limit_bytes: int) -> dict[str, Any]:
    """The `trigger_requests` row of a firing, with the fingerprint that tells its repetition from another request.

    Raises:
        BadInput: a name is empty or too long, or the data is not a JSON object of acceptable size.
    """
    request_id = firing.request_id or str(uuid7())
    if reserved := [key for key in RESERVED if key in firing.data]:
        raise BadInput(f"data.{reserved[0]} is what overrides say (`interlock override --help`); use another name")
    body = {
        "workflow_id": str(workflow_id),
        "trigger": named("trigger", firing.trigger),
        "triggered_by": named("by", firing.by),
        "metadata": checked("data", firing.data, limit_bytes),
        **_time(firing.after),
    }
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return body | {
        "request_id": named("request_id", request_id, REQUEST_ID_LIMIT),
        "fingerprint": sha256(canonical.encode()).hexdigest(),
        "origin": "agent",
    }


def named(what: str, value: str, limit: int = NAME_LIMIT) -> str:
    """`value`, if it can be a name.

    Raises:
        BadInput: it is empty, longer than `limit` characters, or holds a NUL.
    """
    if not value or len(value) > limit or UNKEPT.search(value):
        raise BadInput(f"{what} must be 1 to {limit} characters without NUL; got {value[:40]!r} ({len(value)} long)")
    return value


def checked(what: str, value: Mapping[str, Any], limit_bytes: int) -> dict[str, Any]:
    """`value` as a plain dict that PostgreSQL can keep as jsonb.

    Raises:
        BadInput: it is no JSON object, holds what JSON cannot say (NaN, NUL, a lone surrogate), or is too large.
    """
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} must be a JSON object, not {type(value).__name__}")
    if not value:
        return {}
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise BadInput(f"{what} cannot be written as JSON: {error}") from error
    if size > limit_bytes:
        raise BadInput(
            f"{what} is {size:,} bytes as JSON; the limit is {limit_bytes:,} (INTERLOCK_CONTEXT_LIMIT_BYTES)"
        )
    if ESCAPED_NUL.search(text):
        raise BadInput(f"{what} holds a NUL character, which PostgreSQL cannot keep")
    return dict(value)


def _time(after: datetime | timedelta | None) -> dict[str, Any]:
    if after is None:
        return {}
    if isinstance(after, timedelta):
        if after > LONGEST:
            raise BadInput(f"{after} is more than a century away")
        return {"delay_seconds": after.total_seconds()}
    if after.tzinfo is None:
        raise BadInput(f"{after.isoformat()} has no time zone; add one, such as Z or +01:00")
    try:
        return {"not_before": after.astimezone(UTC).isoformat()}
    except OverflowError as error:
        raise BadInput(f"{after.isoformat()} is past the end of time: {error}") from error
