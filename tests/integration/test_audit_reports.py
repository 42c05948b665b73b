"""Audit reports: what they say of an instance, a run and a period, and that their file alone shows every change."""

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope as StandardEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey
from typer.testing import CliRunner

from interlock.cli.audit.audit import app
from interlock.db.audit.reports import Period
from interlock.db.core.deprecations import DefinitionPart
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit import envelopes, report_check, reports, signing_keys
from interlock.workers.audit.report_check import CheckedReport
from interlock.workers.audit.reports import Made, ReportTooLarge, Wanted
from interlock.workers.audit.signing_keys import Signer
from interlock.workers.client.client import Client
from interlock.workers.overrides import deprecations, operators
from interlock.workers.overrides.narrowing import narrow, widen_again
from interlock.workers.overrides.tasks import complete_task
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.pool.agent import Agent
from interlock.workers.runtime import Runtime
from interlock.workers.settings import settings as current
from interlock.workflows.audit import report as form
from interlock.workflows.audit.checkpoints import parsed_proof
from interlock.workflows.errors import BadInput, UnknownInstance
from interlock.workflows.input.json_text import read
from tests import databases, parcels
from tests.archived import archive, settled_run
from tests.crewing import Site
from tests.driving import applied, drain_all, outcome
from tests.rights import grant
from tests.running import GATED_PAIR, Stage
from tests.tampering import cut_tail, forge, unprotected

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

OVERRIDDEN = """
INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, origin)
VALUES ('by hand', '', %s, 'approve', 'ann', '{"operator": "ann", "reason": "bob is ill",
        "override": {"to": "approved"}}', 'override')
"""


@pytest.fixture(scope="module")
def written(servers: Servers, template: str) -> Iterator[tuple[str, UUID]]:
    """Written once: the name of the database, and the pull request."""

    def write(client: Client) -> UUID:
        made: UUID = client.create("pr_review", "PR-1", context={"author": "ann"}, by="ann")["id"]
        applied(client, made, "start_review", by="bob")
        assert fired(client, made, "approve", "ann")["status"] == "rejected"
        grant(client, "ann")
        url = databases.as_superuser(servers, str(client.runtime.settings.database_url))
        with psycopg.connect(url, autocommit=True) as dba:
            dba.execute(OVERRIDDEN, (made,))
        drain_all(client.runtime)
        merge = fired(client, made, "merge", "ann")
        assert fired(client, merge["held_by"], "approve", "cyd")["status"] == "applied"
        return made

    with databases.written(servers, template, write) as both:
        yield both


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, database_to_copy: str, written: tuple[str, UUID]) -> str:
    return written[0] if "review" in request.fixturenames else database_to_copy


@pytest.fixture
def review(written: tuple[str, UUID]) -> UUID:
    """A pull request of ann's that she approved by hand, past the guard; its merge was approved by bob and cyd."""
    return written[1]


def fired(client: Client, ref: str | UUID, trigger: str, by: str) -> dict[str, Any]:
    receipt = client.fire(ref, trigger, by=by)
    drain_all(client.runtime)
    return outcome(client, receipt.request_id)


@dataclass
class Filed:
    """A report's page on disk, and who checks it: with the keys and the definitions only."""

    runtime: Runtime
    made: Made
    path: Path

    def check(self, text: str | bytes | None = None) -> CheckedReport:
        content = self.made.page if text is None else text
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        keys = signing_keys.trusted_keys(self.runtime.settings.signing_directory)
        return report_check.check(report_check.text_of(self.path), keys, self.runtime.catalogue)

    @property
    def statement(self) -> Any:
        return read(b64decode(self.made.envelope.payload))

    def signed_anew(self, statement: Any) -> str:
        """The page of another statement, signed with the installation's own key."""
        payload = json.dumps(statement, default=float).encode()
        signer = signing_keys.signer(self.runtime.settings.signing_directory, may_make=False)
        envelope = envelopes.sealed(payload, form.PAYLOAD_TYPE, signer)
        try:
            return reports.page_of(envelope, form.parsed(payload).predicate)
        except (ValueError, KeyError, TypeError, AttributeError):
            return envelope.text()


@pytest.fixture
def filed(runtime: Runtime, review: UUID, tmp_path: Path) -> Filed:
    return Filed(runtime, reports.make_report(runtime, Wanted(review)), tmp_path / "report.html")


