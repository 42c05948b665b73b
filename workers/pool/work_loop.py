"""The work loop of a worker process: claim a task, carry it out, report, until no task fits."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.orchestration.commands import CommandRow
from interlock.db.retry import retried
from interlock.workers import circuit_breakers
from interlock.workers.effects import exchange, patches, workspace
from interlock.workers.effects.stored_command import NO_COMMAND, command_of
from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run
from interlock.workers.git.results import Refusal
from interlock.workers.pool import claims, registration, report
from interlock.workers.pool.claims import Claim, StaleClaim
from interlock.workers.pool.inputs import as_variables
from interlock.workers.pool.output_files import OutputFile, path_of
from interlock.workers.pool.registration import Registration
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import InterlockError

log = structlog.get_logger()

TURN = 200  # tasks per message: then another message continues, so that Celery can renew the process
PATIENCE_SECONDS = 600.0  # how long a report waits for PostgreSQL; by then the worker counts as dead
TICK_SECONDS = 1.0  # how soon a revoked claim stops its command


def work(runtime: Runtime, registered: Registration, *, closing: Callable[[], bool] = lambda: False) -> int:
    """Carry out tasks until none fits this worker, or `closing` says to take no more; how many they were.

    Args:
        runtime: this process's connections.
        registered: this process's worker; it works on nothing else.
        closing: asked before each claim.

    Raises:
        DBAPIError: PostgreSQL is unreachable. A claimed task is given back by the next call, or when the worker was
            silent for too long.
    """
    registration.drop(runtime, registered, "lost hold of it")  # tasks of an earlier call that a fault ended
    for done in range(TURN):
        claim = None if closing() else claims.take(runtime, registered)
        if claim is None:
            return done
        _work_on(runtime, registered, claim)
    runtime.wakeups.work(1)
    return TURN


def _work_on(runtime: Runtime, registered: Registration, claim: Claim) -> None:
    log.info("task_taken", task=claim.task, claim=claim.id, retry=claim.retry_count)
    outcome = carry_out(runtime, claim)

    def finish(before: DBAPIError | None) -> None:
        if before:
            log.warning("report_delayed", error=str(before.orig))
        claims.finish(runtime, registered, claim.token, outcome)

    try:
        retried(finish, patience_seconds=PATIENCE_SECONDS)
    except StaleClaim as stale:
        log.warning("stale_claim", task=claim.task, claim=claim.id, error=str(stale))
    else:
        log.info("task_reported", task=claim.task, claim=claim.id, trigger=outcome.trigger)


def carry_out(runtime: Runtime, claim: Claim) -> Report:
    """Carry out a task. Every way it can end becomes a report.

    Raises:
        DBAPIError: PostgreSQL became unreachable before the task began; it can be given back.
    """
    try:
        return KINDS[claim.kind](runtime, claim)
    except (InterlockError, OSError, ValueError) as fault:
        log.warning("task_not_carried_out", task=claim.task, error=str(fault))
        return report.failure(f"{type(fault).__name__}: {fault}")


def _command(runtime: Runtime, claim: Claim) -> Report:
    if (row := claim.command) is None:
        return report.failure(NO_COMMAND)
    with transaction(runtime.database) as connection:
        place = workspace.of_workstream(connection, claim.workstream_id, runtime.settings)
    directory = place.to_work_in()
    if isinstance(directory, Refusal):
        return report.failure(str(directory))
    with exchange.opened(place, f"{claim.task_id}.{claim.id}", claim.inputs) as exchanged:
        variables = {**as_variables(claim.inputs), **exchanged.variables}
        command = command_of(row, directory, place, variables=variables, exchange=exchanged.directory)

        def carry() -> Report:
            return _ran(runtime, claim, row, command, lambda: exchanged.result(command.secrets))

        with place.watched(f"task {claim.task}"):
            # Without its directory, the plan is at fault and not the tool (BREAKER-8).
            return _guarded(runtime, claim, row.tool, carry) if row.tool and command.cwd.is_dir() else carry()


def _guarded(runtime: Runtime, claim: Claim, tool: str, carry: Callable[[], Report]) -> Report:
    """Run a command whose tool has a breaker. A revoked call does not count against the tool, unless it timed out."""
    with circuit_breakers.calling_for_claim(runtime, claim.project, tool, by="crew", claim_id=claim.id) as call:
        ended = carry()
        if ended.trigger == "execution_completed":
            return ended
        if ended.metadata["timeout_occurred"] or claims.is_current(runtime, claim.token):
            call.failed(str(ended.metadata["error"]))
        else:
            call.void()
        return ended


def _ran(
    runtime: Runtime, claim: Claim, row: CommandRow, command: Command, result: Callable[[], Mapping[str, Any]]
) -> Report:
    def revoked() -> bool:
        try:
            return not claims.is_current(runtime, claim.token)
        except DBAPIError as error:
            if not retryable(error):
                raise
            return False  # nobody can revoke the claim while PostgreSQL is unreachable

    output = OutputFile(
        path_of(runtime.settings, claim.run_id, claim.task_id, claim.id), runtime.settings.task_output_bytes
    )
    try:
        ended = run(command, cancelled=revoked, tick_seconds=TICK_SECONDS, into=output.take)
    finally:
        kept = output.end()
    if kept.fault:
        log.warning("output_not_kept", task=claim.task, claim=claim.id, error=kept.fault)
    return report.of_command(ended, row.expected_exit_codes, kept, result)


def _patch(runtime: Runtime, claim: Claim) -> Report:
    patches.submit(runtime, {"task_id": claim.task_id})
    return Report("execution_completed", {"exit_code": 0})


KINDS: Mapping[str, Callable[[Runtime, Claim], Report]] = {"command": _command, "shell": _command, "patch": _patch}
