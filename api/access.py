"""Who sends a request: the principal of its bearer token, what it may see, and a client that acts in its name.

Every route but those of `health` takes a `Caller`. What is in a project that its token does not cover does not exist
for it (HTTP-4).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, TypeVar, cast
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from interlock.api import session_cookie
from interlock.api.feed import Feed
from interlock.api.gathering import Gathering
from interlock.api.holding import HeldRequests
from interlock.api.inside import inside
from interlock.api.lately import Lately
from interlock.api.presented import KNOWN
from interlock.api.queued import Queued
from interlock.api.rates import Rates, TooManyRequests
from interlock.api.readiness import Readiness
from interlock.api.waiting import Waiters
from interlock.db.audit.verify import Problem
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.workers.access.tokens import BEARER, SESSION, Principal, find, find_each, in_force
from interlock.workers.client.async_client import AsyncRuntime
from interlock.workers.client.client import Client
from interlock.workers.client.operations import accept_fired, accept_together, acting
from interlock.workers.client.receipts import Receipt
from interlock.workflows.errors import Archived, BadInput, NotYours, UnknownInstance
from interlock.workflows.input import names

Found = TypeVar("Found")
CHALLENGE = {"WWW-Authenticate": "Bearer"}
ACTS = 4  # what operators do at once: each has a thread and connections of its own
REPORTS = 2  # made or checked at once, by anybody: operators do not wait for them
LONG_HISTORY = 1_000  # events
LONG_HISTORIES = 2  # verified at once: short ones do not wait for them
VERIFY_SECONDS = 5.0  # for one history, with the waiting for its turn
LOG_READS = 2  # at a time: whoever waits for a log looks again and again, and others need connections, too
CLIENTS = 1_000  # that are kept, each for one token and project
PROJECTS = 10_000  # instances of which the project is remembered: it never changes

bearer = HTTPBearer(auto_error=False, description="`interlock token create` prints a token once.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


class Access:
    """What the requests of one process share: the runtime, rates and what is known of instances."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self.runtime, self.readiness = runtime, Readiness(runtime)
        self.rates = Rates(runtime.settings.api_rate)
        self.waiting = Waiters(runtime)
        self.queued = Queued(runtime)
        self.tokens = Gathering(self._find_each, lambda asked: find(runtime, *asked))
        self.lately = Lately()
        self.waits = HeldRequests()
        self.feed = Feed(runtime)
        self.acts, self.reports = asyncio.Semaphore(ACTS), asyncio.Semaphore(REPORTS)
        self.reading_logs, self.long_histories = asyncio.Semaphore(LOG_READS), asyncio.Semaphore(LONG_HISTORIES)
        self._client = Client(runtime)
        self.acceptances = Gathering(partial(accept_together, self._client), partial(accept_fired, self._client))
        self._projects: OrderedDict[UUID, str] = OrderedDict()
        # `acting` gives a copy of the client that it is given: one for each who asks, who mostly asks again.
        self._acting = lru_cache(CLIENTS)(partial(acting, self._client))

    def _find_each(self, asked: Sequence[tuple[str, str]]) -> dict[int, Principal | None]:
        return dict(enumerate(find_each(self.runtime, asked)))

    def client(self, principal: Principal, project: str) -> Client:
        """A client that acts for a principal; for use in a greenlet only."""
        return cast(Client, self._acting(principal, project))

    def remembers(self, instance_id: UUID) -> bool:
        """Whether an instance's project is known without asking."""
        return instance_id in self._projects

    def projects_of(self, ids: Collection[UUID]) -> dict[UUID, str]:
        """The projects of instances, archived ones too; unknown ones are left out. For use in a greenlet only."""
        if missing := [each for each in ids if each not in self._projects]:
            self._projects |= instances.projects_of(self.runtime.statements, missing)
        found = {each: self._projects[each] for each in ids if each in self._projects}
        while len(self._projects) > PROJECTS:
            self._projects.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, and what it may see."""

    access: Access
    principal: Principal

    async def still(self) -> None:
        """For who has waited, or is refused: raise `HTTPException` (401) if the token gives no right any more."""
        if not await inside(in_force, self.access.runtime, {self.principal.token_id}):  # TOKEN-5
            raise HTTPException(401, headers=CHALLENGE)

    async def outcomes(self, receipts: Sequence[Receipt], seconds: float, *, just_fired: bool) -> list[Receipt]:
        """Wait for what becomes of accepted triggers, as `Waiters.outcomes` does.

        Args:
            receipts, seconds: as that takes them.
            just_fired: they are accepted by this very request: if too many of the token wait, it does not.

        Raises:
            HTTPException: 401, the token was revoked or expired meanwhile.
            TooManyHeld: too many of the token's requests wait.
        """
        token_id = self.principal.token_id
        if not seconds or (just_fired and self.access.waits.full(token_id)):
            return list(receipts)
        with self.access.waits.held(token_id):
            found = await self.access.waiting.outcomes(receipts, seconds)
            await self.still()
        return found

    def projects(self, named: str | None) -> frozenset[str] | None:
        """The projects that a list is of: the named one, or all that the token covers; None: all.

        Raises:
            NotYours: the token does not cover the named one.
        """
        return self.principal.projects if named is None else frozenset({self.project(named)})

    def in_each(self, named: str | None, read: Callable[[str | None], Iterable[Found]]) -> list[Found]:
        """What `read` finds in each project that a list is of; it gets them one by one, or None for all.

        Raises:
            NotYours: as `projects`.
        """
        wanted = self.projects(named)
        return [row for each in ([None] if wanted is None else sorted(wanted)) for row in read(each)]

    def project(self, named: str | None) -> str:
        """The project in which a request looks names up and creates: the named one, or the token's only one.

        Raises:
            NotYours: the token does not cover it.
            BadInput: none is named, and the token covers several.
        """
        covered = self.principal.projects
        if named is None and covered is not None and len(covered) != 1:
            raise BadInput("project: name one, because the token is for several")
        usual = self.access.runtime.settings.project if covered is None else next(iter(covered))
        project = names.project_or(named, usual)
        if not self.principal.may_read(project):
            raise NotYours(f"The token is not for project {project!r}. Who may: a token that names it, or all.")
        return project

    def client(self, named: str | None = None, *, ref: UUID | None = None, write: bool = False) -> Client:
        """A client in the name of the token, for use in a greenlet only.

        Args:
            named: its project, as `project` takes it.
            ref: an instance instead, in whose project it is to be.
            write: whether it is to create or fire.

        Raises:
            NotYours: the token does not cover the named project, or is read-only.
            UnknownInstance: there is no such instance in the token's projects.
        """
        project = self.project(named) if ref is None else self._project_of(ref)
        if write and not self.principal.may_write(project):
            raise NotYours("The token is read-only. Who may: a token with the role agent, operator or admin.")
        return self.access.client(self.principal, project)

    def visible(self, linked: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Of rows with an instance's `id`, those of the token's projects; for use in a greenlet only."""
        found = self.access.projects_of({each["id"] for each in linked})
        return [each for each in linked if self.principal.may_read(found[each["id"]])]

    def shown(self, client: Client, ref: str | UUID) -> dict[str, Any]:
        """An instance as `Client.show` gives it, its links as `visible`; for use in a greenlet only."""
        shown = client.show(ref)
        return shown | {"links": self.visible(shown["links"])}

    def instance(self, ref: str, named: str | None, *types: str, write: bool = False) -> InstanceRow:
        """The instance of one of these types that a REF names, as `located` takes it; for use in a greenlet only.

        Raises:
            UnknownInstance, AmbiguousInstance, NotYours: as `located`.
        """
        with (
            self.located(ref, named, write=write) as (client, found),
            transaction(client.runtime.database) as connection,
        ):
            return instances.find(connection, found, client.project, *types)

    def require_within(self, project: str, ids: Collection[UUID]) -> None:
        """Raise `UnknownInstance` unless all these instances are of a project; for use in a greenlet only."""
        found = self.access.projects_of(ids)
        if missing := [each for each in ids if found.get(each) != project]:
            raise UnknownInstance(f"There is no instance {missing[0]} in project {project!r}.")

    async def verified(self, ref: str, named: str | None, *, most: int | None = None) -> tuple[Problem, ...] | None:
        """What is wrong with an instance's history; it is computed in a thread, and others are answered meanwhile.

        Args:
            ref, named: the instance, as `located` takes it.
            most: how many events to verify at most; None: any number.

        Returns:
            As `Client.verify`; None: it is not known, for it has more events, or takes longer than `VERIFY_SECONDS`.

        Raises:
            UnknownInstance, AmbiguousInstance, NotYours: as `located`.
        """

        def length() -> int:
            with self.located(ref, named) as (client, found), transaction(client.runtime.database) as connection:
                return instances.find_with_archived(connection, found, client.project)["version"]

        def verify() -> tuple[Problem, ...]:
            with self.located(ref, named) as (client, found):
                return client.verify(found)

        events = await inside(length)
        if most is not None and events > most:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(VERIFY_SECONDS):
                async with self.access.long_histories if events > LONG_HISTORY else nullcontext():
                    return await inside(verify)
        return None

    @contextmanager
    def located(self, ref: str, named: str | None, *, write: bool = False) -> Iterator[tuple[Client, str | UUID]]:
        """A client, and the REF with which it finds an instance; within the block, nothing is said of other projects.

        Args:
            ref: the instance: a UUID, or a name in the project.
            named: that project, as `project` takes it.
            write: as for `client`.

        Raises:
            UnknownInstance: there is none for this token.
            NotYours: as `client`.
        """
        id_ = instances.as_uuid(ref)
        client = self.client(named, write=write) if id_ is None else self.client(ref=id_, write=write)
        with only_of(client.project, ref):
            yield client, id_ or ref

    def _project_of(self, instance_id: UUID) -> str:
        project = self.access.projects_of([instance_id]).get(instance_id)
        if project is None or not self.principal.may_read(project):
            raise UnknownInstance(f"There is no instance {instance_id} in the projects of this token.")
        return project


