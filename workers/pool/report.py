"""How a task ended, as its worker tells it: the trigger to fire and the metadata that goes with it (SSOT 1.4.4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.execution.finished import Finished
from workers.firing import UNKEPT
from workers.orchestration.commands import tail
from workflows.orchestration.evidence import EXPECTED_EXIT_CODES

ERROR_LIMIT = 2_000  # characters


@dataclass(frozen=True, slots=True)
class Report:
    """What to fire on a task, and what to say with it."""

    trigger: str
    says: Mapping[str, Any]


def of_command(finished: Finished, context: Mapping[str, Any]) -> Report:
    """The report of a command that ran, or could not.

    Args:
        finished: its end.
        context: its task's; `expected_exit_codes` there says what success is.
    """
    says = {
        "exit_code": finished.exit_code,
        "duration_seconds": round(finished.duration_seconds, 3),
        "stdout": tail(finished.stdout),
        "stderr": tail(finished.stderr),
        "cpu_seconds": round(finished.cpu_seconds, 3),
        "max_rss_bytes": finished.max_rss_bytes,
    }
    if finished.succeeded(_expected(context)):
        return Report("execution_completed", says)
    trigger = "timeout_exceeded" if finished.timed_out else "execution_failed"
    return Report(trigger, says | {"error": finished.reason[:ERROR_LIMIT], "timeout_occurred": finished.timed_out})


def of_agent(
    context: Mapping[str, Any], *, exit_code: int | None, error: str | None, output: Mapping[str, Any] | None = None
) -> Report:
    """The report of an external agent: completed if its exit code is expected and it names no error.

    Args:
        context: the task's.
        exit_code: what it ended with; None counts as 0 unless there is an error.
        error: what went wrong, if something did.
        output: what it has to show for it: `stdout` and `stderr` are cut to their ends, anything else is kept.
    """
    code = 0 if exit_code is None and error is None else exit_code
    shown = {name: _tail(said) if isinstance(said, str) else said for name, said in (output or {}).items()}
    says = shown | {"exit_code": code}
    if error is None and code in _expected(context):
        return Report("execution_completed", says)
    return Report("execution_failed", says | {"error": UNKEPT.sub("�", error or f"exit code {code}")[:ERROR_LIMIT]})


def failure(error: str) -> Report:
    """The report of a task that could not be carried out at all."""
    return Report("execution_failed", {"exit_code": None, "error": UNKEPT.sub("�", error)[:ERROR_LIMIT]})


def _tail(text: str) -> str:
    return tail(UNKEPT.sub("�", text))


def _expected(context: Mapping[str, Any]) -> list[int]:
    return list(context.get("expected_exit_codes", EXPECTED_EXIT_CODES))