def test_a_report_tells_moves_votes_overrides_and_refusals_and_proves_itself(filed: Filed, client: Client) -> None:
    report = filed.made.report
    assert filed.check().findings == ()
    assert [(each.name, each.state) for each in report.instances] == [
        ("default/pr_review/PR-1", "merged"),
        (f"default/approval/{report.approvals[0].entity_id}", "approved"),
    ]
    history = client.history("pr_review/PR-1")
    own = [move for move in report.moves if move["entity_type"] == "pr_review"]
    assert [move["hash"] for move in own] == [event["hash"].hex() for event in history]
    (approval,) = report.approvals
    assert (approval.subject, approval.trigger, approval.author) == ("pr_review/PR-1", "merge", "ann")
    assert [(vote.by, vote.vote) for vote in approval.votes] == [("cyd", "approve")]
    merged = next(event for event in history if event["trigger"] == "merge")
    assert merged["metadata"]["approval"] == {
        "id": approval.workflow_id,
        "name": approval.entity_id,
        "deciders": [],
        "votes": ["cyd"],
    }
    (override,) = report.overrides
    assert (override.operator, override.reason, override.bypassed) == ("ann", "bob is ill", ("not_the_author",))
    (refused,) = report.refusals
    assert (refused.by, refused.trigger, refused.code) == ("ann", "approve", "guard")
    assert report.verification.problems == ()
    assert report.anchor is not None
    assert all(each.anchored and each.anchored.seq == each.seq for each in report.instances)


def test_a_standard_tool_verifies_the_envelope_and_finds_an_in_toto_statement(filed: Filed) -> None:
    envelope = json.loads(filed.made.envelope.text())
    ((name, key),) = signing_keys.trusted_keys(filed.runtime.settings.signing_directory).items()
    standard = StandardEnvelope.from_dict(json.loads(filed.made.envelope.text()))
    assert list(standard.verify([SSlibKey.from_crypto(key, name)], 1)) == [name]
    other = SSlibKey.from_crypto(Ed25519PrivateKey.generate().public_key(), name)
    with pytest.raises(VerificationError):
        standard.verify([other], 1)
    assert standard.payload_type == "application/vnd.in-toto+json" == envelope["payloadType"]
    statement = json.loads(standard.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == form.PREDICATE_TYPE
    heads = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert heads["default/pr_review/PR-1"] == filed.made.report.instances[0].head
    # The other way round: what a standard tool signed is believed if its key is trusted.
    assert standard.to_dict() == envelope
    assert filed.check(json.dumps(standard.to_dict())).findings == ()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a document that is no collection, and of each empty one."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    empty = True
    for key, each in inside:
        empty = False
        yield from places(each, (*path, key))
    if empty:
        yield path


def changed(value: Any, path: tuple[Any, ...]) -> Any:
    """The document with another value in that place."""
    if not path:
        if isinstance(value, bool) or value is None:
            return "other"
        return f"{value}x" if isinstance(value, str) else value + 1 if isinstance(value, int) else "other"
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:])
    return copy


def test_every_changed_field_of_the_envelope_is_found(filed: Filed) -> None:
    envelope = json.loads(filed.made.envelope.text())
    for path in places(envelope):
        text = json.dumps(changed(envelope, path))
        try:
            assert filed.check(text).findings, path
        except envelopes.NotAnEnvelope:
            continue


def test_every_changed_field_of_the_statement_is_found_under_the_old_signature(filed: Filed) -> None:
    envelope, statement = json.loads(filed.made.envelope.text()), json.loads(b64decode(filed.made.envelope.payload))
    count = 0
    for path in places(statement):
        payload = b64encode(json.dumps(changed(statement, path)).encode()).decode()
        assert "signature" in filed.check(json.dumps(envelope | {"payload": payload})).findings[0], path
        count += 1
    assert count > 150


# Facts that only the signature holds: nothing in the report could contradict them.
ONLY_SIGNED = {"generator", "generated_at", "login", "scope", "verification", "not_recorded", "refusals", "archived"}
TERMS = {
    "subject",
    "trigger",
    "requested_by",
    "author",
    "quorum",
    "deciders",
    "state",
    "at",
    "status",
    "authority",
    "proof",
}
UNHASHED = {"xid", "position", "run_id", "workstream_id", "phase_id"}


