"""`interlock job`: submit a job, give it workers, end it (MVP, section 2)."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape
from rich.tree import Tree

from cli.output import AsJson, console, print_json
from cli.reading import json_object
from cli.supervised import By, Error, Limit, Reason, Ref, RequestId, Status, answer, detail, newest, recovered, simple
from workers.client import Client
from workers.supervision.acting import SUPERVISOR, Order
from workers.supervision.jobs import Jobs
from workers.supervision.recovery import JobError, recover_job

RECOVER_HELP = """Do about a job's error what the MVP's table says (seed 002, section 4.2).

\b
worker_crash          the crashed --worker fails, a new one starts in its place
validation            it fails; before it ran it is canceled
timeout               cancel it
resource_unavailable  it waits; its workers are asked for again by themselves

\b
Example:
  interlock job recover j_1a2b worker_crash --worker w_3c4d --error "signal 9"
"""

app = typer.Typer(no_args_is_help=True, help="Jobs: they run with all the workers they ask for, or wait.")


@app.command()
def submit(
    description: Annotated[str, typer.Argument(help="What is to be done.")],
    project: Annotated[UUID | None, typer.Option(help="The project's UUID; unset: its parent's.")] = None,
    parent: Annotated[str, typer.Option(help="The job it is a part of.")] = "",
    depth: Annotated[int | None, typer.Option(help="0 to 5; below a parent: the parent's and one more.")] = None,
    workers: Annotated[int, typer.Option(help="How many workers it needs, 1 to 10.")] = 1,
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Submit a job.

    \b
    Example:
      interlock job submit "build the report" --project 7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11 --workers 2
    """
    order = Order(by, None, request_id)
    answer(
        lambda c: Jobs(c).submit(
            description, project_id=project, parent=parent or None, depth=depth, worker_count=workers, order=order
        ),
        as_json,
    )


@app.command()
def succeed(
    ref: Ref,
    result: Annotated[str, typer.Option(help="JSON object (or @FILE) kept with the event.")] = "",
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Say that a running job is finished.

    \b
    Example:
      interlock job succeed j_1a2b --result '{"tests": 12}'
    """
    kept, order = json_object("--result", result) if result else None, Order(by, reason or None, request_id)
    answer(lambda c: Jobs(c).succeed(ref, order, result=kept), as_json)


@app.command("fail")
def fail_job(
    ref: Ref,
    error: Error = "",
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Say that a running job failed.

    \b
    Example:
      interlock job fail j_1a2b --error "no space left"
    """
    order = Order(by, reason or None, request_id)
    answer(lambda c: Jobs(c).fail(ref, order, error=error or None), as_json)


@app.command("recover", help=RECOVER_HELP)
def recover(
    ref: Ref,
    kind: Annotated[JobError, typer.Argument(help="What went wrong.")],
    worker: Annotated[str, typer.Option(help="Which of its workers crashed.")] = "",
    error: Error = "",
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Recover from a job's error."""
    order = Order(by, reason or None, request_id)
    recovered(lambda c: recover_job(c, ref, kind, order, error=error or None, worker=worker or None), as_json)


@app.command("show")
def show_job(ref: Ref, as_json: AsJson = False) -> None:
    """Show a job and its workers.

    \b
    Example:
      interlock job show j_1a2b
    """
    detail(lambda client: Jobs(client).show(ref), as_json)


@app.command("list")
def list_jobs(
    status: Status = "",
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs.

    \b
    Example:
      interlock job list --status RUNNING
    """
    newest("job", lambda client: Jobs(client).newest(status=status or None, limit=limit), status, as_json)


@app.command()
def tree(ref: Ref, as_json: AsJson = False) -> None:
    """Show a job and all below it.

    \b
    Example:
      interlock job tree j_1a2b
    """
    with Client() as client:
        found = Jobs(client).tree(ref)
    if as_json:
        print_json(found)
        return
    branches: dict[UUID, Tree] = {}
    for each in found:
        above = branches.get(each["parent_job_id"])
        branches[each["id"]] = above.add(_label(each)) if above else Tree(_label(each))
    console.print(branches[found[0]["id"]])


simple(app, "job validate", "Accept a submitted job; now it waits.", lambda c, ref, order: Jobs(c).validate(ref, order))
simple(
    app, "job allocate", "Give it its workers, if enough are idle.", lambda c, ref, order: Jobs(c).allocate(ref, order)
)
simple(app, "job cancel", "Cancel a job and its children.", lambda c, ref, order: Jobs(c).cancel(ref, order))


def _label(found: Mapping[str, Any]) -> str:
    return f"{escape(found['task_description'][:60])} [bold]{found['status']}[/] ({found['entity_id']})"
