"""The git notes of a landing: each commit that landed gets the signed report on it (`refs/notes/interlock`)."""

from collections.abc import Sequence
from uuid import UUID

import structlog

from interlock.workers.audit import reports
from interlock.workers.audit.reports import Wanted
from interlock.workers.effects.workspace import Workplace
from interlock.workers.git import notes, repository
from interlock.workers.git.results import Refusal
from interlock.workers.runtime import Runtime
from interlock.workflows.audit.report import AuditReport, Commit
from interlock.workflows.output.urls import without_users

log = structlog.get_logger()


def write(runtime: Runtime, place: Workplace) -> None:
    """Write the notes of a workstream that has landed; a repeated call writes them again.

    A patch's commit gets the report on the patch, the merge commit that on the workstream. Whatever fails is logged
    (`note_failed`) and left out: the landing is done, and `interlock audit report` can report on it at any time.
    """
    try:
        _write(runtime, place)
    except Exception as error:  # of any kind: the landing must not fail or be repeated for want of a note
        log.warning("note_failed", workstream=place.name, ref=notes.REF, error=without_users(str(error)))


def _write(runtime: Runtime, place: Workplace) -> None:
    found = repository.find(place.checkout)
    if isinstance(found, Refusal):
        log.warning("note_failed", workstream=place.name, ref=notes.REF, error=str(found))
        return
    whole = reports.make_report(runtime, Wanted(place.id), anchoring=False)
    for commit in _landed(whole.report):
        own = commit.what == "merged"
        made = whole if own else reports.make_report(runtime, Wanted(UUID(commit.workflow_id)), anchoring=False)
        notes.write(found, commit.sha, made.envelope.text(), lock_seconds=place.patience_seconds)
        log.info("note_written", workstream=place.name, ref=notes.REF, commit=commit.sha)


def _landed(report: AuditReport) -> Sequence[Commit]:
    """The commits that came into the base branch: none, if the workstream was completed by hand and not merged."""
    landed = {each.workflow_id for each in report.instances if each.state in ("committed", "completed")}
    found = [each for each in report.commits if each.workflow_id in landed]
    return found if any(each.what == "merged" for each in found) else ()
