"""The command of a task's or a gate's context, and how its end is told."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.execution.command import Command
from workers.execution.finished import Finished

TAIL_BYTES = 16 * 1024
TIMEOUT_SECONDS = 1800.0  # SSOT 6.3, ruling 7


def command_of(context: Mapping[str, Any], directory: Path) -> Command:
    """What a context asks to be run.

    Args:
        context: `command` (a list; a text is split as a shell would) or, with `shell`, one line for it; `env`, `cwd`,
            `limits` (`memory` in bytes, `cpu_seconds`), `timeout_sec`.
        directory: what `cwd` is relative to.

    Raises:
        BadInput: it contradicts itself.
        ValueError: a text has an open quote.
    """
    said, shell = context["command"], bool(context.get("shell"))
    words = (said,) if shell else shlex.split(said) if isinstance(said, str) else said
    limits = context.get("limits") or {}
    return Command(
        argv=tuple(words),
        cwd=directory / (context.get("cwd") or ""),
        shell=shell,
        env=context.get("env") or {},
        timeout_seconds=float(context.get("timeout_sec", TIMEOUT_SECONDS)),
        output_limit_bytes=2 * TAIL_BYTES,
        memory_bytes=limits.get("memory"),
        cpu_seconds=limits.get("cpu_seconds"),
    )


def told(ended: Finished) -> dict[str, Any]:
    """An event's words for how a command ended; of its output the last 16 KB each."""
    return {
        "exit_code": ended.exit_code,
        "stdout": tail(ended.stdout),
        "stderr": tail(ended.stderr),
        "duration_sec": round(ended.duration_seconds, 3),
        "timed_out": ended.timed_out,
    }


def tail(text: str, limit_bytes: int = TAIL_BYTES) -> str:
    """The end of a text, at most so many bytes of UTF-8."""
    return text.encode(errors="replace")[-limit_bytes:].decode(errors="ignore")
