"""The spans `interlock.accept`, `interlock.apply` and `interlock.effect`. Imported only if traces are wanted."""

import atexit
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from time import time_ns
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from sqlalchemy import RowMapping

from interlock.db.core.effects import ClaimedEffect
from interlock.db.core.rounds import Due
from interlock.workflows.output.escaping import shown
from interlock.workflows.output.urls import without_users

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

W3C = TraceContextTextMapPropagator()
CLOSE_SECONDS = 2.0
BAD = ("rejected", "dead", "scheduled")


def _our_own() -> "TracerProvider":
    # A program with a provider of its own needs none of these.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "interlock")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # its own shutdown could take half a minute
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class Tracing:
    """One process's spans, for a provider: the program's own, or ours, which sends them over OTLP."""

    def __init__(self, provider: trace.TracerProvider | None) -> None:
        self._own_provider = _our_own() if provider is None else None
        atexit.register(self.close)
        self._tracer = (provider or self._own_provider or trace.get_tracer_provider()).get_tracer("interlock")

    @contextmanager
    def accepting(self, rows: Sequence[dict[str, Any]]) -> Iterator[None]:
        """A span around the acceptance of requests, below the caller's own; the rows get its traceparent."""
        with self._tracer.start_as_current_span("interlock.accept", kind=SpanKind.PRODUCER) as span:
            span.set_attribute("interlock.requests", len(rows))
            if len(rows) == 1:
                span.set_attributes(_attributes(rows[0]))
            if (traceparent := _traceparent(span)) is not None:
                for row in rows:
                    row["trace"] = traceparent
            yield

    def applying(self, due: Sequence[Due]) -> "Applying | None":
        """Spans, started now, for the requests of a round that have a trace; None if none has."""
        traced = [(request, parent) for request in due if (parent := request["trace"])]
        spans = {request["seq"]: self._apply(request, parent, len(due)) for request, parent in traced}
        return Applying(spans) if spans else None

    def _apply(self, request: Due, parent: str, together: int) -> Span:
        cause = _remote(parent)
        # A timer may fire days after the move that armed it: it gets its own trace, linked to its cause.
        timer = request["origin"] == "timer"
        return self._tracer.start_span(
            "interlock.apply",
            context=Context() if timer else cause,
            links=[Link(trace.get_current_span(cause).get_span_context())] if timer else [],
            kind=SpanKind.CONSUMER,
            attributes={
                **_attributes(request),
                "interlock.entity_type": request["workflow_type"],
                "interlock.entity_id": shown(request["entity_id"]),
                "interlock.origin": request["origin"],
                "interlock.attempt": request["attempts"] + 1,
                "interlock.batch": together,
            },
        )

    @contextmanager
    def performing(self, effect: ClaimedEffect) -> Iterator[None]:
        """A span around the run of an effect, below the move that requested it."""
        if not effect["trace"]:
            yield
            return
        attributes: dict[str, str | int] = {
            "interlock.effect": effect["name"],
            "interlock.effect_id": str(effect["id"]),
            "interlock.instance": str(effect["workflow_id"]),
            "interlock.token": effect["token"],
            "interlock.attempt": effect["attempts"],
        }
        with self._tracer.start_as_current_span(
            "interlock.effect", context=_remote(effect["trace"]), kind=SpanKind.INTERNAL, attributes=attributes
        ):
            yield

    def failed(self, error: BaseException) -> None:
        """Record an error on the current span."""
        span = trace.get_current_span()
        attributes = {
            "exception.message": without_users(str(error)),
            "exception.stacktrace": without_users("".join(format_exception(error))),
        }
        span.record_exception(error, attributes)
        span.set_status(StatusCode.ERROR, without_users(f"{type(error).__name__}: {error}")[:500])

    def current(self) -> str | None:
        """The traceparent of the current span."""
        return _traceparent(trace.get_current_span())

    def close(self) -> None:
        """Send the remaining spans, waiting at most `CLOSE_SECONDS`."""
        provider, self._own_provider = self._own_provider, None
        if provider is not None:
            sending = Thread(target=provider.shutdown, name="last spans", daemon=True)
            sending.start()
            sending.join(CLOSE_SECONDS)


@dataclass(slots=True)
class Applying:
    """The spans of one round: ended when it is committed, dropped if it is not."""

    spans: dict[int, Span]
    traces: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = ((seq, _traceparent(span)) for seq, span in self.spans.items())
        self.traces = {seq: traceparent for seq, traceparent in known if traceparent}

    def end(self, settled: Sequence[Mapping[str, Any]]) -> None:
        """Record each request's outcome, after the commit."""
        now = time_ns()
        for each in settled:
            if span := self.spans.get(each["seq"]):
                span.add_event("committed", timestamp=now)
                span.set_attribute("interlock.status", each["status"])
                result = each["result"] or {}
                for name in ("from", "to", "code"):
                    if name in result:
                        span.set_attribute(f"interlock.{name}", result[name])
                if each["status"] in BAD:
                    span.set_status(StatusCode.ERROR, str(each["error"] or result.get("message", "")))
                span.end(now)


def _attributes(row: RowMapping | Mapping[str, Any]) -> dict[str, str]:
    return {
        "interlock.request_id": row["request_id"],
        "interlock.trigger": row["trigger"],
        "interlock.triggered_by": shown(row["triggered_by"]),
        "interlock.instance": str(row["workflow_id"]),
    }


def _traceparent(span: Span) -> str | None:
    context = span.get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _remote(traceparent: str) -> Context:
    return W3C.extract({"traceparent": traceparent})
