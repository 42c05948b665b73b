"""Reads parts of what tasks of runs printed. Whoever waits for more holds no thread and no connection to PostgreSQL."""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from interlock.api.access import Access
from interlock.api.inside import inside
from interlock.db.connection import transaction
from interlock.db.orchestration import plans
from interlock.workers.pool import attempts
from interlock.workers.pool.attempts import TaskAttempt
from interlock.workers.pool.output_reading import OutputReading, OutputVerdict
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import UnknownInstance
from interlock.workflows.scheduling.next_trigger import ENDED

LOOK_SECONDS = 0.25
TOLD = ("worker", "host", "began_at", "ended_at", "trigger", "exit_code", "error")


@dataclass(frozen=True, slots=True)
class LogPart:
    """Which part of which output.

    Attributes:
        run_id: the run.
        task: its name in the plan: `workstream/task`.
        attempt: which, from 1 on; 0: the newest.
        after: where the part begins, in bytes.
        limit: the most of it, in bytes.
    """

    run_id: UUID
    task: str
    attempt: int
    after: int
    limit: int

    async def awaited(self, access: Access, seconds: float) -> dict[str, Any]:
        """The part as `RunLog`, once it has text or the attempt has ended; after so many seconds as it is."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            async with access.reading_logs:
                found = await inside(self._read, access.runtime)
            if found["text"] or found["ended"] or loop.time() >= until:
                return found
            await asyncio.sleep(min(LOOK_SECONDS, until - loop.time()))

    def _read(self, runtime: Runtime) -> dict[str, Any]:
        with transaction(runtime.database) as connection:
            task = plans.task_named(connection, self.run_id, self.task)
            if task is None:
                raise UnknownInstance(f"The run has no task {self.task!r}: `task` is its full name, WORKSTREAM/TASK.")
            every = attempts.of_task(connection, task["id"])
        number = self.attempt or len(every)
        about = {"task": self.task, "state": task["state"], "attempts": len(every)}
        if not 1 <= number <= len(every):
            over = task["state"] in ENDED["task"]
            nothing = {
                "text": "",
                "next": self.after,
                "reported": {},
                "verified": None,
                "note": "there is no such attempt",
            }
            return about | nothing | {"attempt": None, "ended": over} | dict.fromkeys(TOLD)
        attempt = every[number - 1]
        reading = OutputReading(
            runtime.settings, run_id=self.run_id, task_id=task["id"], kind=task["kind"], attempt=attempt
        )
        part = runtime.blocking(lambda: self._part(reading, attempt))
        return about | {"attempt": number} | {name: getattr(attempt, name) for name in TOLD} | part

    def _part(self, reading: OutputReading, attempt: TaskAttempt) -> dict[str, Any]:
        text, after = reading.part(self.after, self.limit)
        ended = attempt.ended_at is not None and not reading.part(after, self.limit)[0]
        verdict = OutputVerdict(None)
        if ended:
            reading.rest(attempt)
            verdict = reading.verdict()
        reported = dict(attempt.reported) if ended else {}
        told = {"verified": verdict.verified, "note": verdict.note}
        return {"text": text, "next": after, "ended": ended, "reported": reported} | told
