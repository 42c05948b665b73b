"""The page of a report never changes: another form needs the next `PAGE`, or older pages would seem changed."""

from hashlib import sha256

from interlock.workflows.audit.report import PAGE, AuditReport
from interlock.workflows.audit.report_page import envelope_in, page

FORMS = {3: "12c9ef787ec5056db2f6966e6efb10cdbc18e93cef180b79cbd38122a22c4e80"}

PARTS = {
    "page": PAGE,
    "generator": "interlock 0.1.0",
    "generated_at": "2026-11-24T10:00:00.000000Z",
    "login": "interlock",
    "scope": {"kind": "period", "name": "moves", "since": "2026-11-23T10:00:00.000000Z", "until": None, "project": "p"},
    "verification": {
        "instances": 1,
        "events": 1,
        "anchored_heads": 1,
        "problems": [
            {"instance": "w", "seq": 1, "message": "changed"},
            {"instance": "d", "seq": None, "message": "odd"},
        ],
    },
    "anchor": {"record": '{\n "number": 1\n}', "proof": "c2sp.org/tlog-proof@v1\nindex 0\n"},
    "instances": [
        {
            "workflow_id": "w",
            "type": "story",
            "entity_id": "S-1",
            "project": "p",
            "birth": {
                "by": "ann",
                "at": "2026-11-24T09:00:00.000000Z",
                "version": "1.0.0",
                "context_sha256": "0c",
                "bodies": {"commands": "0d"},
                "proof": None,
                "hash": "0a",
            },
            "seq": seq,
            "head": "0b",
            "state": state,
            "anchored": anchored,
            "archived": bool(seq),
        }
        for seq, state, anchored in ((1, "blocked", {"number": 1, "seq": 1}), (0, None, None))
    ],
    "approvals": [
        {
            "workflow_id": "a",
            "entity_id": "A-1",
            "subject": subject,
            "trigger": "merge",
            "requested_by": "ann",
            "author": None,
            "quorum": 2,
            "deciders": deciders,
            "state": None,
            "votes": [
                {
                    "by": "bob",
                    "vote": "approve",
                    "at": "2026-11-24T09:00:01.000000Z",
                    "request_id": "r",
                    "authority": "decider",
                    "proof": None,
                    "login": "interlock",
                    "event_id": "evt_1",
                }
            ],
        }
        for subject, deciders in (("story/S-1", ["bob", "cyd"]), (None, []))
    ],
    "overrides": [
        {"event_id": "evt_1", "workflow_id": "w", "operator": "ann", "reason": "<why>", "bypassed": ["a_guard"]}
    ],
    "refusals": [
        {
            "request_id": "r",
            "workflow_id": "w",
            "trigger": "block",
            "by": "eve",
            "authority": "anyone",
            "login": "interlock",
            "status": "rejected",
            "code": "guard",
            "message": "no",
            "at": "2026-11-24T09:00:02.000000Z",
        }
    ],
    "gates": [
        {
            "event_id": "evt_2",
            "workflow_id": "g",
            "entity_id": "G-1",
            "command": command,
            "result": "PASSED",
            "exit_code": 0,
            "ran_on": ran_on,
        }
        for command, ran_on in ((["make", "test"], {"commit": "0c", "tree": "0d"}), (None, None))
    ],
    "commits": [
        {"event_id": "evt_3", "workflow_id": "p", "entity_id": "P-1", "what": "committed", "sha": "0e", "tree": None}
    ],
    "not_recorded": ["something"],
    "moves": [
        {
            "event_id": "evt_1",
            "timestamp": "2026-11-24T09:00:03.000000Z",
            "from_state": "analysis",
            "to_state": "blocked",
            "trigger": "block",
            "severity": "info",
            "operator": operator,
            "reason": operator and "<why>",
            "metadata": {"operator": operator} if operator else {},
            "triggered_by": "ann",
            "authority": "anyone",
            "proof": None,
            "login": "interlock",
            "definition_version": "1.0.0",
            "context": {"workflow_id": "w", "seq": 1},
            "prev_hash": "0a",
            "hash": "0b",
        }
        for operator in ("ann", None)
    ],
}


def test_the_form_of_the_page_is_that_of_its_number() -> None:
    drawn = page(AuditReport.model_validate(PARTS), '{"payload":""}', ["0f"])
    assert envelope_in(drawn) == '{"payload":""}'
    assert sha256(drawn.encode()).hexdigest() == FORMS[PAGE], "give `report.PAGE` the next number, and add it here"
