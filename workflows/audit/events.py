"""The canonical event (EVENT-1): the public form of one move in history.

A line of the journal contains everything that was hashed, byte for byte: metadata as PostgreSQL prints jsonb, the
instant to the microsecond. A journal file can therefore be verified without the database (`chained`).
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from interlock.workflows.audit.chain import digest
from interlock.workflows.audit.ids import event_name, event_uuid
from interlock.workflows.input.json_text import printed, read
from interlock.workflows.input.limits import Unreadable

OVERRIDE = "manual_override"
KINDS: Mapping[str, str] = {"patch_ledger": "patch", "test_gate": "gate"}  # as EVENT-2 names them
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event_type(workflow_type: str, metadata: Mapping[str, Any]) -> str:
    """`task_state_transition`, …; `manual_override` if the event names an operator (EVENT-2)."""
    return OVERRIDE if metadata.get("operator") else f"{KINDS.get(workflow_type, workflow_type)}_state_transition"


def reason_of(metadata: Mapping[str, Any]) -> str | None:
    """Why an event happened, if its metadata say so in words: callers choose their data, and may put anything there."""
    return reason if isinstance(reason := metadata.get("reason"), str) else None


def timestamp(instant: datetime) -> str:
    """ISO 8601 in UTC with microseconds and `Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def canonical(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a history row (the columns of `event_rows.sql`) to the event, ready for JSON.

    Metadata that exceed today's limits are included as they were written, with numbers as `Decimal`; `printed` accepts
    them.
    """
    metadata = row["metadata"]
    if isinstance(metadata, Unreadable) and "metadata_text" in row:
        metadata = read(row["metadata_text"])
    event = {
        "event_id": event_name(row["id"]),
        "timestamp": timestamp(row["created_at"]),
        "event_type": event_type(row["workflow_type"], metadata),
        "named_event": row["named_event"],
        "severity": row["severity"],
        "entity_type": row["workflow_type"],
        "entity_id": row["entity_id"],
        "from_state": row["from_state"],
        "to_state": row["to_state"],
        "trigger": row["trigger"],
        "reason": reason_of(metadata),
        "metadata": metadata,
        "operator": metadata.get("operator"),
        "triggered_by": row["triggered_by"],
        "request_id": row["request_id"],
        "authority": row["authority"],
        "proof": row["proof"],
        "login": row["login"],
        "definition_version": row["definition_version"],
        "context": _context(row),
        "prev_hash": bytes(row["prev_hash"]).hex(),
        "hash": bytes(row["hash"]).hex(),
    }
    if row["seq"] == 1:  # the input of the birth's hash
        event["birth"] = {
            "by": row["created_by"],
            "at": timestamp(row["born_at"]),
            "version": row["born_version"],
            "context_sha256": bytes(row["context_sha256"]).hex(),
            "bodies": row["bodies"],
            "proof": row["born_proof"],
        }
    return event


def line(row: Mapping[str, Any]) -> str:
    """The event as one line of JSON without line end; its metadata are PostgreSQL's own text."""
    return _written(canonical(row), row)


def without_proof(row: Mapping[str, Any]) -> str:
    """The event for others, as `line` writes it, but without its login and proof: a proof may be an open claim's token.

    So a receiver cannot compute its hash; it can compare that with the one in an export.
    """
    return _written({name: said for name, said in canonical(row).items() if name not in ("login", "proof")}, row)


def _written(event: dict[str, Any], row: Mapping[str, Any]) -> str:
    metadata = event.pop("metadata")  # inserted as text below: a float would lose digits that were hashed
    text = row["metadata_text"] if "metadata_text" in row else printed(metadata)
    deep = isinstance(row["metadata"], Unreadable)
    written = printed(event) if deep else json.dumps(event, ensure_ascii=False)
    return written[:-1] + f', "metadata": {text}}}'


def _context(row: Mapping[str, Any]) -> dict[str, Any]:
    context = {
        "project": str(row["project"]),
        "workflow_id": str(row["workflow_id"]),
        "seq": row["seq"],
        "xid": row["xid"],
        "position": row["position"],
    }
    return context | {key: str(row[key]) for key in ("run_id", "workstream_id", "phase_id") if row[key] is not None}


def chained(event: Mapping[str, Any]) -> str:
    """The hash (hex) that a canonical event must have, computed from its fields and the previous hash.

    Args:
        event: as `read` returns it from a line.

    Raises:
        KeyError, TypeError, ValueError: a field that was hashed is missing or malformed.
    """
    context = event["context"]
    fields = (
        str(event_uuid(str(event["event_id"]))),
        context["workflow_id"],
        str(context["seq"]),
        event["definition_version"],
        event["from_state"],
        event["to_state"],
        event["trigger"],
        event["triggered_by"],
        event["request_id"],
        event["authority"],
        event["proof"],
        event["login"],
        event["severity"],
        printed(event["metadata"]),
        micros(event["timestamp"]),
    )
    return digest(bytes.fromhex(event["prev_hash"]), map(_text, fields)).hex()


def born(event: Mapping[str, Any]) -> str:
    """The hash (hex) of an instance's birth, which precedes that of its first event. Raises as `chained` does."""
    context, birth = event["context"], event["birth"]
    fields = (
        context["workflow_id"],
        event["entity_type"],
        birth["version"],
        event["entity_id"],
        context["project"],
        birth["by"],
        micros(birth["at"]),
        birth["context_sha256"],
        None if birth["bodies"] is None else printed(birth["bodies"]),
        birth["proof"],
    )
    return digest(b"", map(_text, fields)).hex()


def _text(field: Any) -> str | None:
    """Check that a field is text or null, as all hashed fields are; a file may contain anything."""
    if field is None or isinstance(field, str):
        return field
    raise TypeError(f"{str(field)[:40]!r} is not text")


def micros(instant: str) -> str:
    """Microseconds since 1970 of a timestamp, in decimal, as PostgreSQL's `interlock.micros`."""
    since = datetime.fromisoformat(instant) - EPOCH
    return str((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
