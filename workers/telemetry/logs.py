"""Structured logs: one JSON object a line in files, readable lines on a terminal.

Whatever is logged while a request or an effect is at work says which (`about`): its id, its instance, its trace.
"""

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any

import structlog
from sqlalchemy import RowMapping

Row = RowMapping | Mapping[str, Any]

# A line for each message, several a second for ever, or two for each move, that say less than the engine's own.
CHATTY = ("celery.beat", "celery.app.trace", "celery.worker.strategy", "transitions")

_at_work: ContextVar[Row | None] = ContextVar("at_work", default=None)


class about:
    """While the block runs, every line says that it is about this row, of `trigger_requests` or of `effects`."""

    __slots__ = ("_row", "_token")

    def __init__(self, row: Row) -> None:
        self._row = row

    def __enter__(self) -> None:
        self._token: Token[Row | None] = _at_work.set(self._row)

    def __exit__(self, *_: object) -> None:
        _at_work.reset(self._token)


def ids(row: Row) -> dict[str, str]:
    """What a row is called: `request_id` or `effect`, `instance`, and `trace_id` where it is traced."""
    known = {"request_id": row["request_id"]} if "request_id" in row else {"effect": str(row["id"])}
    known["instance"] = str(row["workflow_id"])
    if trace := row["trace"]:
        known["trace_id"] = trace.split("-")[1]
    return known


def _identify(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    row = _at_work.get()
    return event if row is None else ids(row) | event


def configure(level: int = logging.INFO) -> None:
    """Send structlog and the standard library's loggers to standard error, in one form."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _identify,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    final: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not sys.stderr.isatty():
        final.append(structlog.processors.format_exc_info)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer]))
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
