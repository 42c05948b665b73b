"""Traces, where somebody wants them: switched on by OpenTelemetry's own variables, and nothing but a question when off.

On when `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) is set, or when the program that uses
the client has given OpenTelemetry a provider of its own; off with `OTEL_SDK_DISABLED=true` or
`OTEL_TRACES_EXPORTER=none`. A trigger's row carries the W3C traceparent (`trace`), so a trace goes on in whichever
process takes it up.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers.spans import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether these variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp").lower() == "none":
        return False
    return any(environment.get(name) for name in ENDPOINTS)


@cache
def tracing() -> "Tracing | None":
    """This process's tracing, None where nobody wants any: decided once, when first asked."""
    provider = _programs_own()
    if provider is None and not wanted(os.environ):
        return None
    from workers.spans import Tracing  # noqa: PLC0415 - SDK and exporter take a third of a second to import

    return Tracing(provider)


def _programs_own() -> Any:
    """The provider that the program around us has given OpenTelemetry, if it has."""
    api = sys.modules.get("opentelemetry.trace")
    provider = api and api.get_tracer_provider()
    return None if api is None or isinstance(provider, api.ProxyTracerProvider) else provider


def current() -> str | None:
    """The traceparent of the span at work here, for what it causes; None where there is none."""
    at_work = tracing()
    return at_work.current() if at_work else None


def end() -> None:
    """Send what is still to be sent, before the process ends; waits two seconds at most."""
    if tracing.cache_info().currsize and (at_work := tracing()):
        at_work.close()


def forget() -> None:
    """Begin anew, in the child of a fork: threads that send are not inherited."""
    tracing.cache_clear()
