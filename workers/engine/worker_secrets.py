"""Secrets of workers: a worker proves by its own that it is itself (AUTHORITY-15). Only its SHA-256 is stored."""

import re
from collections.abc import Mapping
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from interlock.workflows.errors import BadInput
from interlock.workflows.fields import SECRET

BYTES = 32
FORM = re.compile(r"[A-Za-z0-9_-]{43}")


def make() -> str:
    """A new secret."""
    return token_urlsafe(BYTES)


def digest_of(secret: str) -> Mapping[str, Any]:
    """What the context of the worker that a secret is for says of it."""
    return {SECRET.name: sha256(secret.encode()).hexdigest()}


def checked(secret: str) -> str:
    """A secret that a caller gave.

    Raises:
        BadInput: it cannot be one, which the message does not show.
    """
    if not isinstance(secret, str) or not FORM.fullmatch(secret):
        raise BadInput(
            "that is no worker's secret: it has 43 letters, digits, - and _, as the registration returned it"
        )
    return secret
