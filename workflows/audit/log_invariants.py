"""Invariants of events that do not follow from the machine's transitions (EVENT-7)."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from interlock.workflows.audit.events import OVERRIDE, reason_of
from interlock.workflows.audit.log_schema import LogEvent
from interlock.workflows.catalogue import WORKFLOWS
from interlock.workflows.machines.orchestration.task import TASK_1_1

Open = dict[str, dict[str, tuple[str, str]]]  # workstream -> task -> (name, state), for tasks that have not ended

SUCCESS = {"execution_completed", "gate_passed"}  # triggers of a worker or gate that ended with exit code 0
OWN = frozenset(each.type for each in WORKFLOWS.values())
COUNTS = ("retry_count", "current_load", "total_tasks", "completed_tasks", "failed_tasks")


def contradictions(event: LogEvent, type_: str, retries: int, tasks: Open) -> Iterator[str]:
    """Yield the contradictions in an event.

    Args:
        event: a move.
        type_: the entity's type.
        retries: the retry count of the entity's previous event.
        tasks: the log's open tasks; updated here.
    """
    metadata = event.metadata or {}
    yield from _override(event, metadata)
    if is_told_by_interlock(event, type_):
        yield from _numbers(metadata)
        code = metadata.get("exit_code")
        if event.trigger in SUCCESS and code not in (None, 0):
            yield f"metadata.exit_code is {code}; {event.trigger} expects 0"
        if type_ == "task":
            yield from _retry(event, metadata, retries)
    if type_ == "task":
        _keep(event, tasks)
    if type_ == "workstream" and event.to_state == "completed":
        names = [event.context.workflow_id or event.entity_id, event.entity_id]
        for name in dict.fromkeys(names):
            for task, state in sorted(tasks.get(name, {}).values()):
                yield f"workstream completed while its task {task} is in {state!r}; expected it to have ended"


def is_told_by_interlock(event: LogEvent, type_: str) -> bool:
    """Whether Interlock wrote an event's metadata. Others may say in theirs what they like: it contradicts nothing.

    Older logs do not tell by which authority a trigger was fired; all that they have counts as Interlock's.
    """
    return event.authority in (None, "machinery") or (event.authority == "effect" and type_ in OWN)


def _numbers(metadata: Mapping[str, Any]) -> Iterator[str]:
    for name in COUNTS:
        if metadata.get(name) is not None and (type(metadata[name]) is not int or metadata[name] < 0):
            yield f"metadata.{name} is {metadata[name]!r}; expected a whole number of at least 0"
    seconds = metadata.get("duration_seconds")
    if seconds is not None and (not isinstance(seconds, int | float | Decimal) or seconds < 0):
        yield f"metadata.duration_seconds is {seconds!r}; expected seconds of at least 0"
    total, completed, failed = (metadata.get(name) for name in COUNTS[2:])
    if type(total) is type(completed) is type(failed) is int and completed + failed > total:
        yield "metadata: more tasks completed and failed than there are"


def _override(event: LogEvent, metadata: Mapping[str, Any]) -> Iterator[str]:
    operator = event.operator or metadata.get("operator")
    if event.event_type == OVERRIDE and not operator:
        yield "a manual override without its operator"
    if event.event_type == OVERRIDE and not (event.reason or reason_of(metadata)):
        yield "a manual override without a reason"
    if event.event_type != OVERRIDE and event.operator:
        yield f"names the operator {event.operator}; its event_type should be {OVERRIDE}"


def _retry(event: LogEvent, metadata: Mapping[str, Any], retries: int) -> Iterator[str]:
    count, most = metadata.get("retry_count"), metadata.get("max_retries")
    if type(count) is not int:
        return
    if count < retries:
        yield f"metadata.retry_count is {count}, but was {retries} before; it never falls"
    if type(most) is int and count > most:
        yield f"metadata.retry_count is {count}; expected at most max_retries, {most}"


def _keep(event: LogEvent, tasks: Open) -> None:
    workstream = event.context.workstream_id
    if workstream is None:
        return
    own = tasks.setdefault(workstream, {})
    key = event.context.workflow_id or event.entity_id
    if event.to_state in TASK_1_1.terminal:
        own.pop(key, None)
    else:
        own[key] = event.entity_id, str(event.to_state)
