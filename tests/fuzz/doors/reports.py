"""Audit reports: files that anybody may have written, and statements that whoever has the key may have signed."""

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from interlock.workers.audit import envelopes, report_check, signing_keys
from interlock.workers.audit.reports import page_of
from interlock.workers.audit.signing_keys import Signer
from interlock.workflows.audit import report as form
from interlock.workflows.audit.events import born
from interlock.workflows.audit.report import AuditReport
from interlock.workflows.catalogue import catalogue
from tests.fuzz.door import Door, Ground, Target, overwrite
from tests.fuzz.doors.logs import events
from tests.fuzz.shapes import documents, written

SIGNED = b"s"


def _statement() -> Any:
    moves = events()
    first, last = moves[0], moves[-1]
    context: Any = first["context"]
    instance = {
        "workflow_id": context["workflow_id"],
        "type": "story",
        "entity_id": "S-1",
        "project": context["project"],
        "birth": dict(first["birth"]) | {"hash": born(first)},  # type: ignore[call-overload]  # of a dict of objects
        "seq": len(moves),
        "head": last["hash"],
        "state": "blocked",
        "anchored": {"number": 1, "seq": 1},
        "archived": False,
    }
    empty: dict[str, list[Any]] = {
        name: [] for name in ("approvals", "overrides", "refusals", "gates", "commits", "not_recorded")
    }
    about = {
        "page": form.PAGE,
        "generator": "interlock",
        "generated_at": "2026-01-01T00:00:00.000000Z",
        "login": "ann",
        "scope": {"kind": "instance", "name": "S-1"},
        "verification": {"instances": 1, "events": 2, "anchored_heads": 1, "problems": []},
        "anchor": {"record": '{"number": 1}', "proof": "c2sp.org/tlog-proof@v1"},
        "instances": [instance],
    }
    report = AuditReport.model_validate(about | empty)
    return json.loads(form.written(report, [json.dumps(move) for move in moves]))


STATEMENT = _statement()
ENVELOPE = {"payload": "e30=", "payloadType": form.PAYLOAD_TYPE, "signatures": [{"keyid": "0" * 16, "sig": "AA=="}]}


def _opened(ground: Ground) -> Target:
    key = Ed25519PrivateKey.generate()
    signer = Signer(key, signing_keys.fingerprint(key.public_key()))
    keys, known, file = {signer.name: key.public_key()}, catalogue(), ground.directory / "report"

    def read(data: bytes) -> None:
        content = data
        if data[:1] == SIGNED:
            content = envelopes.sealed(data[1:], form.PAYLOAD_TYPE, signer).text().encode()
        checked = report_check.check(report_check.text_of(overwrite(file, content)), keys, known)
        for finding in checked.findings:
            str(finding)
        if checked.report is not None and not checked.findings[1:]:  # the page of what was found sound is drawn
            page = page_of(envelopes.parsed(content, form.PAYLOAD_TYPE), checked.report)
            found = report_check.check(
                report_check.text_of(overwrite(file, page.encode(errors="replace"))), keys, known
            ).findings
            assert found == checked.findings, found

    return read


REPORTS = Door(
    "reports",
    "Any file, and any statement that a trusted key signed, is a report that agrees with itself, or has findings.",
    _opened,
    documents(STATEMENT).map(lambda text: SIGNED + text) | documents(ENVELOPE),
    (
        SIGNED + written(STATEMENT),
        written(ENVELOPE),
        b'<script type="application/vnd.dsse.envelope.v1+json">{}</script>',
    ),
)