def test_whoever_has_the_key_still_cannot_change_a_move_unnoticed(filed: Filed) -> None:
    statement = filed.statement
    assert filed.check(filed.signed_anew(statement)).findings == ()
    missed = set()
    for path in places(statement):
        if path[:1] != ("predicate",) or path[1] in ONLY_SIGNED:
            continue
        if not filed.check(filed.signed_anew(changed(statement, path))).findings:
            missed.add(path)
    free = {path for path in missed if path[1] == "moves" and path[-1] in UNHASHED}
    free |= {path for path in missed if path[1] == "approvals" and path[-1] in TERMS | {"entity_id", "workflow_id"}}
    free |= {path for path in missed if path[1] == "instances" and path[-1] in {"number", "seq", "archived"}}
    free |= {path for path in missed if path[1] == "page"}
    assert missed - free == set()


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_every_changed_byte_of_the_page_is_found(filed: Filed, step: int) -> None:
    page = filed.made.page.encode()
    for place in [*range(step, len(page), 97), len(page) - 1, 0]:
        other = page[:place] + bytes([page[place] ^ step]) + page[place + 1 :]
        try:
            assert filed.check(other).findings, (place, page[max(0, place - 20) : place + 20])
        except envelopes.NotAnEnvelope:
            continue


def test_a_page_that_shows_something_else_than_was_signed_is_found(filed: Filed) -> None:
    page = filed.made.page
    for old, new in (
        ("merged", "closed"),
        ("bob is ill", "agreed"),
        ("<h2>", "<h2 hidden>"),
        ("</main>", "<p>OK</p></main>"),
    ):
        assert old in page
        assert filed.check(page.replace(old, new, 1)).findings == ("changed: the page does not show what was signed",)
    assert filed.check(page + " ").findings
    other = page.replace('"application/vnd.dsse', '"text/plain;was=', 1)
    with pytest.raises(envelopes.NotAnEnvelope, match="without a signed envelope"):
        filed.check(other)


def test_a_key_that_is_not_trusted_proves_nothing(filed: Filed) -> None:
    key = Ed25519PrivateKey.generate()
    signer = Signer(key, signing_keys.fingerprint(key.public_key()))
    envelope = envelopes.sealed(b64decode(filed.made.envelope.payload), form.PAYLOAD_TYPE, signer)
    checked = filed.check(envelope.text())
    assert "is not trusted" in checked.findings[0]
    assert checked.report is None
    both = envelope.model_copy(update={"signatures": (*envelope.signatures, *filed.made.envelope.signatures)})
    assert filed.check(both.text()).findings == (), "others may sign it, too"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"<html></html>", b"\xff\xfe", b"null", b"[" * 9_000, b'{"payload": 1}']
)
def test_what_is_no_report_is_refused(filed: Filed, content: bytes) -> None:
    with pytest.raises(envelopes.NotAnEnvelope):
        filed.check(content)


def test_an_anchors_signature_is_no_reports(filed: Filed) -> None:
    anchor = filed.made.report.anchor
    assert anchor is not None
    note = parsed_proof(anchor.proof).note
    envelope = {
        "payload": b64encode(note.text.encode()).decode(),
        "payloadType": form.PAYLOAD_TYPE,
        "signatures": [
            {
                "keyid": filed.made.envelope.signatures[0].keyid,
                "sig": b64encode(note.signatures[0].signature).decode(),
            }
        ],
    }
    assert filed.check(json.dumps(envelope)).findings


def test_a_changed_history_is_reported_loudly_and_found_again(
    runtime: Runtime, client: Client, review: UUID, dba: Dba, tmp_path: Path
) -> None:
    with unprotected(dba, "workflow_transitions"):
        dba.execute(
            "UPDATE workflow_transitions SET triggered_by = 'eve' WHERE workflow_id = %s AND seq = 1", (review,)
        )
    filed = Filed(runtime, reports.make_report(runtime, Wanted(review)), tmp_path / "report.html")
    assert {each.message.split(":")[-1] for each in filed.made.report.verification.problems} == {
        " its hash is not that of its content",
        " event 1 says otherwise",
    }
    assert "History was changed" in filed.made.page
    findings = filed.check().findings
    assert any("when it was made" in each for each in findings)
    assert any("move 1: changed: its hash is not that of its content" in each for each in findings)


@pytest.mark.parametrize("how", ["cut", "forged"])
def test_hashes_that_were_computed_anew_are_found_by_anchors(
    runtime: Runtime, review: UUID, dba: Dba, how: str
) -> None:
    reports.make_report(runtime, Wanted(review))
    if how == "cut":
        cut_tail(dba, review, 2)
    else:
        forge(dba, review, 1, "triggered_by", "eve")
    problems = reports.make_report(runtime, Wanted(review)).report.verification.problems
    assert any(each.message.startswith(f"{how}: an anchor saw") for each in problems)


