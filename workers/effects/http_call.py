"""Sends the effects that are HTTP calls (EFFECT-11)."""

import json
from collections.abc import Mapping
from typing import Any

from interlock.workers.effects.signed_call import keys_of, send, signed
from interlock.workers.settings import Settings
from interlock.workflows.effects import Endpoint


def post(
    settings: Settings, endpoint: Endpoint, body: Mapping[str, Any], *, key: str, token: int, timeout_seconds: float
) -> dict[str, Any]:
    """Send a signed call.

    Args:
        settings: of this node: which secrets it has.
        endpoint: where it is sent, and what signs it.
        body: is sent as JSON.
        key: names the call, however often it is sent (`webhook-id`).
        token: the fencing token of the effect's lease (`interlock-token`).
        timeout_seconds: how long to wait for a connection, and for each part of the answer.

    Returns:
        The answer: `status`, and `body`, a JSON object or the beginning of a text.

    Raises:
        CallNotAccepted: the answer is none of 2xx, too large, or did not come.
        SecretNotHad: a secret is not available on this node, or is none.
    """
    import requests  # noqa: PLC0415 - only nodes that send have it

    text = json.dumps(body, ensure_ascii=False, default=str).encode()
    headers = {"Content-Type": "application/json", "Interlock-Token": str(token)}
    headers |= signed(keys_of(settings, endpoint), key, text)
    with requests.Session() as session:
        return send(session, endpoint.url, text, headers, timeout_seconds=timeout_seconds)
