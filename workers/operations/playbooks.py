"""Playbooks as commands (RECOVER-17): they inspect, report, and propose one change at a time.

A playbook is a generator of steps. The caller performs a `ChangeStep` before it asks for the next step, or stops: later
steps rely on the change.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.db.core.requests import PARTITIONS
from interlock.db.operations import stuck
from interlock.db.orchestration import patches
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.operations.doctor import examine
from interlock.workers.operations.rollback import compensation_plan, override_roll_back
from interlock.workers.operations.stuck.detector import late_ids
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.overrides.circuit_breakers import reset_breaker
from interlock.workers.overrides.tasks import fail_task
from interlock.workers.overrides.transaction import Done, OverrideOrder, require_operator
from interlock.workers.overrides.workstreams_and_patches import validate_workstream
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED

VERSION_SECONDS = 60.0


class NothingToRecover(Refused):
    """This playbook does not help in the present state; the message says what would. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Look:
    """A step that reports what was found."""

    message: str
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """A step that changes something: its description, the equivalent command, and `perform`, which reports its work."""

    message: str
    command: str
    perform: Callable[[], Sequence[str]]


Step = Look | ChangeStep
Playbook = Callable[[Runtime, str, OverrideOrder], Iterator[Step]]


@door
def recover_workstream(runtime: Runtime, ref: str, order: OverrideOrder) -> Iterator[Step]:
    """Fail a workstream's tasks that run for too long; then validate the workstream, or resume it (RECOVER-11)."""
    _require_operator(runtime, order, "recover-workstream", ref)
    workstream = _find(runtime, ref, "workstream")
    if workstream["current_state"] in ENDED["workstream"]:
        raise NothingToRecover(
            f"{workstream['entity_id']} has ended as {workstream['current_state']}: `interlock run resume RUN` "
            "repeats what its run did not complete"
        )
    tasks = _tasks(runtime, workstream)
    status = f"{workstream['entity_id']} is {workstream['current_state']}"
    yield Look(f"{status}; its tasks", [_line(each) for each in tasks])
    stuck_ids = late_ids(runtime, "task")
    late = [each for each in tasks if each["state"] == "running" and each["task_id"] in stuck_ids]
    if late and workstream["current_state"] == "executing":
        yield _fire(runtime, workstream, "pause", "pause it: with its last task it would fail at once", order)
    for task in late:
        yield ChangeStep(
            f"give up {task['entity_id']}, which has run for {task['seconds']:.0f} s",
            offered("override", "fail-task", task["task_id"], if_version=task["version"], reason="WHY"),
            partial(_give_up, runtime, task, order),
        )
    workstream, tasks = _find(runtime, ref, "workstream"), _tasks(runtime, workstream)
    given_up = {each["task_id"] for each in late} if order.dry_run else set()
    open_ = [each for each in tasks if each["state"] not in ENDED["task"] and each["task_id"] not in given_up]
    if tasks and not open_ and workstream["current_state"] in ("executing", "paused"):
        yield ChangeStep(
            "all its tasks have ended: let it be validated",
            offered(
                "override", "validate-workstream", workstream["id"], if_version=workstream["version"], reason="WHY"
            ),
            lambda: _finish_override(
                runtime, validate_workstream(runtime, str(workstream["id"]), _at(order, workstream))
            ),
        )
    elif workstream["current_state"] in ENDED["workstream"]:
        yield Look(f"{workstream['entity_id']} is {workstream['current_state']}: a critical task of it has failed", [])
    elif workstream["current_state"] == "paused" or (order.dry_run and late):
        yield _fire(runtime, workstream, "resume", f"{len(open_)} tasks have not ended: let it go on", order)
    else:
        yield Look(f"nothing of it is stuck: {len(open_)} tasks have not ended", [_line(each) for each in open_])


@door
def emergency_rollback(runtime: Runtime, ref: str, order: OverrideOrder) -> Iterator[Step]:
    """Roll back a committed patch by its compensation plan, then run all checks of `doctor` (RECOVER-12)."""
    _require_operator(runtime, order, "emergency-rollback", ref)
    found = _find(runtime, ref, "patch_ledger")
    with transaction(runtime.database) as connection:
        entry = patches.entry(connection, found["id"])
    if entry["state"] != "committed":
        raise NothingToRecover(f"{found['entity_id']} is {entry['state']}: only committed patches are rolled back")
    yield Look(f"{found['entity_id']} is committed as {entry['commit_sha']}")
    plan = compensation_plan(runtime, str(found["id"]))
    yield Look("its compensation plan", [each.model_dump_json() for each in plan.actions])
    yield ChangeStep(
        "take it back",
        offered("override", "rollback-patch", found["id"], reason="WHY"),
        lambda: _finish_override(runtime, override_roll_back(runtime, str(found["id"]), order, plan)),
    )
    if order.dry_run:  # it starts programs
        yield Look("all checks of `interlock doctor` would be made")
        return
    wrong = [f"{each.check}: {each.message}" for each in examine(runtime) if each.level == "fail"]
    yield Look("doctor finds nothing wrong" if not wrong else "doctor finds", wrong)


