"""`interlock run logs`: what the tasks of a run printed."""

from time import sleep
from typing import Annotated

import typer

from interlock.cli.lib.output import FAILED, AsJson
from interlock.cli.runs.log_lines import LoggedTask, LogLines, Row
from interlock.cli.runs.watch import INTERRUPTED, LOOK_SECONDS
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.orchestration.run_view import RunView, Watch
from interlock.workers.pool import attempts
from interlock.workers.pool.attempts import TaskAttempt
from interlock.workers.pool.output_reading import OutputReading
from interlock.workflows.errors import UnknownInstance
from interlock.workflows.scheduling.next_trigger import ENDED
from interlock.workflows.spelling import meant


def logs(
    ref: Annotated[
        str, typer.Argument(metavar="RUN[/WORKSTREAM[/TASK]]", help="The run's name or UUID; the others by name.")
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the tasks have ended.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="Which attempt; 0: the newest.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what tasks printed, stdout and stderr together, and compare it with its SHA-256 in history.

    Secrets are masked, and control characters escaped. With --json: a list with an object for each task; with --follow
    an object a line for each piece of `text`, and one without for the end of each attempt.

    \b
    Exit code: 1 if a file was changed since history recorded it.

    \b
    Examples:
      interlock run logs nightly/build/compile --follow
      interlock run logs nightly/build/compile --attempt 1
      interlock run logs nightly --json | jq -r '.[] | select(.state == "failed") | .text'
    """
    to = LogLines(as_json=as_json, follow=follow)
    with Client() as client:
        shown = _Logs(client, ref, attempt, to)
        try:
            changed = shown.follow() if follow else shown.once()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    to.finish()
    raise typer.Exit(FAILED if changed else 0)


class _Logs:
    """The output of the tasks that a reference names."""

    def __init__(self, client: Client, ref: str, number: int, to: LogLines) -> None:
        """Raises `UnknownInstance` if there is no such run, or it has no such workstream, task or attempt."""
        name, _, within = ref.partition("/")
        self._client, self._number, self._to = client, number, to
        with transaction(client.runtime.database) as connection:
            run = instances.find(connection, name, client.project, "run")
        self._watch = Watch(client.runtime, run["id"])
        self._tasks = [self._begun(row) for row in _named(self._watch.view, within)]
        to.many = len(self._tasks) > 1

    def once(self) -> bool:
        """Show what there is by now; whether any file was changed."""
        for task in self._tasks:
            self._show(task)
        return self._to.changed

    def follow(self) -> bool:
        """Show what there is and what comes, until all tasks have ended; whether any file was changed."""
        for task in self._tasks:
            task.due = max(1, task.due)
        while True:
            for task in self._tasks:
                self._follow(task)
            if all(map(self._is_over, self._tasks)):
                return self._to.changed
            sleep(LOOK_SECONDS)
            self._watch.look()
            for task in self._tasks:
                self._renew(task)

    def _begun(self, row: Row) -> LoggedTask:
        attempts = self._attempts(row)
        return LoggedTask(row, attempts, self._number or len(attempts))

    def _show(self, task: LoggedTask) -> None:
        if (attempt := task.attempt) is None:
            self._to.no_attempt(task)
            return
        reading = self._reading(task, attempt)
        self._to.piece(task, attempt, reading.rest(attempt))
        self._to.end(task, attempt, reading.verdict())

    def _follow(self, task: LoggedTask) -> None:
        """Show the rest of each attempt that has ended, and what is new of the one that is running."""
        while attempt := task.attempt:
            reading = task.reading = task.reading or self._reading(task, attempt)
            self._to.piece(task, attempt, reading.rest(attempt) if attempt.ended_at else reading.more())
            if attempt.ended_at is None:
                return
            self._to.end(task, attempt, reading.verdict())
            task.reading, task.due = None, task.due + 1
            if self._number:
                task.attempts = []

    def _is_over(self, task: LoggedTask) -> bool:
        shown = self._number and task.due > self._number
        return bool(shown) or (task.attempt is None and task.row["state"] in ENDED["task"])

    def _renew(self, task: LoggedTask) -> None:
        row = self._watch.view.tasks[task.row["id"]]
        if row["version"] != task.row["version"]:
            task.attempts = self._attempts(row)
        task.row = row

    def _attempts(self, row: Row) -> list[TaskAttempt]:
        with transaction(self._client.runtime.database) as connection:
            return attempts.of_task(connection, row["id"])

    def _reading(self, task: LoggedTask, attempt: TaskAttempt) -> OutputReading:
        return OutputReading(
            self._client.runtime.settings,
            run_id=self._watch.view.run["id"],
            task_id=task.row["id"],
            kind=task.row["kind"],
            attempt=attempt,
        )


def _named(view: RunView, within: str) -> list[Row]:
    """The tasks of a run, of one of its workstreams, or the one task; not those that another one replaced."""
    by_name = {str(row["name"] or row["entity_id"]): row for row in view.tasks.values()}
    found = [row for name, row in by_name.items() if within in ("", name, name.partition("/")[0])]
    if not found and within:
        near = meant(within, [*by_name, *(str(row["name"]) for row in view.workstreams.values())])
        raise UnknownInstance(
            f"run {view.run['name']} has no workstream or task {within!r}"
            + (f"; did you mean {near!r}?" if near else "")
        )
    return found
