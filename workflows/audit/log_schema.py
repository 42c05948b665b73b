"""The schema of an event log's line: that of seed 001, of SSOT 7.1 (with what 7.2.1 writes), or of our own journal.

The three are one model: what the later ones added is optional, so that a file of the oldest is still right.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workflows.events import KINDS, OVERRIDE, read

TRANSITION = re.compile(r"([a-z][a-z0-9_]*)_state_transition")
NOTICES = ("error", "warning")  # events that are no move
EVENT_ID = r"^evt_[0-7][0-9A-HJKMNP-TV-Z]{25}$"
TYPES = {short: type_ for type_, short in KINDS.items()}
SHA256 = r"^[0-9a-f]{64}$"
SHOWN = 200  # characters of what is wrong


class Context(BaseModel):
    """Where an event belongs; a log may say more."""

    model_config = ConfigDict(extra="allow")

    project_id: str | None = None
    workflow_id: str | None = None
    workstream_id: str | None = None
    run_id: str | None = None
    seq: int | None = Field(None, ge=1)
    xid: int | None = Field(None, ge=0)
    position: int | None = Field(None, ge=1)


class LogEvent(BaseModel):
    """One line."""

    model_config = ConfigDict(extra="forbid")

    timestamp: datetime
    event_type: str
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
    definition_version: str | None = Field(None, pattern=r"^\d+\.\d+\.\d+$")
    birth: dict[str, str] | None = None
    prev_hash: str | None = Field(None, pattern=SHA256)
    hash: str | None = Field(None, pattern=SHA256)

    @field_validator("timestamp", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, str) or not value[:1].isdigit() or "-" not in value:
            raise ValueError("must be ISO 8601: 2025-12-08T22:26:36.730Z")
        return value

    @field_validator("timestamp")
    @classmethod
    def _in_a_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("needs a time zone: 2025-12-08T22:26:36.730Z")
        return value

    @field_validator("event_type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value not in (OVERRIDE, *NOTICES) and not TRANSITION.fullmatch(value):
            raise ValueError("must be TYPE_state_transition, manual_override, error or warning")
        return value

    @property
    def told_type(self) -> str | None:
        """The entity's type as the event's type tells it."""
        named = TRANSITION.fullmatch(self.event_type)
        return TYPES.get(named[1], named[1]) if named else None

    @property
    def is_move(self) -> bool:
        """Whether it tells of a move at all."""
        return self.event_type not in NOTICES

    @property
    def place(self) -> tuple[int, int] | None:
        """In commit order, where the log says it."""
        context = self.context
        return (context.xid, context.position) if context.xid is not None and context.position is not None else None


def parse(text: str | bytes) -> tuple[LogEvent, dict[str, Any]]:
    """A line as an event, and as it was written.

    Raises:
        ValueError: it is none; `wrong` says why.
    """
    raw = read(text)
    if not isinstance(raw, dict):
        raise ValueError("a line must be a JSON object")
    return LogEvent.model_validate(raw), raw


def wrong(error: ValueError) -> Iterator[str]:
    """What is wrong with a line, a sentence each, with what was expected."""
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
            yield f"{where} is {_short(each['input'])}; {each['msg'].removeprefix('Value error, ')}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
