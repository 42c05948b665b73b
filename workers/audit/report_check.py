"""`audit verify-report`: checks a report from its file alone, without the database."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from interlock.workers.audit import envelopes
from interlock.workers.audit.envelopes import Envelope, NotAnEnvelope
from interlock.workers.audit.reports import page_of
from interlock.workers.audit.signed_checkpoints import proof_of
from interlock.workflows.audit import report as form
from interlock.workflows.audit.report import AuditReport
from interlock.workflows.audit.report_contradictions import contradictions
from interlock.workflows.audit.report_page import envelope_in
from interlock.workflows.definition import Definition

MOST_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class CheckedReport:
    """A checked file: what is wrong with it (empty: nothing), and the report in it.

    `report` is None where no trusted key signed it, because then nothing in it is to be believed.
    """

    findings: tuple[str, ...]
    report: AuditReport | None


def check(
    text: str,
    keys: Mapping[str, Ed25519PublicKey],
    definitions: Iterable[Definition],
    progress: Callable[[int], None] = lambda _: None,
) -> CheckedReport:
    """Check a report: its signature, its moves' hashes and chains, and that its page shows what was signed.

    Args:
        text: of the page, or the bare envelope; `text_of` reads it from a file.
        keys: the trusted public keys.
        definitions: those that its moves must be legal under.
        progress: called now and then with the number of moves checked so far.

    Raises:
        NotAnEnvelope: it is neither a page with an envelope nor an envelope.
    """
    drawn = text.lstrip().startswith("<")
    found = envelope_in(text) if drawn else text
    if found is None:
        raise NotAnEnvelope("an HTML page without a signed envelope: it is not a report, or its envelope was removed")
    envelope = envelopes.parsed(found, form.PAYLOAD_TYPE)
    if faults := envelopes.faults(envelope, keys):
        return CheckedReport(faults, None)
    try:
        statement = form.parsed(envelopes.payload_of(envelope))
    except ValueError as error:
        return CheckedReport((f"signed, but this version cannot read it as a report: {error}",), None)
    findings = [*contradictions(statement, definitions, progress), *_anchor(statement.predicate, keys)]
    if drawn:
        findings += _page(text, envelope, statement.predicate)
    return CheckedReport(tuple(findings), statement.predicate)


def text_of(path: Path) -> str:
    """The text of a report's file.

    Raises:
        NotAnEnvelope: it is too large, or not UTF-8.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise NotAnEnvelope(f"larger than {MOST_BYTES >> 30} GiB: it is not a report")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise NotAnEnvelope(f"not UTF-8 text, so it is not a report: {error}") from error


def _page(text: str, envelope: Envelope, report: AuditReport) -> Iterator[str]:
    if report.page != form.PAGE:
        yield (
            f"its page has the form {report.page}, this version draws {form.PAGE}: check it with {report.generator}, or"
            " check the envelope alone"
        )
        return
    try:
        drawn = page_of(envelope, report)
    except (KeyError, TypeError, ValueError, AttributeError):  # a move that is no event, as was found before
        drawn = ""
    if text != drawn:
        yield "changed: the page does not show what was signed"


def _anchor(report: AuditReport, keys: Mapping[str, Ed25519PublicKey]) -> Iterator[str]:
    if report.anchor is None:
        return
    _, faults = proof_of(report.anchor.record, report.anchor.proof, keys)
    yield from (f"its anchor: {each}" for each in faults)
