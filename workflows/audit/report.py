"""An audit report: what it says, as the predicate of an in-toto Statement. Pure.

The moves are canonical events (EVENT-1) with all that was hashed, so a report proves its chains by itself. The format
is in `docs/audit.md`; the Statement is that of the in-toto attestation framework, v1:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interlock.workflows.input.json_text import read
from interlock.workflows.output.schema_messages import schema_message

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:interlock:audit-report:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PAGE = 3  # the form of the page; a change of `report_page` gets the next number, or older reports would seem changed

MOST = 2**63 - 1  # a larger number can neither be printed nor come from PostgreSQL

Move = Mapping[str, Any]  # a canonical event, as `json_text.read` returns it
Landing = Literal["committed", "merged"]
Whole = Annotated[int, Field(strict=True, ge=-MOST, le=MOST)]

# What no report can say, because nothing keeps it.
NOT_RECORDED = (
    "Attempts at what is not the caller's to do are events of the project's `refusal_log`, at most 20 in an hour for a"
    " database login, 10 for a name (REFUSAL-2); those beyond are only counted, and those of raw SQL are not kept.",
    "Refused triggers are requests and not events: they are outside the hash chain, and deleted some time after they"
    " were settled (INTERLOCK_KEEP_FINISHED_DAYS, 30 days by default) or when their instance is archived.",
    "A gate's tree is the one that Interlock put into the worktree. Files that commands changed there before, and the"
    " protected paths, which have the content of the commit `base` while a gate runs, can differ from it.",
    "Moves whose transactions were not committed yet when the report was made are missing, although their time may be"
    " before it.",
)


class ReportPart(BaseModel):
    """A part of the predicate. Unknown fields are refused: the page would not show them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scope(ReportPart):
    """What the report is about: an instance with what belongs to it, or a period (`since` ≤ time < `until`)."""

    kind: Literal["instance", "period"]
    name: str
    since: str | None = None
    until: str | None = None
    project: str | None = None


class ReportedProblem(ReportPart):
    """One thing that the verification before the report found."""

    instance: str
    seq: Whole | None
    message: str

    @property
    def place(self) -> str:
        """Words after the instance: the event, if it is about one."""
        return "" if self.seq is None else f", event {self.seq}"


class Verification(ReportPart):
    """The verification of the instances' whole chains, moves, states and anchored hashes before the report."""

    instances: Whole
    events: Whole
    anchored_heads: Whole
    problems: tuple[ReportedProblem, ...]


class Anchor(ReportPart):
    """The newest anchor: its record, and the proof that a signed checkpoint holds it."""

    record: str
    proof: str


class ReportedBirth(ReportPart):
    """An instance's creation; `hash` precedes that of the first event.

    Attributes:
        bodies: the digests of its command, plan or patch, by table; None: it has none.
        proof: the token that it was asked for with; None: with none.
    """

    by: str
    at: str
    version: str
    context_sha256: str
    bodies: dict[str, str] | None
    proof: str | None
    hash: str


class Anchored(ReportPart):
    """The newest event of an instance that an anchor has signed (0: the birth), and the anchor's number."""

    number: Whole
    seq: Whole


class ReportedInstance(ReportPart):
    """An instance of the report, where it stood after its last move of the report.

    Attributes:
        seq: the number of that move; 0: it has made none.
        head: that move's hash, or the birth's.
        state: the state that the move entered; None: it has made none.
    """

    workflow_id: str
    type: str
    entity_id: str
    project: str
    birth: ReportedBirth
    seq: Whole
    head: str
    state: str | None
    anchored: Anchored | None
    archived: bool

    @property
    def name(self) -> str:
        """Its name: PROJECT/TYPE/ENTITY_ID."""
        return f"{self.project}/{self.type}/{self.entity_id}"


