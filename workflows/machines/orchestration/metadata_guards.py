"""Guards on a trigger's metadata: an exit code, a worker, a reason, an authority."""

from collections.abc import Callable

from interlock.workflows.definition import Guard
from interlock.workflows.fields import name, names
from interlock.workflows.guard_context import Case
from interlock.workflows.machines.orchestration.fields import uuid

EXPECTED_EXIT_CODES = [0]  # the default, if the context names none
MOST = 2**31  # the limit of its integer column


def _exit_code(case: Case) -> int | None:
    code = case.metadata.get("exit_code")
    return code if type(code) is int and abs(code) < MOST else None  # excludes True, which equals 1


def _expected(case: Case) -> bool:
    return _exit_code(case) in case.context.get("expected_exit_codes", EXPECTED_EXIT_CODES)


def _listed(value: object) -> frozenset[str]:
    return frozenset(value) if isinstance(value, list) and names(value) else frozenset()


def _is_nonblank_text(value: object) -> bool:
    """Whether the value is a text that is not blank. It need not be a name: an effect's reason may be git's output."""
    return isinstance(value, str) and not value.isspace() and bool(value)


def _must(guard: str, key: str, holds: Callable[[object], bool], do: str) -> Guard:
    """The guard that one value of the metadata holds; `do` completes the message "metadata.KEY must …"."""
    return Guard(guard, lambda case: holds(case.metadata.get(key)), f"metadata.{key} must {do}")


exit_code_given = Guard(
    "exit_code_given",
    lambda case: _exit_code(case) is not None,
    "metadata.exit_code must be a whole number",
)

exit_code_expected = Guard(
    "exit_code_expected",
    _expected,
    "metadata.exit_code must be one of the expected exit codes (0 unless the context says others)",
)

exit_code_unexpected = Guard(
    "exit_code_unexpected",
    lambda case: not _expected(case),
    "metadata.exit_code is one of the expected exit codes: that is a success",
)

exit_code_zero = Guard(
    "exit_code_zero",
    lambda case: _exit_code(case) == 0,
    "metadata.exit_code must be 0",
)

task_named = _must("task_named", "task_id", uuid, "be the task's UUID")
worker_named = _must("worker_named", "worker_id", name, "name the worker")
worker_identified = _must("worker_identified", "worker_id", uuid, "be the worker's UUID")

worker_capable = Guard(
    "worker_capable",
    lambda case: (
        _listed(case.context.get("required_capabilities", [])) <= _listed(case.metadata.get("capabilities", []))
    ),
    "metadata.capabilities, the worker's, must include every capability the task requires",
)

task_within_capabilities = Guard(
    "task_within_capabilities",
    lambda case: (
        _listed(case.metadata.get("required_capabilities", [])) <= _listed(case.context.get("capabilities", []))
    ),
    "the task requires capabilities (metadata.required_capabilities) that this worker does not have",
)

reason_given = _must("reason_given", "reason", _is_nonblank_text, "say why")
authorized = _must("authorized", "authorized_by", name, "name who allowed it")
compensated = _must(
    "compensated", "compensation", bool, "say what was done to take the patch back, before the ledger says so"
)
