"""The schema of an event log's line: the oldest one, its successor, or that of today's journal (EVENT-8).

One model covers all three: fields that the later schemas added are optional, so that the oldest files are still valid.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from interlock.workflows.audit.events import KINDS, OVERRIDE
from interlock.workflows.catalogue import WORKFLOWS
from interlock.workflows.input.json_text import read
from interlock.workflows.output.schema_messages import schema_message

TRANSITION = re.compile(r"([a-z][a-z0-9_]*)_state_transition")
# Event types that are not moves. Older logs have a line of its own for what is a move's `named_event` today (EVENT-17).
NAMED = {move.event for each in WORKFLOWS.values() for move in each.transitions if move.event}
NOTICES = frozenset({"error", "warning"} | NAMED)
EVENT_ID = r"^evt_[0-7][0-9A-HJKMNP-TV-Z]{25}$"
TYPES = {short: type_ for type_, short in KINDS.items()}
SHA256 = r"^[0-9a-f]{64}$"
SHOWN = 200  # maximum characters of a wrong value in a finding


class Context(BaseModel):
    """The ids and position of an event; other fields are allowed."""

    model_config = ConfigDict(extra="allow")

    project: str | None = None
    workflow_id: str | None = None
    workstream_id: str | None = None
    run_id: str | None = None
    seq: int | None = Field(None, ge=1, lt=2**31)  # as PostgreSQL's types; Python could not even print a longer number
    xid: int | None = Field(None, ge=0, lt=2**64)
    position: int | None = Field(None, ge=1, lt=2**63)


class LogEvent(BaseModel):
    """One line of a log."""

    model_config = ConfigDict(extra="forbid")

    timestamp: datetime
    event_type: str
    named_event: str | None = None
    severity: Literal["debug", "info", "warning", "error", "critical"]
    entity_id: str = Field(min_length=1)
    from_state: str | None = None
    to_state: str | None = None
    trigger: str | None = None
    metadata: dict[str, Any] | None = None
    event_id: str | None = Field(None, pattern=EVENT_ID)
    entity_type: str | None = None
    reason: str | None = None
    operator: str | None = None
    context: Context = Field(default_factory=Context)
    triggered_by: str | None = None
    request_id: str | None = None
    authority: str | None = None
    proof: str | None = None
    login: str | None = None
    definition_version: str | None = Field(None, pattern=r"^\d+\.\d+\.\d+$")
    birth: dict[str, str | dict[str, str] | None] | None = None
    prev_hash: str | None = Field(None, pattern=SHA256)
    hash: str | None = Field(None, pattern=SHA256)

    @field_validator("timestamp", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, str) or not value[:1].isdigit() or "-" not in value:
            raise ValueError("must be ISO 8601, as in 2025-12-08T22:26:36.730Z")
        return value

    @field_validator("timestamp")
    @classmethod
    def _in_a_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("must have a time zone, as in 2025-12-08T22:26:36.730Z")
        return value

    @field_validator("event_type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value != OVERRIDE and value not in NOTICES and not TRANSITION.fullmatch(value):
            raise ValueError(
                "must be TYPE_state_transition, manual_override, error, warning or the name of an event (EVENT-17)"
            )
        return value

    @property
    def named_type(self) -> str | None:
        """The entity type that `event_type` names, if it names one."""
        named = TRANSITION.fullmatch(self.event_type)
        return TYPES.get(named[1], named[1]) if named else None

    @property
    def is_move(self) -> bool:
        """Whether the event is a move."""
        return self.event_type not in NOTICES

    @property
    def place(self) -> tuple[int, int] | None:
        """The position in commit order, if the log has it."""
        context = self.context
        return (context.xid, context.position) if context.xid is not None and context.position is not None else None


def parse(text: str | bytes) -> tuple[LogEvent, dict[str, Any]]:
    """Parse a line; returns the event and the raw JSON object.

    Raises:
        ValueError: the line is not an event; `wrong` describes the error.
    """
    raw = read(text)
    if not isinstance(raw, dict):
        raise ValueError("a line must be a JSON object")
    return LogEvent.model_validate(raw), raw


def wrong(error: ValueError) -> Iterator[str]:
    """Describe the errors of a line, one sentence each, with the expected value."""
    if not isinstance(error, ValidationError):
        yield f"no JSON object: {error}"
        return
    for each in error.errors():
        where = ".".join(map(str, each["loc"]))
        if each["type"] == "missing":
            yield f"{where} is missing"
        elif each["type"] == "extra_forbidden":
            yield f"{where} is no field of an event; what is one's own goes into metadata"
        else:
            yield f"{where} is {shown(each['input'])}; {schema_message(each)}"


def shown(value: object) -> str:
    """A value as a finding shows it, shortened; safe for any size and depth."""
    try:
        text = repr(value)
    except RecursionError:
        return "nested deeply"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
