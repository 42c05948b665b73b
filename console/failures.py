"""What goes wrong, as a page, or as a part of one: the problem's title and words, as the API says them."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from interlock.api import problems
from interlock.api.access import told_instead
from interlock.api.inside import NoAnswer
from interlock.api.problems import UNREACHABLE, ProblemKind
from interlock.api.rates import TooManyRequests
from interlock.console.rendering import by_htmx, say
from interlock.console.session import SignedOut
from interlock.db.connection import retryable
from interlock.workflows.errors import InterlockError

log = structlog.get_logger()

SIGN_IN = "/sign-in"


async def _signed_out(request: Request, _error: Exception) -> Response:
    if by_htmx(request):
        return Response(status_code=401, headers={"HX-Redirect": SIGN_IN})
    return RedirectResponse(SIGN_IN, 303)


async def _told(request: Request, error: Exception) -> Response:
    kind = problems.kind_of(error)
    if kind is problems.BROKEN:
        return await _broken(request, error)
    match await told_instead(request, kind.status):
        case HTTPException() as ended:
            return await _of_http(request, ended)
        case Exception() as other:
            return await _of_database(request, other)
    return _failed(request, kind, str(error), getattr(error, "legal", None))


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 401:  # the session ended while its holder waited
        return await _signed_out(request, error)
    kind = problems.OF_STATUS.get(error.status_code) or ProblemKind(error.status_code, "http", str(error.detail))
    return _failed(request, kind, "There is no such page." if error.status_code == 404 else "")


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
    return _failed(request, problems.INVALID, wrong)


async def _of_database(request: Request, error: Exception) -> Response:
    if isinstance(error, DBAPIError) and not retryable(error) and not isinstance(error, UNREACHABLE):
        return await _broken(request, error)
    log.warning("database_unavailable", error=type(error).__name__)
    return _failed(request, problems.UNAVAILABLE, str(NoAnswer()))


async def _broken(request: Request, error: Exception) -> Response:
    log.error("page_failed", exc_info=error)
    return _failed(request, problems.BROKEN, "It is in the log of the API.")


def _failed(request: Request, kind: ProblemKind, words: str, legal: object = None) -> Response:
    return say(request, kind.title, words, kind="problem", status=kind.status, legal=legal)


def install(app: FastAPI) -> None:
    """Answer every error as a page."""
    for each in (InterlockError, TooManyRequests):
        app.add_exception_handler(each, _told)
    for error in (DBAPIError, *UNREACHABLE):
        app.add_exception_handler(error, _of_database)
    app.add_exception_handler(SignedOut, _signed_out)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _broken)
