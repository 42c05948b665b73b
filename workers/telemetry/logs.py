"""Structured logs: one JSON object a line in files, readable lines on a terminal.

Lines logged while a request or an effect is processed (`log_context`) have its id, its instance and its trace.
"""

import logging
import sys
from contextlib import nullcontext, suppress
from contextvars import ContextVar, Token
from textwrap import indent
from typing import Any, Protocol, TextIO

import structlog

from interlock.workflows.output.escaping import json_text, shown, shown_lines
from interlock.workflows.output.urls import without_users

# These log each message, several a second, or two lines per move, with less content than the engine's own lines.
CHATTY = ("celery.beat", "celery.app.trace", "celery.worker.strategy", "transitions")
SENSITIVE = ("apprise",)  # their lines may quote a target's URL; we log the errors ourselves


class Row(Protocol):
    """Columns by their names. Not SQLAlchemy's own type: commands that use no database need not import it."""

    def __getitem__(self, name: str, /) -> Any: ...

    def __contains__(self, name: object, /) -> bool: ...


_at_work: ContextVar[Row | None] = ContextVar("at_work", default=None)


class log_context:
    """While the block runs, every line has the ids of this row, of `trigger_requests` or of `effects`."""

    __slots__ = ("_row", "_token")

    def __init__(self, row: Row) -> None:
        self._row = row

    def __enter__(self) -> None:
        self._token: Token[Row | None] = _at_work.set(self._row)

    def __exit__(self, *_: object) -> None:
        _at_work.reset(self._token)


def ids(row: Row) -> dict[str, str]:
    """A row's ids: `request_id` or `effect`, `instance`, and `trace_id` if it is traced."""
    known = {"request_id": row["request_id"]} if "request_id" in row else {"effect": str(row["id"])}
    known["instance"] = str(row["workflow_id"])
    if trace := row["trace"]:
        known["trace_id"] = trace.split("-")[1]
    return known


def _identify(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    row = _at_work.get()
    return event if row is None else ids(row) | event


def _without_secrets(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Removes the passwords from URLs in whatever was logged."""
    return {name: without_users(each) if isinstance(each, str) else each for name, each in event.items()}


def _as_json(_logger: object, _method: str, event: dict[str, Any]) -> str:
    try:
        return json_text(event, default=repr)
    except (TypeError, ValueError):  # a key that JSON cannot have, or a value within itself
        known = {name: str(event.get(name)) for name in ("event", "level", "timestamp")}
        return json_text(known | {"values": repr(event)})


def _visible(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """On a terminal, makes control characters visible, so that no text can hide or fake a line; indents tracebacks."""
    return {
        name: indent(shown_lines(each), "  ") if name == "exception" else shown(each) if isinstance(each, str) else each
        for name, each in event.items()
    }


class Lines:
    """Where structlog's lines end: in the stream of the handler of all others, which has the lock for both."""

    def __init__(self, handler: "logging.StreamHandler[TextIO]") -> None:
        self._handler = handler

    def msg(self, line: str) -> None:
        """Write a line. One that cannot be written is lost: what it tells of goes on."""
        with suppress(Exception), self._handler.lock or nullcontext():
            self._handler.stream.write(line + self._handler.terminator)
            self._handler.flush()

    debug = info = warning = error = critical = msg


def configure(level: int = logging.INFO) -> None:
    """Send structlog and the standard library's loggers to standard error, in one format."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _identify,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    terminal = sys.stderr.isatty()
    final: list[Any] = [structlog.processors.format_exc_info, _without_secrets]
    final += [_visible, structlog.dev.ConsoleRenderer()] if terminal else [_as_json]
    handler = logging.StreamHandler(sys.stderr)
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[meta, *final]))
    structlog.configure(  # by way of a record of the standard library's, each line would cost twice as much
        processors=[*shared, *final],
        logger_factory=lambda *_: Lines(handler),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    for sensitive in SENSITIVE:
        logging.getLogger(sensitive).setLevel(logging.CRITICAL)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
