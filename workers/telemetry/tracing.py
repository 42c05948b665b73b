"""Traces, turned on by OpenTelemetry's own variables; when off, they cost one check.

On when `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) is set and what sends traces is
installed (`interlock[server]`), or when the program that uses the client has given OpenTelemetry a provider of its own;
off with `OTEL_SDK_DISABLED=true` or `OTEL_TRACES_EXPORTER=none`. A trigger's row carries the W3C traceparent (`trace`),
so a trace continues in the process that applies the trigger.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.workers.telemetry.spans import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether these variables ask for traces."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    none = environment.get("OTEL_TRACES_EXPORTER", "otlp").lower() == "none"
    return not (off or none) and any(environment.get(name) for name in ENDPOINTS)


@cache
def tracing() -> "Tracing | None":
    """This process's tracing, or None if traces are off: decided once, on the first call."""
    provider = _programs_own()
    if provider is None and not (wanted(os.environ) and _can_send()):
        return None
    from interlock.workers.telemetry.spans import Tracing  # noqa: PLC0415 - SDK and exporter take a third of a second to import

    return Tracing(provider)


def _can_send() -> bool:
    """Whether what sends spans is installed. A program's variables are not always meant for us: no error without."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # nor is what it would stand in
        return False


def _programs_own() -> Any:
    """The provider that the surrounding program has given OpenTelemetry, if any."""
    api = sys.modules.get("opentelemetry.trace")
    provider = api and api.get_tracer_provider()
    return None if api is None or isinstance(provider, api.ProxyTracerProvider) else provider


def current() -> str | None:
    """The current span's traceparent, for what it causes; None if there is none."""
    at_work = tracing()
    return at_work.current() if at_work else None


def end() -> None:
    """Send the remaining spans before the process ends; waits two seconds at most."""
    if tracing.cache_info().currsize and (at_work := tracing()):
        at_work.close()


def forget() -> None:
    """Start anew in the child of a fork, which does not inherit the sending thread."""
    tracing.cache_clear()
