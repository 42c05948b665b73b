"""Builds the command that a plan or an operator gave a task or a gate, and describes how it ended."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from interlock.db.orchestration.commands import CommandRow
from interlock.workers.execution.command import Command
from interlock.workers.execution.result import Finished
from interlock.workers.execution.secrets import resolve
from interlock.workers.isolation.boundary import isolated
from interlock.workflows.machines.orchestration.test_gate import TIMEOUT_SECONDS

if TYPE_CHECKING:  # the client alone, which has no git here, builds reports
    from interlock.workers.effects.workspace import Workplace

TAIL_BYTES = 16 * 1024
NO_COMMAND = "no command, because neither a plan nor an operator made this task or gate; nothing is run for it"


def command_of(
    row: CommandRow,
    directory: Path,
    place: "Workplace",
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    exchange: Path | None = None,
) -> Command:
    """The command that a row describes.

    Args:
        row: as a plan or an operator made it; not of kind `patch`.
        directory: the base of its relative `cwd`: a worktree of the place's repository, or else the plan's folder.
        place: its workstream's: what it sees, which secrets it may name, its limits, and the account it runs as.
        variables: more environment variables; they win.
        exchange: one more directory that it may change.

    Raises:
        BadInput: the row contradicts itself, or asks for what this node does not allow; the message says what to do.
        SecretNotHad: a secret that it names is not available on this node.
    """
    secrets = resolve(place.settings, row.env_from)
    command = Command(
        argv=row.argv,
        cwd=directory / (row.cwd or ""),
        shell=row.kind == "shell",
        env={**row.env, **secrets, **variables},
        timeout_seconds=row.timeout_sec or TIMEOUT_SECONDS,  # a task has a limit of its own since its birth (TASK-8)
        output_limit_bytes=2 * TAIL_BYTES,
        memory_bytes=row.limits.get("memory"),
        cpu_seconds=row.limits.get("cpu_seconds"),
        open_files=row.limits.get("open_files"),
        file_bytes=row.limits.get("file_size"),
        processes=row.limits.get("processes"),
        tree_bytes=row.limits.get("memory"),
        disk_bytes=row.limits.get("disk"),
        secrets=tuple(secrets.values()),
    )
    view = place.view(directory, row.sandbox)
    view = replace(view, places=(*view.places, exchange)) if exchange else view
    return isolated(command, view, place.settings)


def outcome_metadata(ended: Finished) -> dict[str, Any]:
    """An event's metadata of a finished command: exit code, duration, the last 16 KiB of stdout and of stderr."""
    return {
        "exit_code": ended.exit_code,
        "stdout": tail(ended.stdout),
        "stderr": tail(ended.stderr),
        "duration_sec": round(ended.duration_seconds, 3),
        "timed_out": ended.timed_out,
    }


def tail(text: str, limit_bytes: int = TAIL_BYTES) -> str:
    """The end of a text, at most `limit_bytes` of UTF-8."""
    return text.encode(errors="replace")[-limit_bytes:].decode(errors="ignore")
