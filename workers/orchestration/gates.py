"""The effect `run_gate`: a gate's command, run where its workstream works, told as passed or failed (SSOT 2.3)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping
from sqlalchemy.exc import DBAPIError

from db import instances, workplaces
from db.connect import retryable, transaction
from workers.execution.command import Command
from workers.execution.finished import Finished
from workers.execution.run import run
from workers.lease import Lease
from workers.orchestration import workplace
from workers.orchestration.commands import command_of, told
from workers.repository.outcomes import Refusal
from workers.runtime import Runtime
from workers.told import Told
from workflows.errors import BadInput
from workflows.orchestration.evidence import EXPECTED_EXIT_CODES

TIMED_OUT = 124  # as timeout(1) says it; the command's own code may be an expected one
CANNOT_RUN = 126


def run_gate(runtime: Runtime, claimed: RowMapping) -> Told:
    """Run a gate's command to its end, under its time limit and its limits on memory and processor.

    Returns:
        `gate_passed`, or `gate_failed` with the reason: also when it could not be run, ran out of time, or its
        workstream ended meanwhile.

    Raises:
        StaleLease: the lease was lost; the command has been killed.
        WardenLost, GitFault, RepositoryBusy: try again.
    """
    context, where = _looked_up(runtime, claimed["workflow_id"])
    try:
        command = None if isinstance(where, Refusal) else command_of(context, where)
    except (BadInput, ValueError) as unfit:
        return _never_ran(f"its command cannot be run: {unfit}")
    if command is None:
        return _never_ran(str(where))
    return _judged(context, _run(runtime, claimed, context, command))


def _looked_up(runtime: Runtime, gate_id: UUID) -> tuple[Mapping[str, Any], Path | Refusal]:
    with transaction(runtime.database) as connection:
        context: Mapping[str, Any] = instances.find_many(connection, [gate_id])[gate_id]["context"]
        if (workstream := _workstream(context)) is None:
            return context, Path.cwd()
        place = workplace.of_workstream(connection, workstream, runtime.settings)
    return context, place.to_work_in()


def _workstream(context: Mapping[str, Any]) -> UUID | None:
    return UUID(context["workstream_id"]) if context.get("workstream_id") else None


def _run(runtime: Runtime, claimed: RowMapping, context: Mapping[str, Any], command: Command) -> Finished:
    workstream = _workstream(context)
    return run(
        command,
        on_tick=Lease(runtime, claimed).tick,
        cancelled=(lambda: _is_over(runtime, workstream)) if workstream else None,
    )


def _is_over(runtime: Runtime, workstream: UUID) -> bool:
    """Whether nobody waits for the gate any more."""
    try:
        with transaction(runtime.database) as connection:
            return workplaces.state(connection, workstream) in workplace.ENDED
    except DBAPIError as error:
        if not retryable(error):
            raise
        return False  # the lease decides how long to go on without a database


def _judged(context: Mapping[str, Any], ended: Finished) -> Told:
    says = told(ended)
    if ended.succeeded(context.get("expected_exit_codes", EXPECTED_EXIT_CODES)):
        return Told("gate_passed", says)
    reason = "its workstream ended" if ended.cancelled else ended.reason
    code = TIMED_OUT if ended.timed_out or ended.cancelled else ended.exit_code
    return Told("gate_failed", says | {"exit_code": code, "reason": reason})


def _never_ran(reason: str) -> Told:
    says = {"exit_code": CANNOT_RUN, "stdout": "", "stderr": reason, "duration_sec": 0.0, "reason": reason}
    return Told("gate_failed", says)
