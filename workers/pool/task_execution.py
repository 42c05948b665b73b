"""Carry out one claimed task, and say how it ended."""

from collections.abc import Callable, Mapping

import structlog
from sqlalchemy.exc import DBAPIError

from db.connect import retryable, transaction
from workers import breakers
from workers.crew import claims, report
from workers.crew.claims import Claim
from workers.crew.report import Report
from workers.execution.command import Command
from workers.execution.run import run
from workers.orchestration import patches, workplace
from workers.orchestration.commands import command_of
from workers.repository.outcomes import Refusal
from workers.runtime import Runtime
from workflows.errors import InterlockError

log = structlog.get_logger()

TICK_SECONDS = 1.0  # how soon a revoked claim stops its command
TRIAL_GRACE_SECONDS = 30.0  # beyond a task's own time: until then a half-open breaker waits for this call


def carry_out(runtime: Runtime, claim: Claim) -> Report:
    """Do what a task asks for; whatever becomes of it is a report.

    Raises:
        DBAPIError: PostgreSQL went away before it began; the task can be given back.
    """
    try:
        return KINDS[claim.kind](runtime, claim)
    except (InterlockError, OSError, ValueError) as fault:
        log.warning("task_not_carried_out", task=claim.task, error=str(fault))
        return report.failure(f"{type(fault).__name__}: {fault}")


def _command(runtime: Runtime, claim: Claim) -> Report:
    with transaction(runtime.database) as connection:
        place = workplace.of_workstream(connection, claim.workstream_id, runtime.settings)
    directory = place.to_work_in()
    if isinstance(directory, Refusal):
        return report.failure(str(directory))
    command = command_of(claim.context, directory)
    return _guarded(runtime, claim, command) if claim.context.get("tool") else _ran(runtime, claim, command)


def _guarded(runtime: Runtime, claim: Claim, command: Command) -> Report:
    """Run it through its tool's breaker. One that was taken away tells nothing of the tool, unless its time was up."""
    tool, seconds = claim.context["tool"], claim.timeout_seconds + TRIAL_GRACE_SECONDS
    with breakers.calling(runtime, claim.project_id, tool, by="crew", lease_seconds=seconds) as call:
        ended = _ran(runtime, claim, command)
        if ended.trigger == "execution_completed":
            return ended
        if ended.says["timeout_occurred"] or claims.still_held(runtime, claim.token):
            call.failed(str(ended.says["error"]))
        else:
            call.void()
        return ended


def _ran(runtime: Runtime, claim: Claim, command: Command) -> Report:
    ended = run(command, cancelled=_revoked(runtime, claim), tick_seconds=TICK_SECONDS)
    return report.of_command(ended, claim.context)


def _patch(runtime: Runtime, claim: Claim) -> Report:
    patches.submit(runtime, {"task_id": claim.task_id})
    return Report("execution_completed", {"exit_code": 0})


def _revoked(runtime: Runtime, claim: Claim) -> Callable[[], bool]:
    def revoked() -> bool:
        try:
            return not claims.still_held(runtime, claim.token)
        except DBAPIError as error:
            if not retryable(error):
                raise
            return False  # nobody can take the task away while PostgreSQL is away

    return revoked


KINDS: Mapping[str, Callable[[Runtime, Claim], Report]] = {"command": _command, "shell": _command, "patch": _patch}