class Vote(ReportPart):
    """A decider's vote, which is a move of the approval."""

    by: str
    vote: str
    at: str
    request_id: str | None
    authority: str
    proof: str | None
    login: str
    event_id: str


class Approval(ReportPart):
    """An approval: for what, its terms, and each vote."""

    workflow_id: str
    entity_id: str
    subject: str | None
    trigger: str | None
    requested_by: str | None
    author: str | None
    quorum: Whole
    deciders: tuple[str, ...]
    state: str | None
    votes: tuple[Vote, ...]


class ReportedOverride(ReportPart):
    """A move that an operator made by hand, and the guards that it bypassed."""

    event_id: str
    workflow_id: str
    operator: str
    reason: str
    bypassed: tuple[str, ...]


class ReportedRefusal(ReportPart):
    """A trigger that was accepted and then refused (`rejected`), or failed for good (`dead`), or was not its caller's.

    Of the last (`refused`), `request_id` is that of the event in the project's `refusal_log`, and `workflow_id` the
    instance that the attempt was for; where that was to be created, the log.
    """

    request_id: str
    workflow_id: str
    trigger: str
    by: str
    authority: str
    login: str
    status: str
    code: str | None
    message: str
    at: str


class ReportedGate(ReportPart):
    """A gate's result: on which tree it ran (None: in no worktree), and its exit code."""

    event_id: str
    workflow_id: str
    entity_id: str
    command: tuple[str, ...] | None
    result: str
    exit_code: Whole | None
    ran_on: dict[str, str] | None


class Commit(ReportPart):
    """A commit that a patch (`committed`) or a workstream (`merged`) made, and its tree, if the event has it."""

    event_id: str
    workflow_id: str
    entity_id: str
    what: Landing
    sha: str
    tree: str | None


class AuditReport(ReportPart):
    """The predicate."""

    page: Whole
    generator: str
    generated_at: str
    login: str
    scope: Scope
    verification: Verification
    anchor: Anchor | None
    instances: tuple[ReportedInstance, ...]
    approvals: tuple[Approval, ...]
    overrides: tuple[ReportedOverride, ...]
    refusals: tuple[ReportedRefusal, ...]
    gates: tuple[ReportedGate, ...]
    commits: tuple[Commit, ...]
    not_recorded: tuple[str, ...]
    moves: tuple[dict[str, Any], ...] = ()


class ReportSubject(ReportPart):
    """What the Statement is about: a chain by its newest hash, or a commit."""

    name: str
    digest: dict[str, str]


class Statement(ReportPart):
    """An in-toto Statement with a report."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: tuple[ReportSubject, ...]
    predicate_type: Literal["urn:interlock:audit-report:v1"] = Field(alias="predicateType")
    predicate: AuditReport


def written(report: AuditReport, lines: Iterable[str]) -> bytes:
    """The Statement as JSON in UTF-8: what is signed.

    Args:
        report: without its moves.
        lines: the moves in commit order, each as `events.line` gives it: digits that were hashed are kept.
    """
    predicate = report.model_dump(mode="json", exclude={"moves"})
    head = {
        "_type": STATEMENT_TYPE,
        "subject": [each.model_dump() for each in subjects(report)],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }
    text = json.dumps(head, ensure_ascii=False).removesuffix("}}")
    return f'{text}, "moves": [{", ".join(lines)}]}}}}'.encode()


def parsed(payload: bytes) -> Statement:
    """A signed payload as a Statement. Raises `ValueError` if it is none that this version knows."""
    try:
        return Statement.model_validate(read(payload))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {schema_message(first)}") from error


def subjects(report: AuditReport) -> Iterator[ReportSubject]:
    """The subjects of a report: each chain by the hash of its last move, and each commit."""
    for each in report.instances:
        yield ReportSubject(name=each.name, digest={"sha256": each.head})
    for commit in report.commits:
        yield ReportSubject(name=f"{commit.entity_id} ({commit.what})", digest={"gitCommit": commit.sha})
