"""The message that carries an event to others: CloudEvents 1.0 in structured mode (SUBSCRIPTION-8).

Source: CloudEvents 1.0.2, its JSON format, and its extension "sequence" (https://cloudevents.io).
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from interlock.workflows.audit.events import event_type, timestamp, without_proof
from interlock.workflows.audit.ids import event_name

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


def cloud_event(row: Mapping[str, Any], cursor: str) -> str:
    """An event as a CloudEvent in JSON. Its `id` is the event's, so a receiver knows a repetition.

    Args:
        row: of `event_rows.sql`.
        cursor: the event's place in commit order, as text that sorts (`workflows.audit.cursors`).
    """
    envelope = {
        "specversion": "1.0",
        "id": event_name(row["id"]),
        "source": f"urn:interlock:{quote(str(row['project']), safe='')}",
        "type": f"interlock.{event_type(row['workflow_type'], row['metadata'])}",
        "subject": f"{row['workflow_type']}/{row['entity_id']}",
        "time": timestamp(row["created_at"]),
        "datacontenttype": "application/json",
        "sequence": cursor,
    }
    return f'{json.dumps(envelope, ensure_ascii=False)[:-1]}, "data": {without_proof(row)}}}'
