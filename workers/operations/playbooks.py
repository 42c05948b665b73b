"""Playbooks as commands (SSOT 5.3): they look, say what they saw, and change one thing at a time, when told to.

A playbook is a generator of steps. Whoever walks it carries out a `Change` before asking for the next step, or stops
there: what follows would rest on it.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from db import instances, patches, requests, stuck
from db.connect import transaction
from db.requests import LANES
from workers.client import Client
from workers.doctor import examine
from workers.lanes import Drain
from workers.orchestration.rollback import compensation_plan, override_roll_back
from workers.orchestration.scheduler import schedule
from workers.overrides.operation import Done, Order, require_operator
from workers.overrides.others import reset_breaker, validate_workstream
from workers.overrides.tasks import fail_task
from workers.runtime import Runtime
from workflows.errors import Refused

ENDED = ("completed", "failed", "cancelled")
VERSION_SECONDS = 60.0


class NothingToRecover(Refused):
    """It does not stand where this playbook helps; the message says what would. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen."""

    says: str
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be changed, the command that does the same, and how: `perform` tells what was done."""

    says: str
    command: str
    perform: Callable[[], Sequence[str]]


Step = Look | Change
Playbook = Callable[[Runtime, str, Order], Iterator[Step]]


def recover_workstream(runtime: Runtime, ref: str, order: Order) -> Iterator[Step]:
    """Give up the tasks of a workstream that run for too long, then let it be validated, or go on (SSOT 5.3.1)."""
    _require_operator(runtime, order)
    workstream = _find(runtime, ref, "workstream")
    if workstream["current_state"] in (*ENDED, "skipped"):
        raise NothingToRecover(
            f"{workstream['entity_id']} is {workstream['current_state']}, and stays so: `interlock run resume RUN` "
            "does again what its run did not complete"
        )
    tasks = _tasks(runtime, workstream)
    standing = f"{workstream['entity_id']} is {workstream['current_state']}"
    yield Look(f"{standing}; its tasks", [_line(each) for each in tasks])
    late = [each for each in tasks if each["state"] == "running" and each["seconds"] > _threshold(runtime)]
    if late and workstream["current_state"] == "executing":
        yield _fire(runtime, workstream, "pause", "pause it: with its last task it would fail at once", order)
    for task in late:
        yield Change(
            f"give up {task['entity_id']}, which has run for {task['seconds']:.0f} s",
            f"interlock override fail-task {task['task_id']} --reason WHY",
            partial(_give_up, runtime, str(task["task_id"]), order),
        )
    workstream, tasks = _find(runtime, ref, "workstream"), _tasks(runtime, workstream)
    given_up = {each["task_id"] for each in late} if order.dry_run else set()
    open_ = [each for each in tasks if each["state"] not in ENDED and each["task_id"] not in given_up]
    if tasks and not open_ and workstream["current_state"] in ("executing", "paused"):
        yield Change(
            "all its tasks have ended: let it be validated",
            f"interlock override validate-workstream {workstream['id']} --reason WHY",
            lambda: _told(runtime, validate_workstream(runtime, str(workstream["id"]), order)),
        )
    elif workstream["current_state"] == "paused" or (order.dry_run and late):
        yield _fire(runtime, workstream, "resume", f"{len(open_)} tasks have not ended: let it go on", order)
    else:
        yield Look(f"nothing of it is stuck: {len(open_)} tasks have not ended", [_line(each) for each in open_])


def emergency_rollback(runtime: Runtime, ref: str, order: Order) -> Iterator[Step]:
    """Take a committed patch back, by its compensation plan, and look whether all is well (SSOT 5.3.2, 2.5.4)."""
    _require_operator(runtime, order)
    found = _find(runtime, ref, "patch_ledger")
    with transaction(runtime.database) as connection:
        entry = patches.entry(connection, found["id"])
    if entry["state"] != "committed":
        raise NothingToRecover(f"{found['entity_id']} is {entry['state']}: only committed patches are rolled back")
    yield Look(f"{found['entity_id']} is committed as {entry['commit_sha']}")
    plan = compensation_plan(runtime, str(found["id"]))
    yield Look("its compensation plan", [each.model_dump_json() for each in plan.actions])
    yield Change(
        "take it back",
        f"interlock override rollback-patch {found['id']} --reason WHY",
        lambda: _told(runtime, override_roll_back(runtime, str(found["id"]), order, plan)),
    )
    wrong = [f"{each.check}: {each.says}" for each in examine(runtime) if each.level == "fail"]
    yield Look("doctor finds nothing wrong" if not wrong else "doctor finds", wrong)


