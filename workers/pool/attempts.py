"""The attempts at a task, as its history tells them, and what each of them printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.core import history, instances
from interlock.db.core.history import EventRow
from interlock.workers.pool.output_files import LOG_FILE, Kept, from_metadata

STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at a task.

    Attributes:
        number: from 1 on.
        claim: the claim under which it was made, which names its file.
        worker: the name of the worker that made it.
        host: the machine of that worker; None: it did not say, as an agent.
        began_at: when it began.
        ended_at: when it ended; None: it is running.
        trigger: of the event that ended it.
        exit_code: of the command, if its worker reported one.
        error: why it failed, if it did.
        result: as the event has it: `{"result": …}`, or nothing.
        kept: its output's length and digest; None: its worker reported none.
        logged: of an agent, those of what it said while it worked; None: it said nothing.
        reported: what an agent reported as its output: the texts `stdout` and `stderr`, or the ends of them.
    """

    number: int
    claim: int
    worker: str
    host: str | None
    began_at: datetime
    ended_at: datetime | None = None
    trigger: str | None = None
    exit_code: int | None = None
    error: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    kept: Kept | None = None
    logged: Kept | None = None
    reported: Mapping[str, str] = field(default_factory=dict)


def of_task(connection: Connection, task_id: UUID) -> list[TaskAttempt]:
    """The attempts at a live task, oldest first."""
    events = history.of_instance(connection, task_id)
    began = [each for each in events if each["to_state"] == "running" and "claim" in each["metadata"]]
    workers = instances.by_ids(connection, {UUID(str(each["metadata"]["worker_id"])) for each in began})
    hosts = {str(id_): row["context"].get("host") for id_, row in workers.items()}
    return [_attempt(number, each, events, hosts) for number, each in enumerate(began, start=1)]


def _attempt(number: int, start: EventRow, events: Sequence[EventRow], hosts: Mapping[str, Any]) -> TaskAttempt:
    by = start["metadata"]
    end = next((each for each in events if each["seq"] > start["seq"]), None)
    said = end["metadata"] if end else {}
    return TaskAttempt(
        number=number,
        claim=int(by["claim"]),
        worker=str(by["worker"]),
        host=hosts.get(str(by["worker_id"])),
        began_at=start["created_at"],
        ended_at=end["created_at"] if end else None,
        trigger=end["trigger"] if end else None,
        exit_code=code if type(code := said.get("exit_code")) is int else None,
        error=_text(said, "error") or _text(said, "reason"),
        result={"result": said["result"]} if "result" in said else {},
        kept=from_metadata(said.get("output")),
        logged=from_metadata(said.get(LOG_FILE)),
        reported={name: text for name in STREAMS if (text := _text(said, name))},
    )


def _text(said: Mapping[str, Any], name: str) -> str | None:
    """What an event says in words; a claim's holder may have put anything there."""
    return text if isinstance(text := said.get(name), str) else None
