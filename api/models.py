"""What the API answers with and takes, as models: they check requests, and OpenAPI describes both by them."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from interlock.api.rows import list_model, row_model
from interlock.db.core.history import EventRow
from interlock.db.core.instances import EveryInstanceRow, InstanceRow
from interlock.workflows.input.names import UNKEPT, WORDS_LIMIT, point
from interlock.workflows.outcomes import Status


def _storable(text: str) -> str:
    if found := UNKEPT.search(text):
        raise ValueError(f"it holds {point(found[0])}, which PostgreSQL cannot store")
    return text


# What PostgreSQL can compare; which names and ids are valid is judged by the doors that every caller goes through.
Text = Annotated[str, Field(max_length=WORDS_LIMIT), AfterValidator(_storable)]
Whole = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]


NOT_VERIFIED = "null: it is so long that only `interlock history` verifies it"
MOST_UNKNOWN = 20  # members of a request that are refused one by one


class Taken(BaseModel):
    """The body of a request. Unknown members are refused, so that a misspelt one is noticed; `by` is the token's."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _not_many_unknown(cls, said: Any) -> Any:
        """Refuse many unknown members by one error: those of 200,000 take seconds to describe."""
        if isinstance(said, dict) and len(said) > len(cls.model_fields) + MOST_UNKNOWN:
            raise ValueError(f"it has {len(said):,} members, and {len(cls.model_fields)} are known")
        return said


VERSION = Annotated[int, Field(description="the number of its events; `if_version` of a trigger refers to it")]
INTERNAL = {"born_version", "context_sha256", "bodies", "born_proof"}  # columns that lists do not show
InstanceSummary = row_model(InstanceRow, name="InstanceSummary", without=INTERNAL, version=VERSION)


class LinkedInstance(BaseModel):
    """An instance that another is linked to."""

    role: str
    id: UUID
    workflow_type: str
    entity_id: str
    current_state: str
    version: int


VERIFIED = Annotated[bool | None, Field(description=f"whether its history is whole and legal; {NOT_VERIFIED}")]
PROBLEMS = Annotated[list[str], Field(description="what is wrong with its history")]
InstanceDetail = row_model(
    EveryInstanceRow,
    name="InstanceDetail",
    without=INTERNAL,
    version=VERSION,
    legal=Annotated[list[str], Field(description="the triggers that its state accepts")],
    missing=Annotated[dict[str, str], Field(description="trigger → why it would be refused now for what is linked")],
    links=list[LinkedInstance],
    verified=VERIFIED,
    problems=PROBLEMS,
)
HistoryEvent = row_model(
    EventRow,
    name="HistoryEvent",
    without={"id", "workflow_type", "xid", "position"},
    event_id=str,
    prev_hash=Annotated[str, Field(description="hexadecimal")],
    hash=Annotated[str, Field(description="hexadecimal")],
)
EventPage = list_model(
    HistoryEvent,
    name="EventPage",
    next=Annotated[int | None, Field(description="`after` of the next page; null on the last")],
    verified=VERIFIED,
    problems=PROBLEMS,
)


class TriggerReceipt(BaseModel):
    """An accepted trigger."""

    request_id: str
    status: Status
    workflow_id: UUID
    trigger: str
    replayed: bool = Field(description="whether this request_id had been accepted before, with the same body")
    result: dict[str, Any] | None
    error: str | None


class TriggerReceipts(BaseModel):
    """Accepted triggers, in the order in which they were given."""

    items: list[TriggerReceipt]


class HeldTrigger(BaseModel):
    """An approval that is to be decided, and what it holds."""

    id: UUID
    entity_id: str
    project: str
    created_at: datetime
    subject: str | None
    trigger: str | None
    requested_by: str | None
    author: str | None
    quorum: int
    deciders: list[str] = Field(description="who may decide; empty: anybody but the author")
    votes: list[str] = Field(description="who has approved so far")


class ScheduleSummary(BaseModel):
    """A schedule, and its next time."""

    id: UUID
    name: str
    project: str
    state: Literal["active", "paused", "ended"]
    by: str
    context: dict[str, Any] = Field(description="its terms: `times`, `does`, `catch_up`")
    last_due: datetime | None
    failure: str | None
    following: list[datetime] = Field(description="its next times; of a paused one, if it is resumed now")


class ScheduleList(BaseModel):
    """Schedules."""

    items: list[ScheduleSummary]


class DefinitionSummary(BaseModel):
    """A machine."""

    type: str
    version: str
    summary: str
    checksum: str


class DefinitionList(BaseModel):
    """Machines, every version of them."""

    items: list[DefinitionSummary]


class DefinitionDetail(BaseModel):
    """A machine with its states and moves."""

    model_config = ConfigDict(extra="allow")

    type: str
    version: str
    initial: str
    states: dict[str, Any]
    transitions: list[dict[str, Any]]
    checksum: str


class StateDiagram(BaseModel):
    """A machine as a picture."""

    mermaid: str = Field(description="a `stateDiagram-v2`")


class RegisteredAgent(BaseModel):
    """A registered agent."""

    name: str
    project: str
    heartbeat_seconds: float = Field(description="it is to send a heartbeat, or claim, at least this often")


class AgentClaim(BaseModel):
    """A task that an agent has claimed and that is running."""

    id: int = Field(description="by which events and logs name the claim")
    token: int = Field(description="report with it; nobody else is told it")
    task_id: UUID
    task: str
    run_id: UUID
    workstream_id: UUID
    project: str
    kind: str
    context: dict[str, Any] = Field(description="the task's: the agent's instructions, and its terms")
    timeout_seconds: float
    retry_count: int
    inputs: dict[str, Any] = Field(description="the results of other tasks that it gets")


class AgentClaims(BaseModel):
    """Claims, the oldest first."""

    items: list[AgentClaim]


class AgentState(BaseModel):
    """A worker's state, and which of the claims that were asked for still hold."""

    state: str
    holds: list[int]


class LogAnswer(BaseModel):
    """Whether something was kept: not beyond `INTERLOCK_TASK_OUTPUT_BYTES` of an attempt."""

    kept: bool


class AgentReport(BaseModel):
    """The trigger that a report fired on its task."""

    trigger: str


class AgentLeaving(BaseModel):
    """How many tasks an agent that leaves has still to finish."""

    tasks_left: int


class Health(BaseModel):
    """That the API answers."""

    status: Literal["ok"]
