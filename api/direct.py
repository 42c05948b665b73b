"""Answers what agents ask most, to fire a trigger, without the machinery by which FastAPI finds and checks arguments.

Only a request that is plainly sound is answered so, by the function of its route. Any other is FastAPI's, which says
what is wrong with it.
"""

import json
import re
from typing import NamedTuple

from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from interlock.api import problems
from interlock.api.access import CHALLENGE, Access, Caller, admitted, looked_up
from interlock.api.groups import PREFIX, RouteGroup
from interlock.api.inside import NoAnswer
from interlock.api.parameters import WAIT_SECONDS, IdempotencyKey, Wait
from interlock.api.replaying import replayed
from interlock.api.routes.triggers import TriggerOrderIn, fire_trigger
from interlock.workers.access.tokens import BEARER

PATH = f"{PREFIX}/triggers"
READ = (b"authorization", b"content-type", b"idempotency-key")  # headers
JSON = re.compile(rb"application/json(; ?charset=utf-8)?", re.IGNORECASE)
QUERY = re.compile(rb"(?:wait=([0-9]{1,4}(?:\.[0-9]{1,9})?))?")

_key, _wait = TypeAdapter[str | None](IdempotencyKey), TypeAdapter[float](Wait)


class SoundFire(NamedTuple):
    """A sound request to fire a trigger."""

    token: str
    order: TriggerOrderIn
    key: str | None
    wait: float


class Direct:
    """ASGI middleware around FastAPI.

    Args:
        app: FastAPI, which answers everything else.
        group: the route's.
    """

    def __init__(self, app: ASGIApp, group: RouteGroup) -> None:
        self._app, self._group = app, group

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]  # whole (`Bounds`)
        if (fire := sound(scope, body)) is None:
            await self._app(scope, replayed(body, receive), send)
            return
        scope["state"]["headers"] = self._group.headers
        answer = await _answer(Request(scope), fire)
        await answer(scope, receive, send)


def sound(scope: Scope, body: bytes) -> SoundFire | None:
    """What a request asks for, as FastAPI reads it; None: that is for FastAPI to say."""
    read = [each for each in scope["headers"] if each[0] in READ]
    headers, query = dict(read), QUERY.fullmatch(scope["query_string"])
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if len(headers) < len(read) or query is None or scheme.lower() != "bearer":
        return None
    if JSON.fullmatch(headers.get(b"content-type", b"")) is None:
        return None
    try:
        order = TriggerOrderIn.model_validate(json.loads(body))
        said = headers.get(b"idempotency-key")
        key = None if said is None else _key.validate_python(said.decode("latin-1"))
        wait = WAIT_SECONDS if query[1] is None else _wait.validate_python(query[1].decode())
    except ValueError:
        return None
    return SoundFire(token.strip(), order, key, wait)


async def _answer(request: Request, fire: SoundFire) -> Response:
    access: Access = request.app.state.access
    try:
        principal = access.lately.of(fire.token) or await looked_up(access, fire.token, BEARER)
        if principal is None:
            raise HTTPException(401, headers=CHALLENGE)
        try:
            return await fire_trigger(admitted(request, principal), fire.order, fire.key, fire.wait)
        except NoAnswer:
            raise
        except Exception:  # PostgreSQL judges the token of what it accepts, but nothing is refused to who has none
            await Caller(access, principal).still()
            raise
    except Exception as error:
        return await problems.of(request, error)
