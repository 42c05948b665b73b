"""The canonical event (SSOT 7.1): what history says of one move, as everybody outside reads it.

A line of the journal holds all that was hashed, byte for byte: metadata as PostgreSQL prints its jsonb, the instant to
the microsecond. So a file of them proves itself, without the database (`chained`).
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from workflows.chain import digest
from workflows.ids import event_name, event_uuid

OVERRIDE = "manual_override"
KINDS: Mapping[str, str] = {"patch_ledger": "patch", "test_gate": "gate"}  # as SSOT 7.1 names them
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_DIGITS = 131_072  # of PostgreSQL's numeric, before the point


def event_type(workflow_type: str, metadata: Mapping[str, Any]) -> str:
    """`task_state_transition`, …; `manual_override` where the event names an operator (SSOT 7.1)."""
    return OVERRIDE if metadata.get("operator") else f"{KINDS.get(workflow_type, workflow_type)}_state_transition"


def timestamp(instant: datetime) -> str:
    """ISO 8601 in UTC with microseconds and `Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def canonical(row: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a history row (the columns of `relay_batch.sql`), ready for JSON."""
    metadata = row["metadata"]
    event = {
        "event_id": event_name(row["id"]),
        "timestamp": timestamp(row["created_at"]),
        "event_type": event_type(row["workflow_type"], metadata),
        "severity": row["severity"],
        "entity_type": row["workflow_type"],
        "entity_id": row["entity_id"],
        "from_state": row["from_state"],
        "to_state": row["to_state"],
        "trigger": row["trigger"],
        "reason": metadata.get("reason"),
        "metadata": metadata,
        "operator": metadata.get("operator"),
        "triggered_by": row["triggered_by"],
        "request_id": row["request_id"],
        "definition_version": row["definition_version"],
        "context": _context(row),
        "prev_hash": bytes(row["prev_hash"]).hex(),
        "hash": bytes(row["hash"]).hex(),
    }
    if row["seq"] == 1:  # what the first hash stands on
        event["birth"] = {"by": row["created_by"], "at": timestamp(row["born_at"])}
    return event


def line(row: Mapping[str, Any]) -> str:
    """The same as one line of JSON, without its end; metadata stand in it as PostgreSQL printed them."""
    event = canonical(row)
    metadata = event.pop("metadata")  # put back as text: a float would lose the digits that were hashed
    text = row["metadata_text"] if "metadata_text" in row else jsonb_text(metadata)
    return json.dumps(event, ensure_ascii=False)[:-1] + f', "metadata": {text}}}'


def _context(row: Mapping[str, Any]) -> dict[str, Any]:
    context = {
        "project_id": str(row["project_id"]),
        "workflow_id": str(row["workflow_id"]),
        "seq": row["seq"],
        "xid": row["xid"],
        "position": row["position"],
    }
    return context | {key: str(row[key]) for key in ("run_id", "workstream_id", "phase_id") if row[key] is not None}


def chained(event: Mapping[str, Any]) -> str:
    """The hash (hex) that a canonical event must have, from what it says and the hash before it.

    Args:
        event: as read from a line by `read`.

    Raises:
        KeyError, TypeError, ValueError: it lacks something that was hashed.
    """
    context = event["context"]
    fields = (
        str(event_uuid(event["event_id"])),
        context["workflow_id"],
        str(context["seq"]),
        event["definition_version"],
        event["from_state"],
        event["to_state"],
        event["trigger"],
        event["triggered_by"],
        event["request_id"],
        event["severity"],
        jsonb_text(event["metadata"]),
        micros(event["timestamp"]),
    )
    return digest(bytes.fromhex(event["prev_hash"]), fields).hex()


def born(event: Mapping[str, Any]) -> str:
    """The hash (hex) of an instance's birth, which its first event follows. Raises as `chained` does."""
    context, birth = event["context"], event["birth"]
    fields = (
        context["workflow_id"],
        event["entity_type"],
        event["entity_id"],
        context["project_id"],
        birth["by"],
        micros(birth["at"]),
    )
    return digest(b"", fields).hex()


def read(text: str | bytes) -> Any:
    """A line as it was written: numbers keep their digits. Raises `ValueError`, for whatever a file may hold."""
    try:
        return json.loads(text, parse_float=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _number(digits: str) -> Decimal:
    """A number that PostgreSQL's jsonb can hold: printed in full, a larger exponent would fill the memory."""
    try:
        number = Decimal(digits)
    except ArithmeticError:
        raise ValueError(f"no number: {digits[:40]}") from None
    if abs(number.adjusted()) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS:,} digits: {digits[:40]}")
    return number


def micros(instant: str) -> str:
    """Microseconds since 1970 of a timestamp, in decimal, as PostgreSQL's `interlock_micros`."""
    since = datetime.fromisoformat(instant) - EPOCH
    return str((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def jsonb_text(value: Any) -> str:
    """A value as PostgreSQL prints its jsonb: shorter keys first, then by their bytes, one space after `:` and `,`."""
    match value:
        case Decimal():
            return format(value, "f")
        case Mapping():
            keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
            return "{" + ", ".join(f"{jsonb_text(key)}: {jsonb_text(value[key])}" for key in keys) + "}"
        case list():
            return "[" + ", ".join(map(jsonb_text, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
