"""A worker's report on how a task ended: the trigger to fire, and its metadata (TASK-4)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from interlock.workers.effects.stored_command import tail
from interlock.workers.execution.result import Finished
from interlock.workers.pool.output_files import LOG_FILE, Kept, as_metadata
from interlock.workflows.errors import BadInput
from interlock.workflows.input.names import UNKEPT
from interlock.workflows.machines.orchestration.metadata_guards import EXPECTED_EXIT_CODES
from interlock.workflows.output.escaping import last_line

ERROR_LIMIT = 2_000  # characters


@dataclass(frozen=True, slots=True)
class Report:
    """The trigger to fire on a task, and its metadata."""

    trigger: str
    metadata: Mapping[str, Any]


def of_command(
    finished: Finished, expected_exit_codes: Collection[int], kept: Kept, result: Callable[[], Mapping[str, Any]]
) -> Report:
    """The report of a command that ran, or could not be started.

    Args:
        finished: how it ended.
        expected_exit_codes: those that mean success.
        kept: the file with its output.
        result: reads what it gave as its result, as metadata; asked if it succeeded. If that raises `BadInput`, the
            task failed.
    """
    metadata = {
        "exit_code": finished.exit_code,
        "duration_seconds": round(finished.duration_seconds, 3),
        "stdout": tail(finished.stdout),
        "stderr": tail(finished.stderr),
        "cpu_seconds": round(finished.cpu_seconds, 3),
        "max_rss_bytes": finished.max_rss_bytes,
        "output": as_metadata(kept),
    }
    if finished.succeeded(expected_exit_codes):
        try:
            return Report("execution_completed", {**metadata, **result()})
        except BadInput as wrong:
            unfit = {"error": str(wrong)[:ERROR_LIMIT], "timeout_occurred": False}
            return Report("execution_failed", metadata | unfit)
    trigger = "timeout_exceeded" if finished.timed_out else "execution_failed"
    last = last_line(finished.stderr) or last_line(finished.stdout) if finished.started else ""
    error = ": ".join(filter(None, (finished.reason, last)))
    return Report(trigger, metadata | {"error": error[:ERROR_LIMIT], "timeout_occurred": finished.timed_out})


def of_agent(
    context: Mapping[str, Any],
    *,
    exit_code: int | None,
    error: str | None,
    output: Mapping[str, Any] | None = None,
    result: Any = None,
    logged: Kept | None = None,
) -> Report:
    """The report of an external agent: completed if its exit code is expected and it names no error.

    Args:
        context: the task's.
        exit_code: None counts as 0 unless there is an error.
        error: what went wrong, if anything.
        output: what it did: texts, such as `stdout`, are cut to their ends; other values are kept.
        result: for later tasks, if it completed; None: none.
        logged: the file of what it said while it worked; None: nothing, here.
    """
    code = 0 if exit_code is None and error is None else exit_code
    shown = {
        name: tail(UNKEPT.sub("�", value)) if isinstance(value, str) else value
        for name, value in (output or {}).items()
    }
    message = shown | {"exit_code": code} | ({LOG_FILE: as_metadata(logged)} if logged else {})
    if error is None and code in context.get("expected_exit_codes", EXPECTED_EXIT_CODES):
        return Report("execution_completed", message if result is None else message | {"result": result})
    return Report("execution_failed", message | {"error": UNKEPT.sub("�", error or f"exit code {code}")[:ERROR_LIMIT]})


def failure(error: str) -> Report:
    """The report of a task that could not be carried out at all."""
    return Report("execution_failed", {"exit_code": None, "error": UNKEPT.sub("�", error)[:ERROR_LIMIT]})
