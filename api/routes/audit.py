"""Audit: the verification of history that runs by itself, signed reports, and the check of one."""

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, Field

from interlock.api.access import Called, Caller
from interlock.api.inside import inside
from interlock.api.operating import apart
from interlock.api.parameters import Asked, Project
from interlock.api.problems import JsonAnswer, documented
from interlock.db.audit import verification
from interlock.db.audit.reports import Period
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.audit import report_check, signing_keys
from interlock.workers.audit.envelopes import Envelope
from interlock.workers.audit.report_check import CheckedReport
from interlock.workers.audit.reports import Made, Wanted, make_report
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours

router = APIRouter(tags=["audit"])

MOST, MOST_BYTES = 10_000, 16 * 2**20  # events of a report over HTTP: each is in memory several times
USUAL = 1_000


class FoundProblem(BaseModel):
    """What is wrong with an instance's history."""

    instance: str
    seq: int | None
    message: str


class VerificationPass(BaseModel):
    """A pass over all of history. `finished_at` is null while it is under way."""

    started_at: datetime
    finished_at: datetime | None
    problems: list[FoundProblem] = Field(description="of the token's projects; at most 100 of a pass are kept")


class Verifications(BaseModel):
    """The last pass that ended, and the one under way."""

    items: list[VerificationPass]


class ReportCheck(BaseModel):
    """Whether a report is what was signed; `about` is null where no trusted key signed it."""

    ok: bool
    findings: list[str]
    about: str | None
    generated_at: str | None
    instances: int | None
    events: int | None


@router.get("/audit", response_model=Verifications, responses=documented())
async def show_verifications(caller: Called) -> JsonAnswer:
    """Show the verification that runs by itself: the last pass over all of history, and the one under way."""
    return JsonAnswer({"items": await inside(_passes, caller)})


def _passes(caller: Caller) -> list[dict[str, Any]]:
    with transaction(caller.access.runtime.database) as connection:
        found = verification.known(connection)
    return [
        {name: each[name] for name in ("started_at", "finished_at")} | {"problems": _own(caller, each["found"])}
        for each in found
    ]


def _own(caller: Caller, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if caller.principal.projects is None:
        return problems
    ids = [instances.as_uuid(str(each["instance"])) for each in problems]
    projects = caller.access.projects_of([id_ for id_ in ids if id_])
    own = {id_ for id_, project in projects.items() if caller.principal.may_read(project)}
    return [each for each, id_ in zip(problems, ids, strict=True) if id_ in own]


@router.get("/audit/report", response_model=Envelope, responses=documented(409, 410))
async def make_audit_report(  # noqa: PLR0917 - what it is about
    caller: Called,
    instance: Annotated[Asked, Query(description="A REF: the report covers what belongs to it, too.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Or a period: its begin.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Its end (exclusive); default: now.")] = None,
    project: Project = None,
    most: Annotated[int, Query(ge=1, le=MOST, description="The most events.")] = USUAL,
) -> JsonAnswer:
    """Make a signed report on an instance or on a project's moves in a period: an in-toto Statement in a DSSE envelope.

    History is verified first; the report says what was found.
    """
    if (instance is None) == (since is None and until is None):
        raise BadInput("give an instance, or a period with since, until or both")
    of_project, wanted = await inside(_wanted, caller, instance, project, Period(since, until))
    turns = caller.access.reports
    made = await apart(caller, of_project, lambda runtime: _made(runtime, wanted, most), turns)
    if not all(caller.principal.may_read(each.project) for each in made.report.instances):
        raise NotYours("The report covers what is of other projects. Who may: a token that is good for these, too.")
    return JsonAnswer(json.loads(made.envelope.text()))


def _wanted(caller: Caller, instance: str | None, named: str | None, period: Period) -> tuple[str, Wanted]:
    if instance is None:
        project = caller.project(named)
        return project, Wanted(period=period, project=project)
    with caller.located(instance, named) as (client, found):
        shown = client.show(found)
    return client.project, Wanted(str(shown["id"]))


def _made(runtime: Runtime, wanted: Wanted, most: int) -> Made:
    return make_report(runtime, wanted, most=most, most_bytes=MOST_BYTES, anchoring=False)


@router.post("/audit/report/check", response_model=ReportCheck, responses=documented())
async def check_report(caller: Called, envelope: Envelope) -> JsonAnswer:
    """Check a report: a trusted key signed it, each move's hash follows the one before, and each move is legal."""
    usual = caller.access.runtime.settings.project
    checked = await apart(caller, usual, lambda runtime: _checked(runtime, envelope), caller.access.reports)
    report = checked.report
    about = {
        "about": report.scope.name if report else None,
        "generated_at": report.generated_at if report else None,
        "instances": len(report.instances) if report else None,
        "events": len(report.moves) if report else None,
    }
    return JsonAnswer({"ok": not checked.findings, "findings": checked.findings, **about})


def _checked(runtime: Runtime, envelope: Envelope) -> CheckedReport:
    keys = signing_keys.trusted_keys(runtime.settings.signing_directory)
    return report_check.check(envelope.text(), keys, runtime.catalogue)