def reset_circuit_breaker(runtime: Runtime, ref: str, order: Order) -> Iterator[Step]:
    """See that a tool works, then close its breaker (SSOT 5.3.3)."""
    _require_operator(runtime, order)
    found = _find(runtime, ref, "circuit_breaker")
    tool = str(found["context"]["tool_id"])
    yield Look(f"the breaker of {tool} is {found['current_state']}")
    yield Look(f"{tool} works", [_version(tool)])
    yield Change(
        "close it",
        f"interlock override reset-breaker {found['id']} --reason WHY",
        lambda: _told(runtime, reset_breaker(runtime, found["id"], order)),
    )


PLAYBOOKS: Mapping[str, Playbook] = {
    "recover-workstream": recover_workstream,
    "emergency-rollback": emergency_rollback,
    "reset-breaker": reset_circuit_breaker,
}


def _require_operator(runtime: Runtime, order: Order) -> None:
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by)


def _find(runtime: Runtime, ref: str, type_: str) -> Mapping[Any, Any]:
    with transaction(runtime.database) as connection:
        if "/" not in ref and not _is_uuid(ref):
            ref = f"{type_}/{ref}"
        found = instances.find(connection, ref)
    if found["workflow_type"] != type_:
        raise NothingToRecover(f"{ref} is a {found['workflow_type']}, not a {type_}")
    return found


def _is_uuid(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def _tasks(runtime: Runtime, workstream: Mapping[Any, Any]) -> Sequence[Mapping[Any, Any]]:
    with transaction(runtime.database) as connection:
        return stuck.tasks_of(connection, workstream["id"])


def _threshold(runtime: Runtime) -> float:
    return runtime.settings.stuck_task_seconds or float("inf")


def _line(task: Mapping[Any, Any]) -> str:
    held = f", by {task['worker']} for {task['seconds']:.0f} s" if task["state"] == "running" else ""
    return f"{task['entity_id']} {task['state']}{held}"


def _fire(runtime: Runtime, instance: Mapping[Any, Any], trigger: str, says: str, order: Order) -> Change:
    def perform() -> Sequence[str]:
        if order.dry_run:
            return [f"{trigger} would be fired"]
        receipt = Client(runtime).fire(instance["id"], trigger, by=order.by, data={"reason": order.reason})
        Drain(runtime).lane(requests.lane_of(instance["id"]))
        (settled,) = Client(runtime).wait([receipt.request_id])
        if settled.status != "applied":
            raise NothingToRecover(f"{trigger} was {settled.status}: {(settled.result or {}).get('message')}")
        return [f"{trigger}: {(settled.result or {})['from']} → {(settled.result or {})['to']}"]

    return Change(says, f"interlock fire {instance['id']} {trigger} --by {order.by}", perform)


def _give_up(runtime: Runtime, task: str, order: Order) -> Sequence[str]:
    return _told(runtime, fail_task(runtime, task, order))


def _told(runtime: Runtime, done: Done) -> Sequence[str]:
    """What an override did; its run is brought up to date at once, not at the next hint."""
    if not done.dry_run:
        for run_id in {each for move in done.moves if (each := _run_of(runtime, move.id))}:
            schedule(runtime, run_id)
        for lane in range(LANES):
            Drain(runtime).lane(lane)
    moves = [f"{each.instance}: {each.from_state} → {each.to_state} ({each.trigger})" for each in done.moves]
    return [*moves, *done.notes]


def _run_of(runtime: Runtime, instance_id: Any) -> Any:
    with transaction(runtime.database) as connection:
        context = instances.find(connection, str(instance_id))["context"]
    return UUID(context["run_id"]) if context.get("run_id") else None


def _version(tool: str) -> str:
    program = shutil.which(tool)
    if program is None:
        raise NothingToRecover(f"{tool} is not to be found on this machine: see to that first")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise NothingToRecover(f"{tool} --version ended with code {done.returncode} ({said[0]}): it is still unhealthy")
    return (done.stdout or done.stderr).strip().splitlines()[0]
