"""Sends JSON to an endpoint outside, signed after Standard Webhooks, and reads the answer as far as it is kept."""

import base64
import binascii
from collections.abc import Mapping, Sequence
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


def send(
    session: "requests.Session", url: str, text: bytes, headers: Mapping[str, str], *, timeout_seconds: float
) -> dict[str, Any]:
    """Send one POST. Redirects are not followed.

    Args:
        session: the connections to use.
        url: where it is sent.
        text: the body.
        headers: with what signs it.
        timeout_seconds: how long to wait for a connection, and for each part of the answer.

    Returns:
        The answer: `status`, and `body`, a JSON object or the beginning of a text.

    Raises:
        CallNotAccepted: the answer is none of 2xx, too large, or did not come.
    """
    import requests  # noqa: PLC0415 - only nodes that send have it

    try:
        with session.post(
            url,
            data=text,
            headers=headers,
            timeout=timeout_seconds,
            allow_redirects=False,
            stream=True,
            auth=lambda request: request,  # or it would take a password from ~/.netrc
        ) as response:
            answer = {"status": response.status_code, "body": _body(response)}
    except requests.RequestException as error:  # its message has the whole URL
        raise CallNotAccepted(f"{shown_url(url)} did not answer: {type(error).__name__}") from None
    if not 200 <= answer["status"] < 300:
        raise CallNotAccepted(f"{shown_url(url)} answered {answer['status']}", answer)
    return answer


def keys_of(settings: Settings, endpoint: Endpoint) -> list[bytes]:
    """The keys that sign what is sent to an endpoint.

    Raises:
        SecretNotHad: a secret is not available on this node, or is none.
    """
    return [_key(each, resolve(settings, {"secret": each})["secret"]) for each in endpoint.secrets]


def signed(keys: Sequence[bytes], message_id: str, text: bytes) -> dict[str, str]:
    """The headers that sign a message: its id, the present time, and a signature by each key."""
    from standardwebhooks import Webhook  # noqa: PLC0415

    at = datetime.now(UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(each).sign(message_id, at, text.decode()) for each in keys),
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