@pytest.mark.usefixtures("ann")
def test_a_run_is_reported_with_all_that_belongs_to_it(stage: Stage, tmp_path: Path) -> None:
    stage.submit(*GATED_PAIR)
    stage.start()
    stage.begin("a")
    complete_task(stage.runtime, str(stage.ids["a"]), OverrideOrder("ann", "seen to it myself"))
    stage.settle()
    other = stage.client.create("story", "S-1", project=stage.project)["id"]
    applied(stage.client, other, "block")
    filed = Filed(stage.runtime, reports.make_report(stage.runtime, Wanted(stage.run)), tmp_path / "run.html")
    assert filed.check().findings == ()
    ids = {each.workflow_id for each in filed.made.report.instances}
    assert ids == {str(stage.run), *(str(stage.ids[name]) for name in ("w", "a", "b", "g"))}
    assert [each.operator for each in filed.made.report.overrides] == ["ann", "ann"]


@pytest.mark.parametrize(
    "data",
    [
        {"reason": {"why": "not"}},
        {"reason": ["a", "b"]},
        {"duration_seconds": -1, "retry_count": "a", "current_load": -2},
        {"total_tasks": 1, "completed_tasks": 5, "failed_tasks": 7, "exit_code": "none"},
    ],
)
def test_no_data_of_a_callers_own_makes_a_report_that_is_not_to_be_relied_on(
    runtime: Runtime, client: Client, project: str, tmp_path: Path, data: dict[str, Any]
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    receipt = client.fire(story, "design_complete", by="agent-7", data=data)
    drain_all(client.runtime)
    assert outcome(client, receipt.request_id)["status"] == "applied"
    applied(client, story, "start_coding")
    filed = Filed(runtime, reports.make_report(runtime, Wanted(story)), tmp_path / "story.html")
    assert filed.check().findings == ()
    assert [move["metadata"] for move in filed.made.report.moves] == [data, {}]


def test_an_agents_report_of_any_shape_and_an_expected_exit_code_other_than_0_make_a_report_that_holds(
    runtime: Runtime, client: Client, project: str, tmp_path: Path
) -> None:
    site = Site(client, project)
    site.queue(1, kind="agent", expected_exit_codes=[3])
    with Agent("agent-7", runtime=runtime) as agent:
        claim = agent.claim()
        assert claim is not None
        agent.finish(claim.token, exit_code=3, output={"retry_count": 9, "max_retries": 1, "duration_seconds": "long"})
    drain_all(runtime)
    filed = Filed(runtime, reports.make_report(runtime, Wanted(claim.task_id)), tmp_path / "task.html")
    assert filed.check().findings == ()
    assert "execution_completed" in {move["trigger"] for move in filed.made.report.moves}


def test_a_period_has_the_moves_of_all_instances_within_it(
    runtime: Runtime, client: Client, project: str, tmp_path: Path
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    applied(client, story, "design_complete")
    middle = client.history(story)[-1]["created_at"] + timedelta(microseconds=1)
    applied(client, story, "start_coding")
    applied(client, client.create("story", "S-2", project="other")["id"], "block")
    end = datetime.now(UTC) + timedelta(minutes=1)
    both = Filed(runtime, reports.make_report(runtime, Wanted(period=Period(middle, end))), tmp_path / "both.html")
    assert both.check().findings == ()
    assert [(move["entity_id"], move["trigger"]) for move in both.made.report.moves] == [
        ("S-1", "start_coding"),
        ("S-2", "block"),
    ]
    assert [each.seq for each in both.made.report.instances] == [2, 1]
    before = reports.make_report(runtime, Wanted(period=Period(until=middle))).report
    assert [(each.entity_id, each.seq, each.state) for each in before.instances] == [("S-1", 1, "design")]
    one = reports.make_report(runtime, Wanted(period=Period(middle), project="other")).report
    assert [move["entity_id"] for move in one.moves] == ["S-2"]
    with pytest.raises(BadInput, match="there are no moves from"):
        reports.make_report(runtime, Wanted(period=Period(end)))
    with pytest.raises(ReportTooLarge, match=r"2 events; a report has at most 1\. .* --most"):
        reports.make_report(runtime, Wanted(period=Period(middle)), most=1)


def test_a_period_shows_who_got_power_what_was_removed_and_what_was_narrowed(
    make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    runtime = make_runtime(definitions=("tests.parcels",))
    parcels.record(runtime, "ann")
    since = datetime.now(UTC)
    part = DefinitionPart("parcel", "1.0.0")
    by_ann, by_bob = OverrideOrder("ann", "nobody uses it"), OverrideOrder("bob", "I looked")
    operators.grant(runtime, ["bob", "cyd"], by="ann", reason="the night shift", until=since + timedelta(days=1))
    operators.revoke(runtime, "cyd", by="bob", reason="left the team")
    deprecations.announce(runtime, part, by_ann, guide="use 1.1.0", remove_after=since)
    deprecations.propose_removal(runtime, "parcel", "1.0.0", by_ann)
    deprecations.approve_removal(runtime, "parcel", "1.0.0", by_bob)
    narrow(runtime, "story", "block", ["machinery", "operator"], OverrideOrder("ann", "only leads"))
    widen_again(runtime, "story", "block", OverrideOrder("bob", "the freeze is over"))
    with pytest.raises(NotAnOperator):
        narrow(runtime, "story", "block", ["operator"], OverrideOrder("mallory", "mine"))
    drain_all(runtime)
    filed = Filed(runtime, reports.make_report(runtime, Wanted(period=Period(since))), tmp_path / "power.html")
    assert filed.check().findings == ()
    report = filed.made.report
    moves = [move for move in report.moves if move["entity_type"] != "refusal_log"]
    told = [" ".join(move[said] for said in ("entity_type", "trigger", "triggered_by", "reason")) for move in moves]
    assert told == [
        *["operator_grant grant ann the night shift"] * 2,
        "operator_grant revoke bob left the team",
        "deprecation announce ann nobody uses it",
        "deprecation propose_removal ann nobody uses it",
        "deprecation approve_removal bob I looked",
        "narrowing enforce ann only leads",
        "narrowing lift bob the freeze is over",
    ]
    assert {move["authority"] for move in moves} == {"operator"}
    assert all(str(move["proof"]).startswith("grant:") for move in moves)
    terms = {move["entity_type"]: move["metadata"]["terms"] for move in moves}
    assert terms["operator_grant"]["name"] == "cyd"
    assert (terms["deprecation"]["type"], terms["deprecation"]["guide"]) == ("parcel", "use 1.1.0")
    assert terms["narrowing"] == {"type": "story", "trigger": "block", "to": ["machinery", "operator"]}
    states = Counter((each.type, each.state) for each in report.instances if each.type != "refusal_log")
    assert states == {
        ("operator_grant", "active"): 1,
        ("operator_grant", "revoked"): 1,
        ("deprecation", "removed"): 1,
        ("narrowing", "lifted"): 1,
    }
    (refused,) = report.refusals
    assert (refused.trigger, refused.by, refused.message) == ("enforce", "mallory", "mallory is not an operator")
    for told in ("why: the night shift", "why: I looked", "removal_proposed → removed by", "in_force → lifted by lift"):
        assert told in filed.made.page


def test_votes_below_the_quorum_and_an_instance_that_never_moved_are_told(
    runtime: Runtime, client: Client, project: str, tmp_path: Path
) -> None:
    about = {"quorum": 3, "author": "ann", "deciders": ["bob", "cyd", "dan"]}
    approval = client.create("approval", "A-1", project=project, context=about)["id"]
    fired(client, approval, "approve", "bob")
    fired(client, approval, "approve", "cyd")
    filed = Filed(runtime, reports.make_report(runtime, Wanted(approval)), tmp_path / "a.html")
    assert filed.check().findings == ()
    (found,) = filed.made.report.approvals
    assert (found.state, found.quorum, found.deciders) == ("pending", 3, ("bob", "cyd", "dan"))
    assert [(vote.by, vote.event_id) for vote in found.votes] == [
        (move["triggered_by"], move["event_id"]) for move in filed.made.report.moves
    ]
    fired(client, approval, "approve", "dan")
    again = Filed(runtime, reports.make_report(runtime, Wanted(approval)), tmp_path / "b.html")
    assert again.check().findings == ()
    assert [vote.by for vote in again.made.report.approvals[0].votes] == ["bob", "cyd", "dan"]


def test_the_deciding_vote_is_told_when_its_request_is_gone(
    runtime: Runtime, review: UUID, dba: Dba, tmp_path: Path
) -> None:
    dba.execute("DELETE FROM trigger_requests WHERE finished_at IS NOT NULL")
    filed = Filed(runtime, reports.make_report(runtime, Wanted(review)), tmp_path / "report.html")
    assert filed.check().findings == ()
    assert [(vote.by, vote.vote) for vote in filed.made.report.approvals[0].votes] == [("cyd", "approve")]
    assert filed.made.report.refusals == ()


def test_an_unknown_instance_is_refused(runtime: Runtime) -> None:
    with pytest.raises(UnknownInstance):
        reports.make_report(runtime, Wanted("no-such-thing"))


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> &lt; \x1b[2J\u202e\u200b\r\n-->"


class Tags(HTMLParser):
    """The tags of a page, with their attributes, and its visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_texts_are_shown_harmless(runtime: Runtime, client: Client, project: str, tmp_path: Path) -> None:
    name = "<b>S&1\"'</b>"
    story = client.create("story", name, project=project, by="<i>ann</i>")["id"]
    receipt = client.fire(
        story, "block", by="<script>eve", data={"reason": "<u>why</u>", "note": HOSTILE, HOSTILE: 1e300}
    )
    drain_all(client.runtime)
    assert outcome(client, receipt.request_id)["status"] == "applied"
    filed = Filed(runtime, reports.make_report(runtime, Wanted(story)), tmp_path / "hostile.html")
    assert filed.check().findings == ()
    page = filed.made.page
    found = Tags(page)
    plain = Tags(reports.make_report(runtime, Wanted(client.create("story", "S-0", project=project)["id"])).page)
    assert found.tags - plain.tags <= {"details", "summary", "pre", "br", "div"}
    assert not any(each.startswith("on") or each in ("src", "href", "style") for each in found.attributes)
    assert page.count("<script") == 1
    assert not set(page) & set("\x1b\u202e\u200b\r")
    for each in (name, "<i>ann</i>", "<script>eve", "<u>why</u>", "\\u001b[2J", "\\u202e\\u200b"):
        assert each in found.text, each


def test_the_commands_write_a_page_once_and_check_it_without_a_database(
    runtime: Runtime, review: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = runtime.settings
    for key, value in {
        "INTERLOCK_HOME": str(settings.home),
        "DATABASE_URL": settings.database_url,
        "BROKER_URL": settings.broker_url,
    }.items():
        monkeypatch.setenv(key, str(value))
    current.cache_clear()
    run, page = CliRunner(), tmp_path / "report.html"
    said = run.invoke(app, ["report", "pr_review/PR-1", "--output", str(page)])
    assert said.exit_code == 0, said.output
    assert "verify-report" in said.output
    assert isinstance(run.invoke(app, ["report", "pr_review/PR-1", "--output", str(page)]).exception, BadInput)
    envelope = tmp_path / "envelope.json"
    envelope.write_text(run.invoke(app, ["report", "pr_review/PR-1", "--json"]).stdout)
    for words in (["report"], ["report", "PR-1", "--since", "1d", "-o", "x"], ["report", "PR-1"]):
        assert isinstance(run.invoke(app, words).exception, BadInput), words
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
    current.cache_clear()
    for file in (page, envelope):
        told = run.invoke(app, ["verify-report", str(file)])
        assert (told.exit_code, told.output.startswith("ok: default/pr_review/PR-1")) == (0, True), told.output
    page.chmod(0o600)
    page.write_text(page.read_text().replace("merged", "closed"))
    told = run.invoke(app, ["verify-report", str(page), "--json"])
    assert told.exit_code == 1
    assert json.loads(told.stdout)["findings"] == ["changed: the page does not show what was signed"]
    current.cache_clear()


def test_an_archived_run_is_reported_as_it_was_before(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    stage = Stage(runtime, dba)
    settled_run(stage)
    before = reports.make_report(runtime, Wanted(stage.run)).report
    assert archive(runtime).instances > 3
    filed = Filed(runtime, reports.make_report(runtime, Wanted(stage.run)), tmp_path / "run.html")
    assert filed.check().findings == ()
    assert filed.made.report.moves == before.moves
    assert [each.head for each in filed.made.report.instances] == [each.head for each in before.instances]
    assert all(each.archived for each in filed.made.report.instances)


def test_a_page_of_another_form_is_told_from_a_changed_one(filed: Filed) -> None:
    statement = filed.statement
    statement["predicate"]["page"] = form.PAGE + 1
    (finding,) = filed.check(filed.signed_anew(statement)).findings
    assert "check it with interlock" in finding
