"""Sends the effects that are HTTP calls: JSON, signed after Standard Webhooks (EFFECT-11)."""

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from interlock.workers.execution.secrets import SecretNotHad, resolve
from interlock.workers.settings import Settings
from interlock.workflows.effects import Endpoint
from interlock.workflows.errors import InterlockError
from interlock.workflows.input import limits
from interlock.workflows.output.urls import shown_url

if TYPE_CHECKING:
    import requests

TEXT_CHARACTERS = 2_000  # that are kept of an answer that is no JSON object
CHUNK_BYTES = 8_192
PREFIX, KEY_BYTES = "whsec_", range(24, 65)  # as the specification of Standard Webhooks says


class CallNotAccepted(InterlockError):
    """The endpoint refused the call, or did not answer. Look at the endpoint's own log; the call is sent again.

    Attributes:
        answer: what it answered, to be kept; None: nothing.
    """

    def __init__(self, message: str, answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.answer = answer


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
    headers = {"Content-Type": "application/json", "Interlock-Token": str(token)} | _signed(
        settings, endpoint, key, text
    )
    try:
        with requests.post(
            endpoint.url,
            data=text,
            headers=headers,
            timeout=timeout_seconds,
            allow_redirects=False,
            stream=True,
            auth=lambda request: request,  # or it would take a password from ~/.netrc
        ) as response:
            answer = {"status": response.status_code, "body": _body(response)}
    except requests.RequestException as error:  # its message has the whole URL
        raise CallNotAccepted(f"{shown_url(endpoint.url)} did not answer: {type(error).__name__}") from None
    if not 200 <= answer["status"] < 300:
        raise CallNotAccepted(f"{shown_url(endpoint.url)} answered {answer['status']}", answer)
    return answer


def _signed(settings: Settings, endpoint: Endpoint, key: str, text: bytes) -> dict[str, str]:
    from standardwebhooks import Webhook  # noqa: PLC0415

    at, signatures = datetime.now(UTC), []
    for reference in endpoint.secrets:
        secret = _key(reference, resolve(settings, {"secret": reference})["secret"])
        signatures.append(Webhook(secret).sign(key, at, text.decode()))
    return {
        "webhook-id": key,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _key(reference: str, secret: str) -> bytes:
    """The key that a secret stands for; the library would take whatever it can decode of any text."""
    text = secret.removeprefix(PREFIX)
    with suppress(binascii.Error, ValueError):
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        if secret.startswith(PREFIX) and len(key) in KEY_BYTES:
            return key
    least, most = KEY_BYTES[0], KEY_BYTES[-1]
    raise SecretNotHad(f"{reference} is no secret of Standard Webhooks: {PREFIX} and {least} to {most} bytes as base64")


def _body(response: "requests.Response") -> Any:
    """The answer's JSON object, or the beginning of its text."""
    read = b""
    for chunk in response.iter_content(CHUNK_BYTES):
        read += chunk
        if len(read) > limits.RESULT_BYTES:
            most = f"{limits.RESULT_BYTES:,} bytes"
            raise CallNotAccepted(f"{shown_url(response.url)} answered {response.status_code} with more than {most}")
    try:
        found = limits.read(read)
        limits.checked("the answer", found, limits.RESULT_BYTES)
    except (ValueError, InterlockError):
        found = None
    if isinstance(found, dict):
        return found
    return "".join(each if each.isprintable() else " " for each in read.decode(errors="replace"))[:TEXT_CHARACTERS]
