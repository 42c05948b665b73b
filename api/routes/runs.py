"""Runs of plans: submit a plan, list and show runs, cancel, resume and retry, read logs and results."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy.util import greenlet_spawn

from interlock.api.access import Called, Caller
from interlock.api.acting import Acting
from interlock.api.inside import inside
from interlock.api.models import Text, TriggerReceipt
from interlock.api.operating import ActOrder, operate_on, require_operator
from interlock.api.outcomes import ACCEPTED, told
from interlock.api.paging import IN_STATE, Paging
from interlock.api.parameters import WAIT_SECONDS, Limit, Project, Wait, one_key, page
from interlock.api.problems import JsonAnswer, creating, documented
from interlock.api.routes import overrides
from interlock.api.rows import only, page_model
from interlock.api.run_logs import LogPart
from interlock.api.run_models import (
    AcceptedRun,
    RunLog,
    RunReason,
    RunResults,
    RunResumption,
    RunState,
    RunSummary,
    RunTree,
)
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.orchestration import plans, results
from interlock.workers.client.receipts import Receipt
from interlock.workers.effects import plan_files
from interlock.workers.orchestration import resume, submission
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.orchestration.submission import Run, Submission
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import AlreadyExists, BadInput, UnknownInstance
from interlock.workflows.input.limits import PRIORITIES
from interlock.workflows.input.names import reason
from interlock.workflows.plan.plan import Plan
from interlock.workflows.plan.read import read_plan

router = APIRouter(tags=["runs"])

NO_FOLDER = "/"  # of a plan that names none; none of its paths is then where a plan's may be
PART_BYTES, MOST_BYTES = 65_536, 1_048_576
PLAN: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The plan, as `interlock run` takes it; `interlock run --schema` prints its JSON Schema.",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["name", "workstreams"]}},
            "application/yaml": {"schema": {"type": "string"}},
        },
    }
}


@router.post(
    "/runs",
    **creating(AcceptedRun, "It was submitted before"),
    openapi_extra=PLAN,
)
async def submit_plan(  # noqa: PLR0917 - what is said beside the plan
    caller: Called,
    request: Request,
    project: Project = None,
    name: Annotated[Text | None, Query(description="The run's name, which is its idempotency key.")] = None,
    priority: Annotated[int, Query(ge=PRIORITIES[0], le=PRIORITIES[-1], description="Higher goes first.")] = 0,
    directory: Annotated[Text, Query(description="On the server: the base of the plan's relative paths.")] = NO_FOLDER,
) -> JsonAnswer:
    """Run a plan, in YAML or JSON. With a `name`, the same plan again answers 200 with the run.

    For operators. Its paths must be in INTERLOCK_API_PLAN_FOLDERS.
    """
    body = await request.body()

    def made() -> tuple[Run, bool]:
        # Before anything is said of the server's files (TOKEN-11).
        require_operator(caller, caller.project(project))
        runtime = caller.access.runtime
        plan = runtime.blocking(lambda: _read(runtime, body))
        if plan.project and project not in (None, plan.project):
            raise BadInput(f"the plan is of project {plan.project!r}, not {project!r}")
        client = caller.client(plan.project or project, write=True)
        wanted = runtime.blocking(
            lambda: _checked(runtime, plan, caller, project=client.project, directory=directory, priority=priority)
        )
        return _delivered(runtime, wanted, submission.require_run_name(name))

    run, new = await caller.access.readiness.attended(greenlet_spawn(made))  # a large plan takes long
    return JsonAnswer(await inside(_accepted, caller, run), 201 if new else 200)


def _read(runtime: Runtime, body: bytes) -> Plan:
    return read_plan(body, name="the plan", phases=plan_files.installation_phases(runtime.settings))


def _checked(
    runtime: Runtime, plan: Plan, caller: Caller, *, project: str, directory: str, priority: int
) -> Submission:
    folder, by = Path(directory), caller.principal
    plan_files.require_within(plan, folder, runtime.settings.api_plan_folders)
    return submission.checked(
        runtime, plan, project=project, by=by.name, directory=folder, priority=priority, proof=by.proof()
    )


def _delivered(runtime: Runtime, wanted: Submission, name: str | None) -> tuple[Run, bool]:
    """The run, and whether it is new; a run of that name that is of the same submission is not (HTTP-7)."""
    try:
        return submission.deliver(runtime, wanted, name), True
    except AlreadyExists:
        with transaction(runtime.database) as connection:
            found = instances.find(connection, str(name), wanted.project, "run")
            kept = plans.of_run(connection, found["id"])
        asked = (wanted.by, wanted.priority, wanted.plan.model_dump(mode="json"), str(wanted.directory))
        if kept is None or asked != (
            found["created_by"],
            found["context"].get("priority"),
            kept["body"],
            kept["directory"],
        ):
            raise
        return Run(found["id"], found["entity_id"], found["project"]), False


def _accepted(caller: Caller, run: Run) -> dict[str, Any]:
    with transaction(caller.access.runtime.database) as connection:
        digests: Mapping[str, Any] = instances.by_id(connection, run.id)["bodies"] or {}
    return asdict(run) | {"plan_sha256": digests["plans"]}


@router.get("/runs", response_model=page_model(RunSummary), responses=documented())
async def list_runs(paging: Paging, state: Annotated[RunState | None, IN_STATE] = None) -> JsonAnswer:
    """List runs, newest first, of one project or of all that the token covers."""
    return await paging.page(plans.newest_runs, partial(only, RunSummary), state=state)


@router.get("/runs/{ref}", response_model=RunTree, responses=documented(409, 410))
async def show_run(caller: Called, ref: Text, project: Project = None) -> JsonAnswer:
    """Show a run with its workstreams, tasks, gates and patches. REF is its UUID, or its name in the project."""

    def read() -> dict[str, Any]:
        return Watch(caller.access.runtime, _run(caller, ref, project)).view.as_tree()

    return JsonAnswer(await inside(read))


def _run(caller: Caller, ref: str, project: str | None, *, write: bool = False) -> UUID:
    """The id of the run that a path names. Raises `UnknownInstance` if there is none for this token."""
    return UUID(str(caller.instance(ref, project, "run", write=write)["id"]))


@router.post("/runs/{ref}/cancel", response_model=TriggerReceipt, responses=ACCEPTED | documented(409, 410))
async def cancel_run(acting: Acting, why: RunReason, wait: Wait = WAIT_SECONDS) -> JsonAnswer:
    """Cancel a run: running tasks are stopped, pending ones never start."""
    caller = acting.caller

    def fire() -> Receipt:
        run_id = _run(caller, acting.ref, acting.project, write=True)
        client, by = caller.client(ref=run_id, write=True), caller.principal.name
        data, request_id = {"reason": reason("reason", why.reason)}, one_key(why.request_id, acting.key)
        return client.fire(run_id, "cancel", by=by, request_id=request_id, data=data)

    (outcome,) = await caller.outcomes([await inside(fire)], wait, just_fired=True)
    return told(outcome)


@router.post("/runs/{ref}/resume", status_code=201, response_model=AcceptedRun, responses=documented(409, 410))
async def resume_run(caller: Called, ref: Text, said: RunResumption, project: Project = None) -> JsonAnswer:
    """Run again what a failed or canceled run did not complete, in a new run. For operators."""

    def made() -> Run:
        run_id, by, runtime = _run(caller, ref, project, write=True), caller.principal, caller.access.runtime
        client = caller.client(ref=run_id, write=True)
        require_operator(caller, client.project)
        wanted = resume.resubmission(runtime, run_id, project=client.project, by=by.name, proof=by.proof())
        return submission.deliver(runtime, wanted, said.name)

    run = await caller.access.readiness.attended(greenlet_spawn(made))
    return JsonAnswer(await inside(_accepted, caller, run), 201)


@router.post(
    "/runs/{ref}/workstreams/{workstream}/retry", response_model=overrides.DONE, responses=documented(409, 410)
)
async def retry_run_workstream(
    caller: Called, ref: Text, workstream: Text, said: ActOrder, project: Project = None
) -> JsonAnswer:
    """Do a failed or cancelled workstream again, in its running run. For operators."""

    def found() -> UUID:
        run_id = _run(caller, ref, project, write=True)
        with transaction(caller.access.runtime.database) as connection:
            named = {each["name"]: each["id"] for each in plans.workstreams_of(connection, run_id)}
        if workstream not in named:
            raise UnknownInstance(f"The run has no workstream {workstream!r}. It has: {', '.join(map(str, named))}.")
        return UUID(str(named[workstream]))

    return overrides.told(await operate_on(caller, str(await inside(found)), None, said, retry_workstream))


@router.get("/runs/{ref}/logs", response_model=RunLog, responses=documented(409, 410))
async def read_run_logs(  # noqa: PLR0917 - which part of which output
    caller: Called,
    ref: Text,
    task: Annotated[Text, Query(description="WORKSTREAM/TASK")],
    project: Project = None,
    attempt: Annotated[int, Query(ge=0, le=2**31 - 1, description="From 1 on; 0: the newest.")] = 0,
    after: Annotated[int, Query(ge=0, le=2**40, description="`next` of the part before this one.")] = 0,
    limit: Annotated[int, Query(ge=4, le=MOST_BYTES, description="The most to return, in bytes.")] = PART_BYTES,
    wait: Wait = 0.0,
) -> JsonAnswer:
    """Read what a task printed, part by part. With `wait`, wait for more."""
    run_id = await inside(_run, caller, ref, project)
    part = LogPart(run_id, task, attempt, after, limit)
    if not wait:
        return JsonAnswer(await part.awaited(caller.access, wait))
    with caller.access.waits.held(caller.principal.token_id):
        found = await part.awaited(caller.access, wait)
        await caller.still()
    return JsonAnswer(found)


@router.get("/runs/{ref}/results", response_model=RunResults, responses=documented(409, 410))
async def list_run_results(
    caller: Called,
    ref: Text,
    project: Project = None,
    limit: Limit = 50,
    after: Annotated[UUID | None, Query(description="`next` of the page before this one.")] = None,
) -> JsonAnswer:
    """List a run's ended tasks with their results, in the order of the plan."""

    def read() -> list[dict[str, Any]]:
        run_id = _run(caller, ref, project)
        with transaction(caller.access.runtime.database) as connection:
            return [dict(each) for each in results.of_run(connection, run_id, after=after, limit=limit + 1)]

    return JsonAnswer(page(await inside(read), limit))
