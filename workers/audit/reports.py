"""Makes audit reports: verifies what a report covers, collects it in one snapshot, signs it, and draws the page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.audit import anchors as anchored
from interlock.db.audit import reports
from interlock.db.audit.reports import Period
from interlock.db.audit.verify import verify_instances
from interlock.db.connection import one_snapshot, transaction
from interlock.db.core import history, instances
from interlock.workers.audit import anchors, chain_heads, envelopes, signing_keys
from interlock.workers.audit.envelopes import Envelope
from interlock.workers.runtime import Runtime
from interlock.workflows.audit import report as form
from interlock.workflows.audit import report_parts
from interlock.workflows.audit.events import line, timestamp
from interlock.workflows.audit.report import AuditReport, Move, Scope
from interlock.workflows.audit.report_page import page
from interlock.workflows.errors import BadInput, Refused
from interlock.workflows.input.json_text import read

MOST = 10_000  # events of a report, unless more are asked for: a page of about 25 MB
MOST_BYTES = 256 * 2**20  # of events: it is signed in one piece, so all of it is in memory several times

Progress = Callable[[int], None]


class ReportTooLarge(Refused):
    """What the report would cover is too much for one file; the message says how much. Ask for a shorter period."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to report on: an instance by a REF, with what belongs to it; or a period, of one project or all."""

    ref: str | UUID | None = None
    period: Period = field(default_factory=Period)
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Covered:
    """What a report covers: its scope, the instances, and of these the moves of a period."""

    scope: Scope
    ids: Sequence[UUID]
    period: Period


class Made(NamedTuple):
    """A signed report."""

    envelope: Envelope
    report: AuditReport

    @property
    def page(self) -> str:
        """The report as an HTML page, with the envelope in it."""
        return page_of(self.envelope, self.report)


def page_of(envelope: Envelope, report: AuditReport) -> str:
    """The page of an envelope's report."""
    return page(report, envelope.text(), [each.keyid for each in envelope.signatures])


def make_report(
    runtime: Runtime,
    wanted: Wanted,
    *,
    most: int = MOST,
    most_bytes: int = MOST_BYTES,
    progress: Progress = lambda _: None,
    anchoring: bool = True,
) -> Made:
    """Make a report, signed with the key that signs anchors.

    Args:
        runtime: the database, and the directory of the key.
        wanted: what to report on.
        most, most_bytes: how many events it may have at most, and of which size together.
        progress: called now and then with the number of events verified so far.
        anchoring: make an anchor first, so that the report is covered by one.

    Returns:
        The report. If history was changed, `report.verification` says so, and the page says it first.

    Raises:
        UnknownInstance, AmbiguousInstance: no instance has that name, or several have.
        BadInput: nothing moved within the period.
        ReportTooLarge: it would have more events than `most`, or too many bytes.
        KeyFault: there is no key to sign with.
        DBAPIError, OSError: the database is unreachable, or an anchor cannot be filed.
    """
    if anchoring:
        anchors.anchor(runtime)
    with transaction(runtime.database) as connection:
        one_snapshot(connection)
        covered = _covered(connection, runtime, wanted)
        _require_size(connection, covered, most, most_bytes)
        events = history.of_instances(connection, covered.ids, since=wanted.period.since, until=wanted.period.until)
        lines = [line(dict(event)) for event in events]
        payload = form.written(_collected(connection, covered, lines, progress), lines)
        no_anchor = anchored.newest(connection) is None
    signer = signing_keys.signer(runtime.settings.signing_directory, may_make=no_anchor)
    return Made(envelopes.sealed(payload, form.PAYLOAD_TYPE, signer), form.parsed(payload).predicate)


def _covered(connection: Connection, runtime: Runtime, wanted: Wanted) -> Covered:
    period = wanted.period
    if wanted.ref is not None:
        found = instances.find_with_archived(connection, wanted.ref, runtime.settings.project)
        name = f"{found['project']}/{found['workflow_type']}/{found['entity_id']}"
        return Covered(Scope(kind="instance", name=name), reports.belonging(connection, found["id"]), period)
    since, until = (None if each is None else timestamp(each) for each in (period.since, period.until))
    where = f" in project {wanted.project}" if wanted.project else ""
    name = f"moves{where} from {since or 'the beginning'} until {until or 'now'}"
    if not (ids := reports.moved(connection, period, wanted.project)):
        raise BadInput(f"there are no {name}. Choose another period or project")
    return Covered(Scope(kind="period", name=name, since=since, until=until, project=wanted.project), ids, period)


def _require_size(connection: Connection, covered: Covered, most: int, most_bytes: int) -> None:
    count, size = reports.size(connection, covered.ids, covered.period)
    if count > most:
        raise ReportTooLarge(
            f"{count:,} events; a report has at most {most:,}. Ask for a shorter period, or for more with --most"
        )
    if size > most_bytes:
        raise ReportTooLarge(
            f"{count:,} events of about {size >> 20:,} MiB; a report has at most {most_bytes >> 20} MiB. Ask for less"
        )