@contextmanager
def only_of(project: str, ref: str) -> Iterator[None]:
    """Within it, of an instance that is not found, nothing is said but that it is not in this project."""
    try:
        yield
    except Archived:
        raise
    except UnknownInstance:
        raise UnknownInstance(f"There is no instance {ref!r} in project {project!r}.") from None


async def caller(request: Request, given: Credentials) -> Caller:
    """The sender of a request.

    Raises:
        HTTPException: 401, without saying why.
        TooManyRequests: its token is over its rate.
    """
    prefix, presented = BEARER, given.credentials if given else ""
    if given is None and session_cookie.may_read(request):
        prefix, presented = SESSION, session_cookie.of(request)
    if (found := await known(request, presented, prefix)) is None:
        raise HTTPException(401, headers=CHALLENGE)
    request.state.caller = found
    return found


async def told_instead(request: Request, status: int) -> Exception | None:
    """What the sender of a refused request is told instead of why: that its token is not in force any more.

    PostgreSQL judges the token anew as it accepts, so one that was revoked since its look-up may be why it refused
    (TOKEN-8). Reading is not judged again, and `Direct` looks for itself.

    Args:
        request: the refused one.
        status: of the answer that says why.

    Returns:
        None: the token is in force, or it is not the reason.
    """
    asked: Caller | None = getattr(request.state, "caller", None)
    if asked is None or request.method in session_cookie.SAFE or status == 429 or status >= 500:
        return None
    try:
        await asked.still()
    except Exception as error:  # also that PostgreSQL does not answer
        return error
    return None


async def known(request: Request, presented: str, prefix: str) -> Caller | None:
    """Whoever a request presents a token of, with this prefix; None: it is none in force.

    Raises:
        TooManyRequests: it is over its rate.
    """
    principal = await looked_up(request.app.state.access, presented, prefix)
    return None if principal is None else admitted(request, principal)


async def looked_up(access: Access, presented: str, prefix: str) -> Principal | None:
    """Whose a token with this prefix is; None: it is none in force."""
    before = KNOWN.get()
    if before and before.principal and (before.token, BEARER) == (presented, prefix):
        return before.principal
    principal = await access.tokens.ask((presented, prefix))
    if principal and prefix == BEARER:
        access.lately.note(presented, principal)
    return principal


def admitted(request: Request, principal: Principal) -> Caller:
    """The sender of a request, whose token this is.

    Raises:
        TooManyRequests: it is over its rate.
    """
    access: Access = request.app.state.access
    request.scope["state"].update(token_id=str(principal.token_id), by=principal.name)
    if seconds := access.rates.wait_seconds(principal.token_id):
        raise TooManyRequests(seconds)
    return Caller(access, principal)


Called = Annotated[Caller, Depends(caller)]