@door
def reset_circuit_breaker(runtime: Runtime, ref: str, order: OverrideOrder) -> Iterator[Step]:
    """Check that a tool works, if a setting says how, then close its breaker (RECOVER-13)."""
    _require_operator(runtime, order, "reset-breaker", ref)
    found = _find(runtime, ref, "circuit_breaker")
    tool = str(found["context"]["tool_id"])
    yield Look(f"the breaker of {tool} is {found['current_state']}")
    yield _checked(runtime, tool, order)
    yield ChangeStep(
        "close it",
        offered("override", "reset-breaker", found["id"], if_version=found["version"], reason="WHY"),
        lambda: _finish_override(runtime, reset_breaker(runtime, found["id"], _at(order, found))),
    )


PLAYBOOKS: Mapping[str, Playbook] = {
    "recover-workstream": recover_workstream,
    "emergency-rollback": emergency_rollback,
    "reset-breaker": reset_circuit_breaker,
}


def _require_operator(runtime: Runtime, order: OverrideOrder, name: str, ref: str) -> None:
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by, name, ref, project=runtime.settings.project)


def _find(runtime: Runtime, ref: str, type_: str) -> Mapping[Any, Any]:
    with transaction(runtime.database) as connection:
        return instances.find(connection, ref, runtime.settings.project, type_)


def _tasks(runtime: Runtime, workstream: Mapping[Any, Any]) -> Sequence[Mapping[Any, Any]]:
    with transaction(runtime.database) as connection:
        return stuck.tasks_of(connection, workstream["id"])


def _line(task: Mapping[Any, Any]) -> str:
    held = f", by {task['worker']} for {task['seconds']:.0f} s" if task["state"] == "running" else ""
    return f"{task['entity_id']} {task['state']}{held}"


def _fire(
    runtime: Runtime, instance: Mapping[Any, Any], trigger: str, message: str, order: OverrideOrder
) -> ChangeStep:
    def perform() -> Sequence[str]:
        if order.dry_run:
            return [f"{trigger} would be fired"]
        why, seen = {"reason": order.reason}, instance["version"]
        receipt = Client(runtime).fire(instance["id"], trigger, by=order.by, data=why, if_version=seen)
        Drain(runtime).partition(requests.partition_of(instance["id"]))
        (settled,) = Client(runtime).wait([receipt.request_id])
        if settled.status != "applied":
            raise NothingToRecover(f"{trigger} was {settled.status}: {(settled.result or {}).get('message')}")
        return [f"{trigger}: {(settled.result or {})['from']} → {(settled.result or {})['to']}"]

    command = offered("fire", instance["id"], trigger, by=order.by, if_version=instance["version"])
    return ChangeStep(message, command, perform)


def _give_up(runtime: Runtime, task: Mapping[Any, Any], order: OverrideOrder) -> Sequence[str]:
    return _finish_override(runtime, fail_task(runtime, str(task["task_id"]), _at(order, task)))


def _at(order: OverrideOrder, seen: Mapping[Any, Any]) -> OverrideOrder:
    """The order, for the version that was shown: whoever is asked may take their time."""
    return replace(order, if_version=seen["version"])


def _finish_override(runtime: Runtime, done: Done) -> Sequence[str]:
    """What an override did. Its run is scheduled at once, without waiting for the next wake-up."""
    if not done.dry_run:
        for run_id in {each for move in done.moves if (each := _run_of(runtime, move.id))}:
            schedule(runtime, run_id)
        for partition in range(PARTITIONS):
            Drain(runtime).partition(partition)
    moves = [f"{each.instance}: {each.from_state} → {each.to_state} ({each.trigger})" for each in done.moves]
    return [*moves, *done.notes]


def _run_of(runtime: Runtime, instance_id: Any) -> Any:
    with transaction(runtime.database) as connection:
        context = instances.by_id(connection, instance_id)["context"]
    return UUID(context["run_id"]) if context.get("run_id") else None


def _checked(runtime: Runtime, tool: str, order: OverrideOrder) -> Look:
    """Check a tool with the program that the installation names for it; the breaker's name is never executed."""
    program = runtime.settings.programs_of_tools.get(tool)
    if program is None:
        return Look(f"INTERLOCK_TOOL_CHECKS names no program that checks {tool}: see for yourself that it works")
    if order.dry_run:
        return Look(f"{program} --version would be run")
    return Look(f"{tool} works", [_version(tool, program)])


def _version(tool: str, program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise NothingToRecover(
            f"{tool} is not available on this machine ({fault}): install or repair it first"
        ) from fault
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise NothingToRecover(
            f"{program} --version ended with code {done.returncode} ({output[0]}): {tool} is still unhealthy"
        )
    return ((done.stdout or done.stderr).strip().splitlines() or [""])[0]
