"""Errors as problem details (RFC 9457): one table of kinds, and the handlers that answer with them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import psycopg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import Response

from interlock.api.access import told_instead
from interlock.api.feed import TooManyStreams
from interlock.api.inside import NoAnswer
from interlock.api.rates import TooManyRequests
from interlock.db.connection import retryable
from interlock.workers.audit.envelopes import NotAnEnvelope
from interlock.workers.audit.reports import ReportTooLarge
from interlock.workers.audit.signing_keys import KeyFault
from interlock.workers.client.receipts import NotSettled, VersionConflict
from interlock.workers.overrides.transaction import StillDeciding
from interlock.workers.pool.agent import ShutDown
from interlock.workers.pool.claims import StaleClaim
from interlock.workflows import errors
from interlock.workflows.output.escaping import json_text, plain
from interlock.workflows.plan.problems import PlanInvalid

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
Responses = dict[int | str, dict[str, Any]]
UNREACHABLE = (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError)


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: its status, the end of its `type` URN, and its title."""

    status: int
    name: str
    title: str


UNREADABLE = ProblemKind(400, "unreadable", "The request cannot be read")
UNAUTHORIZED = ProblemKind(401, "unauthorized", "A valid token is needed")
NOT_FOUND = ProblemKind(404, "not-found", "There is no such thing for this token")
SLOW = ProblemKind(408, "too-slow", "The request came too slowly")
ILLEGAL = ProblemKind(409, "illegal-move", "The machine does not allow that now")
TOO_LARGE = ProblemKind(413, "too-large", "The request is too large")
WRONG_HOST = ProblemKind(421, "wrong-host", "That is not a name of this server")
INVALID = ProblemKind(422, "invalid", "A value is not valid")
TOO_MANY = ProblemKind(429, "too-many-requests", "The token sends requests faster than it may")
UNAVAILABLE = ProblemKind(503, "unavailable", "The database does not answer")
BROKEN = ProblemKind(500, "fault", "A fault of Interlock")

# Error -> its kind; an error of a subclass has the nearest one's.
KINDS: Mapping[type[BaseException], ProblemKind] = {
    errors.NotYours: ProblemKind(403, "not-yours", "That is not yours to do"),
    errors.Archived: ProblemKind(410, "archived", "The instance has been archived"),
    errors.UnknownInstance: NOT_FOUND,
    errors.AmbiguousInstance: ProblemKind(409, "ambiguous", "Several instances have that name"),
    errors.AlreadyExists: ProblemKind(409, "already-exists", "There is another instance of that name"),
    VersionConflict: ProblemKind(409, "version-conflict", "The instance is at another version"),
    errors.IllegalTransition: ILLEGAL,
    errors.RequestConflict: ProblemKind(422, "key-reused", "The idempotency key was used with another body"),
    errors.BadInput: INVALID,
    PlanInvalid: INVALID,
    errors.UnknownTrigger: INVALID,
    errors.UnknownWorkflow: INVALID,
    errors.NotRunning: UNAVAILABLE,
    errors.Refused: ILLEGAL,
    ReportTooLarge: INVALID,
    NotAnEnvelope: INVALID,
    StillDeciding: ProblemKind(503, "busy", "Others decide for too long: repeat it unchanged"),
    KeyFault: ProblemKind(503, "no-key", "The signing key cannot be used"),
    TooManyRequests: TOO_MANY,
    TooManyStreams: UNAVAILABLE,
    NoAnswer: UNAVAILABLE,
    NotSettled: ProblemKind(503, "not-applied-yet", "It is accepted, and not applied yet: repeat it unchanged"),
    StaleClaim: ProblemKind(409, "stale-claim", "The claim no longer counts"),
    ShutDown: ProblemKind(409, "ended", "The agent's worker has ended"),
}
HERE: Mapping[type[BaseException], str] = {  # what is said in place of an error's own words
    errors.RequestConflict: "That request_id was used with another body. Use a new one, or the same body.",  # HTTP-4
    StaleClaim: "Stop working on that task: GET /api/agent/claims lists the claims that this agent holds.",
}
OF_STATUS = {
    each.status: each
    for each in (
        *KINDS.values(), UNREADABLE, UNAUTHORIZED, NOT_FOUND, SLOW, ILLEGAL, TOO_LARGE, WRONG_HOST, INVALID,
        TOO_MANY, UNAVAILABLE,
    )
}  # fmt: skip
OF_HTTP = {  # what to do about what no route has answered
    400: "The body must be JSON in UTF-8, with numbers that a double can hold.",
    404: "There is no such route: /api/openapi.json lists them.",
    405: "`Allow` says the methods of this route.",
}
MOST_WRONG, LONGEST_PLACE = 20, 200  # wrong values that an answer names; characters of where each is
EVERYWHERE = (400, 401, 403, 404, 408, 413, 421, 422, 429, 503)


