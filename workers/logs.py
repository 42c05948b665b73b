"""Structured logs: one JSON object a line in files, readable lines on a terminal."""

import logging
import sys
from typing import Any

import structlog


def configure(level: int = logging.INFO) -> None:
    """Send structlog and the standard library's loggers to standard error, in one form."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
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
    for chatty in ("celery.beat", "celery.app.trace", "celery.worker.strategy"):
        # A line for each message, several a second for ever, that says less than the engine's own.
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
