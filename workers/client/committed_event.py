"""An event, as `Client.events` gives it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class CommittedEvent:
    """An event of an instance, as `Client.events` gives it.

    Attributes:
        cursor: its place in commit order, with which `Client.events` goes on after it. Cursors sort as text.
        event_id: `evt_…`, by which a repetition is known.
        project, type, entity_id, workflow_id: of the instance.
        seq: the number of this event in its instance's history, from 1.
        from_state, to_state, trigger: the move.
        by: who fired the trigger.
        request_id: of the request that asked for it.
        severity: `info`, `warning`, `error` or `critical`.
        named_event: its name beside its type (EVENT-17), if it has one.
        metadata: the trigger's data, and what Interlock added.
        created_at: when it was made.
    """

    cursor: str
    event_id: str
    project: str
    type: str
    entity_id: str
    workflow_id: UUID
    seq: int
    from_state: str
    to_state: str
    trigger: str
    by: str
    request_id: str
    severity: str
    named_event: str | None
    metadata: Mapping[str, Any]
    created_at: datetime
