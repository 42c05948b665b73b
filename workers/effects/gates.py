"""The effect `run_gate`: runs a gate's command in its workstream's worktree; it passes or fails (GATE-2)."""

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import RowMapping
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.orchestration import commands, workspaces
from interlock.db.orchestration.commands import CommandRow
from interlock.workers.effects import workspace
from interlock.workers.effects.lease import Lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.stored_command import NO_COMMAND, command_of, outcome_metadata
from interlock.workers.effects.workspace import Workplace
from interlock.workers.execution.process import run
from interlock.workers.execution.result import Finished
from interlock.workers.execution.secrets import SecretNotHad
from interlock.workers.git.results import Refusal
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.scheduling.next_trigger import ENDED

TIMED_OUT = 124  # the exit code of timeout(1); the command's own exit code may be an expected one
CANNOT_RUN = 126
NO_PLACE = "it belongs to no workstream, so there is no directory to run it in: name one in its context (workstream_id)"


def run_gate(runtime: Runtime, claimed: RowMapping) -> EffectOutcome:
    """Run a gate's command to its end, under its time limit and its limits on memory and CPU.

    Returns:
        `gate_passed`, or `gate_failed` with the reason. It also fails if the command could not be run, ran out of
        time, or its workstream ended meanwhile.

    Raises:
        StaleLease: the lease was lost; the command has been killed.
        ShimLost, GitFault, RepositoryBusy: try again.
    """
    row, workstream, place = _looked_up(runtime, claimed["workflow_id"])
    if row is None:
        return _never_ran(NO_COMMAND)
    if place is None:
        return _never_ran(NO_PLACE)
    where = place.to_work_in()
    if isinstance(where, Refusal):
        return _never_ran(str(where))
    try:
        command = command_of(row, where, place)
    except (BadInput, SecretNotHad) as unfit:
        return _never_ran(f"its command cannot be run: {unfit}")
    content = place.content
    with place.judged_by_base(), place.watched(f"gate {claimed['workflow_id']}"):
        cancelled = (lambda: _is_over(runtime, workstream)) if workstream else None
        return _judged(row, run(command, on_tick=Lease(runtime, claimed).tick, cancelled=cancelled), content)


def _looked_up(runtime: Runtime, gate_id: UUID) -> tuple[CommandRow | None, UUID | None, Workplace | None]:
    with transaction(runtime.database) as connection:
        row, workstream = commands.of(connection, gate_id), workspaces.of_gate(connection, gate_id)
        if row is None or workstream is None:
            return row, workstream, None
        return row, workstream, workspace.of_workstream(connection, workstream, runtime.settings)


def _is_over(runtime: Runtime, workstream: UUID) -> bool:
    """Whether the workstream has ended, so that nobody waits for the gate."""
    try:
        with transaction(runtime.database) as connection:
            return workspaces.state(connection, workstream) in ENDED["workstream"]
    except DBAPIError as error:
        if not retryable(error):
            raise
        return False  # the lease limits how long the effect goes on without a database


def _judged(row: CommandRow, ended: Finished, content: Mapping[str, str]) -> EffectOutcome:
    message = outcome_metadata(ended) | ({"ran_on": dict(content)} if content else {})
    if ended.succeeded(row.expected_exit_codes):
        return EffectOutcome("gate_passed", message)
    reason = "its workstream ended" if ended.cancelled else ended.reason
    code = TIMED_OUT if ended.timed_out or ended.cancelled else ended.exit_code
    return EffectOutcome("gate_failed", message | {"exit_code": code, "reason": reason})


def _never_ran(reason: str) -> EffectOutcome:
    metadata = {"exit_code": CANNOT_RUN, "stdout": "", "stderr": reason, "duration_sec": 0.0, "reason": reason}
    return EffectOutcome("gate_failed", metadata)
