"""`interlock job`: submit a job, allocate workers to it, end it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text
from rich.tree import Tree

from interlock.cli.jobs.answers import By, Error, Ref, RequestId, answer, lists, ordering, recovered, shows, simple
from interlock.cli.lib.output import AsJson, line, picture, print_json
from interlock.cli.lib.parsing import json_object
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionOrder, Answer
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import JobError, Recovery, recover_job

app = typer.Typer(
    no_args_is_help=True,
    help="Supervised jobs: a job runs once it has all the workers it needs, and waits until then. Anyone may cancel "
    "one; all else only who submitted it or an operator may. Its workers may end it.",
)


@app.command()
def submit(
    description: Annotated[str, typer.Argument(help="What is to be done.")],
    by: By,
    parent: Annotated[str, typer.Option(help="The parent job.")] = "",
    depth: Annotated[int | None, typer.Option(help="0 to 5; with a parent: one more than the parent's.")] = None,
    workers: Annotated[int, typer.Option(help="Number of workers it needs, 1 to 10.")] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds it may run; then it is canceled. Default: INTERLOCK_JOB_TIMEOUT_SECONDS."),
    ] = None,
    retry_of: Annotated[str, typer.Option(metavar="JOB", help="The ended job that it does again.")] = "",
    tool: Annotated[str, typer.Option(help="The tool that it uses: `interlock limit set tool` counts it.")] = "",
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Submit a job.

    \b
    Examples:
      interlock job submit "build the report" --project billing --workers 2
      interlock job submit "build the report" --project billing --workers 2 --retry-of j_1a2b
    """
    order = ActionOrder(by, None, request_id)
    answer(
        lambda c: Jobs(c).submit(
            description,
            parent=parent or None,
            depth=depth,
            worker_count=workers,
            timeout_seconds=timeout,
            retry_of=retry_of or None,
            tool=tool or None,
            order=order,
        ),
        order,
        as_json,
    )


@app.command()
@ordering(answer)
def succeed(
    order: ActionOrder,
    ref: Ref,
    result: Annotated[str, typer.Option(help="JSON object (or @FILE) stored in the event.")] = "",
) -> Callable[[Client], Answer]:
    """Report that a running job succeeded.

    \b
    Example:
      interlock job succeed j_1a2b --result '{"tests": 12}'
    """
    kept = json_object("--result", result) if result else None
    return lambda c: Jobs(c).succeed(ref, order, result=kept)


@app.command("fail")
@ordering(answer)
def fail_job(order: ActionOrder, ref: Ref, error: Error = "") -> Callable[[Client], Answer]:
    """Report that a running job failed.

    \b
    Example:
      interlock job fail j_1a2b --error "no space left"
    """
    return lambda c: Jobs(c).fail(ref, order, error=error or None)


@app.command("recover")
@ordering(recovered, intervening=True)
def recover(
    order: ActionOrder,
    ref: Ref,
    kind: Annotated[JobError, typer.Argument(help="What went wrong.")],
    worker: Annotated[str, typer.Option(help="Which of its workers crashed.")] = "",
    error: Error = "",
) -> Callable[[Client], Recovery]:
    """Handle a job's error by the recovery table of docs/spec/supervision.md.

    \b
    worker_crash          the crashed --worker fails, and a new worker replaces it
    validation            the job fails, or is canceled if it has not run yet
    timeout               the job is canceled
    resource_unavailable  the job waits; its workers are allocated automatically later

    \b
    Example:
      interlock job recover j_1a2b worker_crash --worker w_3c4d --error "signal 9" --by ann --reason "its host is gone"
    """
    return lambda c: recover_job(c, ref, kind, order, error=error or None, worker=worker or None)


@app.command()
def tree(ref: Ref, as_json: AsJson = False) -> None:
    """Show a job and all its descendants.

    \b
    Example:
      interlock job tree j_1a2b
    """
    with Client() as client:
        found = Jobs(client).tree(ref)
    if print_json(found, as_json):
        return
    branches: dict[UUID, Tree] = {}
    for each in found:
        above = branches.get(each["parent_job_id"])
        branches[each["id"]] = above.add(_label(each)) if above else Tree(_label(each))
    picture(branches[found[0]["id"]])


simple(app, "job validate", "Accept a submitted job; it then waits for workers.", Jobs, Jobs.validate)
simple(app, "job allocate", "Allocate a job's workers, if enough are idle.", Jobs, Jobs.allocate)
simple(app, "job cancel", "Cancel a job and its child jobs.", Jobs, Jobs.cancel, why="no longer needed")
shows(app, "job show j_1a2b", "Show a job and its workers.", Jobs)
lists(app, "job list", "List the newest jobs.", "job", Jobs)


def _label(found: Mapping[str, Any]) -> Text:
    return line(f"{found['task_description'][:60]} ", (found["status"], "bold"), f" ({found['entity_id']})")
