"""Guards on what a trigger brings with it: an exit code, a worker, a reason, somebody's authority."""

from workflows.case import Case
from workflows.definition import Guard
from workflows.fields import name, names
from workflows.orchestration.fields import uuid

EXPECTED_EXIT_CODES = [0]  # of a command whose context does not say
MOST = 2**31  # what its column holds


def _exit_code(case: Case) -> int | None:
    code = case.metadata.get("exit_code")
    return code if type(code) is int and abs(code) < MOST else None  # True is no exit code, though it equals 1


def _expected(case: Case) -> bool:
    return _exit_code(case) in case.context.get("expected_exit_codes", EXPECTED_EXIT_CODES)


def _listed(value: object) -> frozenset[str]:
    return frozenset(value) if isinstance(value, list) and names(value) else frozenset()


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

worker_named = Guard(
    "worker_named",
    lambda case: name(case.metadata.get("worker_id")),
    "metadata.worker_id must name the worker",
)

worker_identified = Guard(
    "worker_identified",
    lambda case: uuid(case.metadata.get("worker_id")),
    "metadata.worker_id must be the worker's UUID",
)

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

reason_given = Guard(
    "reason_given",
    lambda case: name(case.metadata.get("reason")),
    "metadata.reason must say why",
)

authorized = Guard(
    "authorized",
    lambda case: name(case.metadata.get("authorized_by")),
    "metadata.authorized_by must name who allowed it",
)

compensated = Guard(
    "compensated",
    lambda case: bool(case.metadata.get("compensation")),
    "metadata.compensation must say what was done to take the patch back, before the ledger says so",
)
