"""An audit report as a page for people: one HTML file without scripts, made from the signed Statement alone.

The same Statement always gives the same page, so `audit verify-report` makes it again and compares. A change of its
form needs the next number in `report.PAGE`. Every text from elsewhere has control and invisible characters spelled out,
as everywhere, and the tree's serializer escapes it.
"""

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from interlock.workflows.audit.report import AuditReport, Move
from interlock.workflows.input.json_text import printed
from interlock.workflows.output.escaping import shown, shown_lines
from interlock.workflows.output.html_parts import Cell, code, fill, listed, section, table

ENVELOPE_TYPE = "application/vnd.dsse.envelope.v1+json"
OPENING, CLOSING = f'<script type="{ENVELOPE_TYPE}">', "</script>"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --line: #b8bec8; --soft: #eef1f5; --bad: #b00020; --good: #1b6b34; }
@media (prefers-color-scheme: dark) { :root { --line: #4a5260; --soft: #242a33; --bad: #ff8a95; --good: #7fd899; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 78rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
h1, dd, code, pre { overflow-wrap: anywhere; } td { overflow-wrap: break-word; }
code, pre { font: 0.85em/1.45 ui-monospace, monospace; } pre { white-space: pre-wrap; margin: 0.4rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 0.875rem; }
caption { text-align: left; padding-bottom: 0.3rem; }
th, td { border: 1px solid var(--line); padding: 0.3rem 0.5rem; text-align: left; vertical-align: top; }
th { background: var(--soft); } td.n { text-align: right; } td code { display: inline-block; min-width: 8rem; }
.verdict { border: 2px solid var(--good); border-left-width: 0.6rem; padding: 0.2rem 1rem; }
.verdict.bad { border-color: var(--bad); } .verdict.bad strong, .override { color: var(--bad); }
.verdict strong { color: var(--good); } .override { font-weight: 600; }
@page { size: landscape; margin: 12mm; }
@media print {
  body { max-width: none; padding: 0; font-size: 9pt; } .wide { overflow: visible; }
  thead { display: table-header-group; }
  table { font-size: 7.5pt; } td { overflow-wrap: anywhere; } td code { min-width: 0; } h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; }
}
"""


def page(report: AuditReport, envelope: str, signers: Sequence[str]) -> str:
    """The page of a report.

    Args:
        report: as it was parsed from the signed payload.
        envelope: the signed envelope as JSON, of letters, digits and punctuation that HTML does not interpret.
        signers: the ids of the keys that the envelope names.
    """
    html = Element("html", lang="en")
    head, body = SubElement(html, "head"), SubElement(html, "body")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": POLICY})
    SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    SubElement(head, "meta", name="referrer", content="no-referrer")
    SubElement(head, "title").text = title = f"Audit report: {shown(report.scope.name)}"
    SubElement(head, "style").text = STYLE
    main = SubElement(body, "main")
    SubElement(main, "h1").text = title
    for part in _parts(report, signers):
        main.append(part)
    SubElement(body, "script", type=ENVELOPE_TYPE).text = envelope
    return f"<!DOCTYPE html>\n{ElementTree.tostring(html, encoding='unicode', method='html')}\n"


def envelope_in(text: str) -> str | None:
    """The envelope that a page holds; None if it holds none."""
    _, opening, rest = text.partition(OPENING)
    envelope, closing, _ = rest.partition(CLOSING)
    return envelope if opening and closing else None


def _parts(report: AuditReport, signers: Sequence[str]) -> Iterator[Element]:
    names = {each.workflow_id: each.name for each in report.instances}
    yield _verdict(report, names)
    yield _facts(report, signers)
    yield from section("Instances", "Where each stood after its last move in this report.", _instances(report))
    yield from section(
        "Approvals", "Triggers that people decided on, with each vote that is known.", _approvals(report)
    )
    yield from section(
        "Overrides",
        "Moves that operators made by hand, past guards and approvals.",
        table(
            "overrides",
            ("instance", "operator", "reason", "bypassed", "event"),
            (
                (
                    names.get(each.workflow_id),
                    each.operator,
                    each.reason,
                    ", ".join(each.bypassed),
                    code(each.event_id),
                )
                for each in report.overrides
            ),
        ),
    )
    yield from section(
        "Refusals",
        "Triggers that were accepted and then refused, or failed for good, and attempts at what was not the caller's,"
        " as far as they are still known.",
        table(
            "refusals",
            ("time", "instance", "trigger", "by", "login", "status", "why"),
            (
                (each.at, names.get(each.workflow_id), each.trigger, each.by, each.login, each.status, each.message)
                for each in report.refusals
            ),
        ),
    )
    yield from section("Gates", "Which gate ran on which tree, and how it ended.", _gates(report))
    yield from section(
        "Commits",
        "What landed.",
        table(
            "commits",
            ("what", "by", "commit", "tree"),
            ((each.what, each.entity_id, code(each.sha), code(each.tree or "not recorded")) for each in report.commits),
        ),
    )
    yield from section("Moves", "Every move, in the order in which they were committed.", _moves(report, names))
    yield from section("What is not recorded", "", [listed(report.not_recorded)])
    yield from section("Newest anchor", "What was signed last of all chains.", _anchor(report))


def _verdict(report: AuditReport, names: dict[str, str]) -> Element:
    found = report.verification
    whole = not found.problems
    box = Element("section", {"class": "verdict" if whole else "verdict bad", "aria-label": "Verification"})
    read = f"{found.events:,} events of {found.instances:,} instances, {found.anchored_heads:,} anchored hashes."
    said = SubElement(box, "p")
    SubElement(said, "strong").text = "History was whole" if whole else "History was changed"
    said[0].tail = (
        f" when this report was made: every hash, chain, move and state was checked. {read}"
        if whole
        else f" before this report was made. Do not rely on it without looking further. {read}"
    )
    if not whole:
        box.append(
            listed(f"{names.get(each.instance, each.instance)}{each.place}: {each.message}" for each in found.problems)
        )
    return box


def _facts(report: AuditReport, signers: Sequence[str]) -> Element:
    scope = report.scope
    covers = "the instance and what belongs to it, whole" if scope.kind == "instance" else "the moves of a period"
    facts: dict[str, Cell] = {
        "About": f"{scope.name} ({covers})",
        "From": scope.since,
        "Until": f"{scope.until} (not included)" if scope.until else None,
        "Project": scope.project,
        "Made": f"{report.generated_at} by {report.generator}, database login {report.login}",
        "Key": ", ".join(signers),
        "To check": code("interlock audit verify-report FILE"),
    }
    made = Element("dl")
    for name, value in facts.items():
        if value is not None:
            SubElement(made, "dt").text = name
            fill(SubElement(made, "dd"), value)
    return made


NAMED = ("instance", "state", "moves", "created", "context's SHA-256", "bodies' SHA-256", "newest hash", "anchored")


def _instances(report: AuditReport) -> list[Element]:
    rows = (
        (
            each.name + (" (archived)" if each.archived else ""),
            each.state or "not moved yet",
            each.seq,
            ", ".join(filter(None, [each.birth.by, each.birth.proof, each.birth.at, f"version {each.birth.version}"])),
            code(each.birth.context_sha256),
            code(" ".join(f"{kind} {sha256}" for kind, sha256 in (each.birth.bodies or {}).items())),
            code(each.head),
            f"event {each.anchored.seq} by anchor {each.anchored.number}" if each.anchored else "not yet",
        )
        for each in report.instances
    )
    return table("instances", NAMED, rows)


def _approvals(report: AuditReport) -> list[Element]:
    found: list[Element] = []
    for each in report.approvals:
        heading = Element("h3")
        heading.text = f"{shown(each.entity_id)}: {shown(each.state or 'pending')}"
        terms = Element("p")
        deciders = f"one of {', '.join(each.deciders)}" if each.deciders else "anybody but the author"
        terms.text = shown(
            f"{each.trigger or 'a decision'} on {each.subject or 'no instance'}, asked for by "
            f"{each.requested_by or 'nobody named'}; author {each.author or 'not named'}; {each.quorum} needed, "
            f"{deciders}"
        )
        rows = ((vote.at, vote.by, vote.vote, vote.login, code(vote.event_id)) for vote in each.votes)
        found += [heading, terms]
        found += table(f"votes on {each.entity_id}", ("time", "by", "vote", "login", "event"), rows)
    return found


def _gates(report: AuditReport) -> list[Element]:
    rows = (
        (
            each.entity_id,
            " ".join(each.command) if each.command else "not recorded",
            each.result,
            each.exit_code,
            code("\n".join(f"{key} {value}" for key, value in each.ran_on.items()) if each.ran_on else "no worktree"),
        )
        for each in report.gates
    )
    return table("gates", ("gate", "command", "result", "exit code", "ran on"), rows)


def _moves(report: AuditReport, names: dict[str, str]) -> list[Element]:
    columns = ("#", "time", "instance", "move", "by", "right", "event and hash")
    rows = (
        (
            number,
            move["timestamp"],
            names.get(move["context"]["workflow_id"]),
            _move(move),
            move["triggered_by"],
            f"{move['authority']} ({move['proof'] or 'no proof needed'}), login {move['login']}",
            code(f"{move['event_id']}\n{move['hash']}\nafter {move['prev_hash']}"),
        )
        for number, move in enumerate(report.moves, 1)
    )
    return table("moves", columns, rows)


def _move(move: Move) -> Element:
    entry = Element("div")
    seq = move["context"]["seq"]
    entry.text = shown(f"{seq}. {move['from_state']} → {move['to_state']} by {move['trigger']} ({move['severity']})")
    if name := move.get("named_event"):
        SubElement(entry, "div").text = shown(name)
    if move["operator"]:
        override = SubElement(entry, "div", {"class": "override"})
        override.text = shown(f"override by {move['operator']}")
    if move["reason"]:
        SubElement(entry, "div").text = shown(f"why: {move['reason']}")
    if move["metadata"]:
        more = SubElement(entry, "details")
        SubElement(more, "summary").text = f"metadata, version {shown(move['definition_version'])}"
        SubElement(more, "pre").text = shown(printed(move["metadata"]))
    return entry


def _anchor(report: AuditReport) -> list[Element]:
    if report.anchor is None:
        return []
    record, proof = Element("pre"), Element("pre")
    record.text, proof.text = shown_lines(report.anchor.record), shown_lines(report.anchor.proof)
    return [record, proof]
