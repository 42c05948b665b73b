"""The effect `run_gate`: runs a gate's command in its workstream's worktree; it passes or fails (GATE-2)."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.core import instances, requests
from interlock.db.core.effects import ClaimedEffect
from interlock.db.core.request_rows import internal, of_lease, own_id
from interlock.db.orchestration import commands, workspaces
from interlock.db.orchestration.commands import CommandRow
from interlock.workers.client.partition_drainer import settle
from interlock.workers.effects import workspace
from interlock.workers.effects.lease import Lease
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.stored_command import NO_COMMAND, command_of, outcome_metadata
from interlock.workers.effects.workspace import Workplace
from interlock.workers.execution.command import Command
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


def run_gate(runtime: Runtime, claimed: ClaimedEffect) -> EffectOutcome | Mapping[str, Any]:
    """Run a gate's command to its end, under its time limit and its limits on memory and CPU.

    Returns:
        `gate_passed`, or `gate_failed` with the reason. It also fails if the command could not be run or ran out of
        time. No trigger if the gate has ended without it.

    Raises:
        StaleLease: the lease was lost; the command has been killed.
        NotSettled: its start was accepted but could not be applied in 30 s.
        ShimLost, GitFault, RepositoryBusy: try again.
    """
    if _state(runtime, claimed) in ENDED["test_gate"]:
        return _left_alone(runtime, claimed)
    prepared = _prepared(runtime, claimed["workflow_id"])
    return _never_ran(prepared) if isinstance(prepared, str) else _ran(runtime, claimed, *prepared)


def _prepared(runtime: Runtime, gate_id: UUID) -> tuple[CommandRow, Command, Workplace] | str:
    """What to run, and where; or why it cannot be run."""
    row, place = _looked_up(runtime, gate_id)
    if row is None:
        return NO_COMMAND
    if place is None:
        return NO_PLACE
    where = place.to_work_in()
    if isinstance(where, Refusal):
        return str(where)
    try:
        return row, command_of(row, where, place), place
    except (BadInput, SecretNotHad) as unfit:
        return f"its command cannot be run: {unfit}"


def _ran(
    runtime: Runtime, claimed: ClaimedEffect, row: CommandRow, command: Command, place: Workplace
) -> EffectOutcome | Mapping[str, Any]:
    content = place.content
    with place.judged_by_base(), place.watched(f"gate {claimed['workflow_id']}"):
        if not _started(runtime, claimed):
            return _left_alone(runtime, claimed)
        ended = run(command, on_tick=Lease(runtime, claimed).tick, cancelled=lambda: _has_ended(runtime, claimed))
    return _left_alone(runtime, claimed) if ended.cancelled else _judged(row, ended, content)


def _looked_up(runtime: Runtime, gate_id: UUID) -> tuple[CommandRow | None, Workplace | None]:
    with transaction(runtime.database) as connection:
        row, workstream = commands.of(connection, gate_id), workspaces.of_gate(connection, gate_id)
        if row is None or workstream is None:
            return row, None
        return row, workspace.of_workstream(connection, workstream, runtime.settings)


def _started(runtime: Runtime, claimed: ClaimedEffect) -> bool:
    """Move the gate to `RUNNING` in this process; whether it is there, perhaps by a node that died since."""
    if _state(runtime, claimed) == "RUNNING":
        return True
    start = internal(
        own_id(claimed["id"], claimed["token"], "gate_started"),
        claimed["workflow_id"],
        "gate_started",
        by="effect",
        right=of_lease(claimed["id"], claimed["token"]),
        version=claimed["version"],
        metadata={"effect": claimed["name"]},
    )
    with transaction(runtime.database) as connection:
        requests.accept(connection, [start])
    return bool(settle(runtime, start["request_id"], claimed["workflow_id"])["status"] == "applied")


def _has_ended(runtime: Runtime, claimed: ClaimedEffect) -> bool:
    """Whether the gate has ended without its command: cancelled with its workstream, or out of time."""
    try:
        return _state(runtime, claimed) != "RUNNING"
    except DBAPIError as error:
        if not retryable(error):
            raise
        return False  # the lease limits how long the effect goes on without a database


def _left_alone(runtime: Runtime, claimed: ClaimedEffect) -> Mapping[str, Any]:
    return {"left_alone": _state(runtime, claimed)}


def _state(runtime: Runtime, claimed: ClaimedEffect) -> str:
    with transaction(runtime.database) as connection:
        return str(instances.by_id(connection, claimed["workflow_id"])["current_state"])


def _judged(row: CommandRow, ended: Finished, content: Mapping[str, str]) -> EffectOutcome:
    message = outcome_metadata(ended) | ({"ran_on": dict(content)} if content else {})
    if ended.succeeded(row.expected_exit_codes):
        return EffectOutcome("gate_passed", message)
    code = TIMED_OUT if ended.timed_out else ended.exit_code
    return EffectOutcome("gate_failed", message | {"exit_code": code, "reason": ended.reason})


def _never_ran(reason: str) -> EffectOutcome:
    metadata = {"exit_code": CANNOT_RUN, "stdout": "", "stderr": reason, "duration_sec": 0.0, "reason": reason}
    return EffectOutcome("gate_failed", metadata)