def _collected(connection: Connection, covered: Covered, lines: Sequence[str], progress: Progress) -> AuditReport:
    ids = covered.ids
    moves: list[Move] = [read(each) for each in lines]
    rows = reports.instances(connection, ids)
    heads = anchored.heads_of(connection, ids)
    verdict = verify_instances(connection, ids, progress)
    for workflow_id, seq, gone in anchored.missing_of(connection, [head for _, head in heads]):
        chain_heads.note_lost(verdict, workflow_id, seq, gone, "an anchor")
    now, login = connection.exec_driver_sql("SELECT now(), session_user::text").one()
    last = anchors.last(connection)
    commands = {str(key): value for key, value in reports.commands(connection, ids).items()}
    return AuditReport(
        page=form.PAGE,
        generator=f"interlock {version('interlock')}",
        generated_at=timestamp(now),
        login=login,
        scope=covered.scope,
        verification=form.Verification(
            instances=verdict.instances,
            events=verdict.transitions,
            anchored_heads=len(heads),
            problems=tuple(
                form.ReportedProblem(instance=each.instance, seq=each.seq, message=each.message)
                for each in verdict.problems
            ),
        ),
        anchor=form.Anchor(**last) if last else None,
        instances=tuple(_instances(rows, moves, heads)),
        approvals=tuple(_approvals(connection, rows, moves)),
        overrides=report_parts.overrides(moves),
        refusals=(
            *map(_refusal, reports.refused(connection, ids, covered.period)),
            *map(_attempt, reports.attempts(connection, ids, covered.period)),
        ),
        gates=report_parts.gates(moves, commands),
        commits=report_parts.commits(moves),
        not_recorded=form.NOT_RECORDED,
    )


def _instances(
    rows: Sequence[RowMapping], moves: Sequence[Move], heads: Sequence[tuple[int, anchored.Head]]
) -> Iterator[form.ReportedInstance]:
    last = {move["context"]["workflow_id"]: move for move in moves}
    signed = {head.workflow_id: form.Anchored(number=number, seq=head.seq) for number, head in heads}
    for row in rows:
        move = last.get(str(row["id"]))
        birth = form.ReportedBirth(
            by=row["created_by"],
            at=timestamp(row["created_at"]),
            version=row["born_version"],
            context_sha256=bytes(row["context_sha256"]).hex(),
            bodies=row["bodies"],
            proof=row["born_proof"],
            hash=bytes(row["birth_hash"]).hex(),
        )
        yield form.ReportedInstance(
            workflow_id=str(row["id"]),
            type=row["workflow_type"],
            entity_id=row["entity_id"],
            project=row["project"],
            birth=birth,
            seq=move["context"]["seq"] if move else 0,
            head=move["hash"] if move else birth.hash,
            state=move["to_state"] if move else None,
            anchored=signed.get(row["id"]),
            archived=row["archived"],
        )


def _approvals(connection: Connection, rows: Sequence[RowMapping], moves: Sequence[Move]) -> Iterator[form.Approval]:
    found = [row for row in rows if row["workflow_type"] == "approval"]
    votes: dict[str, list[form.Vote]] = {str(row["id"]): [] for row in found}
    states: dict[str, str] = {}
    for move in moves:
        if (approval := move["context"]["workflow_id"]) not in votes:
            continue
        states[approval] = move["to_state"]
        if move["authority"] == "decider":
            votes[approval].append(_vote(move))
    for row in found:
        context: Mapping[str, object] = row["context"]
        subject, trigger, asked, author = (
            None if context.get(name) is None else str(context[name])
            for name in ("subject", "trigger", "requested_by", "author")
        )
        deciders = context.get("deciders")
        quorum = context.get("quorum")
        yield form.Approval(
            workflow_id=str(row["id"]),
            entity_id=row["entity_id"],
            subject=subject,
            trigger=trigger,
            requested_by=asked,
            author=author,
            quorum=min(quorum, form.MOST) if type(quorum) is int else 1,
            deciders=tuple(map(str, deciders)) if isinstance(deciders, list) else (),
            state=states.get(str(row["id"])),
            votes=tuple(votes[str(row["id"])]),
        )


def _vote(move: Move) -> form.Vote:
    return form.Vote(
        by=move["triggered_by"],
        vote=move["trigger"],
        at=move["timestamp"],
        request_id=move["request_id"],
        authority=move["authority"],
        proof=move["proof"],
        login=move["login"],
        event_id=move["event_id"],
    )


def _refusal(row: RowMapping) -> form.ReportedRefusal:
    result: Mapping[str, object] = row["result"] or {}
    settled: datetime = row["finished_at"] or row["accepted_at"]
    code = str(result["code"]) if "code" in result else None
    return _refused(row, row["status"], code, str(result.get("message") or row["error"] or ""), settled)


def _attempt(row: RowMapping) -> form.ReportedRefusal:
    return _refused(row, "refused", None, row["message"], row["created_at"])


def _refused(row: RowMapping, status: str, code: str | None, message: str, at: datetime) -> form.ReportedRefusal:
    return form.ReportedRefusal(
        request_id=row["request_id"],
        workflow_id=str(row["workflow_id"]),
        trigger=row["trigger"],
        by=row["triggered_by"],
        authority=row["authority"],
        login=row["login"],
        status=status,
        code=code,
        message=message,
        at=timestamp(at),
    )
