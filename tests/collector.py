"""An OpenTelemetry collector for tests: receives spans over OTLP/HTTP on loopback, decodes and stores them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.listening import answering


@dataclass(frozen=True)
class Received:
    """One span, as received. Ids are hex; `links` are (trace, span)."""

    name: str
    service: str
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    failed: bool
    seconds: float


@dataclass
class Collector:
    """The spans received at `endpoint`."""

    endpoint: str = ""
    spans: list[Received] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make a process send its spans here, with a short delay."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def named(self, name: str) -> list[Received]:
        """The spans with this name, in the order of arrival."""
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += (_received(span, about["service.name"]) for span in scope.spans)


def _received(span: Any, service: str) -> Received:
    return Received(
        name=span.name,
        service=service,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        attributes={each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
        failed=span.status.code == 2,
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that listens for the duration of a block."""
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            kept.take(self.rfile.read(int(self.headers["Content-Length"])))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        kept.endpoint = f"http://127.0.0.1:{server.server_port}"
        yield kept
