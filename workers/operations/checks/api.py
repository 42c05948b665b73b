"""Checks of the HTTP API: it answers, and nobody on the way reads tokens."""

import ssl
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

from interlock.workers.operations.checks.finding import Finding
from interlock.workers.runtime import Runtime
from interlock.workers.settings import LOOPBACK

PATIENCE_SECONDS = 5.0


def check_api(runtime: Runtime) -> Iterator[Finding]:
    """Whether the API answers, and whether it listens beyond this machine without TLS."""
    chosen = runtime.settings
    if chosen.api_host not in LOOPBACK and chosen.api_tls_certificate is None:
        message = (
            f"the API listens on {chosen.api_host} without TLS: anybody on the way reads tokens, unless a proxy has it"
        )
        yield Finding("api", "warn", message, "set INTERLOCK_API_TLS_CERTIFICATE, or listen on 127.0.0.1")
    url = chosen.resolved_api_url()
    if url is None:
        yield Finding("api", "ok", "none is served by `interlock up` here, and INTERLOCK_API_URL names none")
        return
    try:
        answer = urllib.request.urlopen(f"{url}/api/health", timeout=PATIENCE_SECONDS, context=_any_name(url))  # noqa: S310 - ours
        answer.close()
    except (OSError, HTTPException, ValueError) as error:
        cure = "interlock status: is api running? INTERLOCK_API_URL is where it is looked for, if it is set"
        yield Finding("api", "fail", f"{url} does not answer: {getattr(error, 'reason', None) or error}", cure)
        return
    yield Finding("api", "ok", f"{url} answers")


def _any_name(url: str) -> ssl.SSLContext | None:
    """Its certificate has a name of its own, which we do not know: here it is only asked whether it answers."""
    return ssl._create_unverified_context() if url.startswith("https:") else None  # noqa: S323