class ProblemDetails(BaseModel):
    """Problem details (RFC 9457). Kinds of problems may have more members; `detail` says what to do."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="`urn:interlock:problem:` and the kind")
    title: str
    status: int
    detail: str | None = None


class JsonAnswer(Response):
    """A JSON answer; `problem`: with the media type of problem details."""

    media_type = "application/json"

    def __init__(
        self, content: Any, status: int = 200, *, problem: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        media_type = MEDIA_TYPE if problem else None
        text = "" if status == 204 else json_text(content, default=plain)  # that has none
        super().__init__(text, status, headers, media_type)


def body(kind: ProblemKind, detail: str | None = None, **more: Any) -> dict[str, Any]:
    """A problem's members."""
    made = {"type": f"urn:interlock:problem:{kind.name}", "title": kind.title, "status": kind.status}
    return made | ({"detail": detail} if detail else {}) | more


def answer(
    kind: ProblemKind, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JsonAnswer:
    """The answer that tells a problem."""
    return JsonAnswer(body(kind, detail, **more), kind.status, problem=True, headers=headers)


def documented(*statuses: int) -> Responses:
    """The `responses` of a route, for OpenAPI: these problems, and those that every route may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    wanted = sorted({*statuses, *EVERYWHERE})
    return {each: {"description": OF_STATUS[each].title, "content": content} for each in wanted}


def creating(model: type[BaseModel], again: str) -> dict[str, Any]:
    """The arguments of a route that creates: 201, or 200 for what was there already, which `again` says."""
    repeated: Responses = {200: {"model": model, "description": again}}
    return {"status_code": 201, "response_model": model, "responses": repeated | documented(409)}


def kind_of(error: BaseException) -> ProblemKind:
    """The kind of an error."""
    return next((KINDS[each] for each in type(error).__mro__ if each in KINDS), BROKEN)


async def _told(request: Request, error: Exception) -> JsonAnswer:
    kind = kind_of(error)
    if kind is BROKEN:
        return await _broken(request, error)
    if instead := await told_instead(request, kind.status):
        return await of(request, instead)
    more = {name: value for name in ("state", "legal", "version") if (value := getattr(error, name, None)) is not None}
    headers = None
    if isinstance(error, TooManyRequests | NoAnswer):
        headers = {"Retry-After": str(ceil(getattr(error, "seconds", RETRY_SECONDS)))}
    return answer(kind, HERE.get(type(error), str(error)), headers=headers, **more)


async def _of_database(request: Request, error: Exception) -> JsonAnswer:
    if not retryable(error) and not isinstance(error, UNREACHABLE):
        return await _broken(request, error)
    log.warning("database_unavailable", error=type(error).__name__)
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return answer(UNAVAILABLE, str(NoAnswer()), headers=headers)


async def _invalid(request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[:MOST_WRONG]
    if found[0]["loc"] == ("body",) and "json" not in request.headers.get("content-type", "json"):
        return answer(INVALID, "The body is taken as JSON only with the header `Content-Type: application/json`.")
    wrong = [{"at": ".".join(map(str, each["loc"]))[:LONGEST_PLACE], "message": each["msg"]} for each in found]
    kind = UNREADABLE if any(each["type"] == "json_invalid" for each in found) else INVALID
    return answer(kind, "; ".join(f"{each['at']}: {each['message']}" for each in wrong), errors=wrong)


async def _of_http(_request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, HTTPException)
    kind = OF_STATUS.get(error.status_code) or ProblemKind(error.status_code, "http", str(error.detail))
    return answer(kind, OF_HTTP.get(error.status_code), headers=error.headers)


async def _broken(_request: Request, error: Exception) -> JsonAnswer:
    log.error("request_failed", exc_info=error)
    return answer(BROKEN, "It is in the log of the API.")


Told = Callable[[Request, Exception], Awaitable[JsonAnswer]]
HANDLERS: Mapping[type[Exception], Told] = {
    errors.InterlockError: _told,
    DBAPIError: _of_database,
    **dict.fromkeys(UNREACHABLE, _of_database),
    RequestValidationError: _invalid,
    HTTPException: _of_http,
    Exception: _broken,
}


def install(app: FastAPI) -> None:
    """Answer every error as a problem."""
    for each, told in HANDLERS.items():
        app.add_exception_handler(each, told)


async def of(request: Request, error: Exception) -> JsonAnswer:
    """The answer to a request that an error ended, as FastAPI gives it."""
    told = next(HANDLERS[each] for each in type(error).__mro__ if each in HANDLERS)
    return await told(request, error)
