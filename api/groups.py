"""The groups of routes, in the order of the documentation. To add one:

1. a module of `interlock.api.routes` with `router = APIRouter(tags=["NAME"])`, whose routes take a `Called`, answer
   with a `JsonAnswer`, and say in `responses=documented(…)` which problems they answer with;
2. its row here;
3. a row for each route in `tests/http_rights.py`: what which role may do with it. Tests fail until it is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from functools import cached_property

from fastapi import APIRouter, Depends, Request
from starlette.routing import BaseRoute

from interlock.api.routes import (
    agents,
    approvals,
    audit,
    brakes,
    breakers,
    dead,
    definitions,
    events,
    gates,
    health,
    instances,
    jobs,
    limits,
    overrides,
    patches,
    phases,
    runs,
    schedules,
    stuck,
    subscriptions,
    supervisor,
    tokens,
    triggers,
)

PREFIX = "/api"


@dataclass(frozen=True)
class RouteGroup:
    """A group of routes; a deprecated one says so in each answer, by RFC 9745 and RFC 8594.

    Attributes:
        router: the routes.
        deprecated_at: since when; None: it is not.
        sunset_at: when it will be removed.
    """

    router: APIRouter
    deprecated_at: datetime | None = None
    sunset_at: datetime | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """What each of its answers says of that."""
        if self.deprecated_at is None:
            return {}
        said = {"Deprecation": f"@{int(self.deprecated_at.timestamp())}"}
        return said | ({"Sunset": format_datetime(self.sunset_at, usegmt=True)} if self.sunset_at else {})

    @cached_property
    def routes(self) -> Sequence[BaseRoute]:
        """The routes under `PREFIX`. FastAPI reads their signatures once, however many applications have them."""

        def note(request: Request) -> None:
            request.state.headers = self.headers

        said = [Depends(note)] if self.headers else []
        under = APIRouter(generate_unique_id_function=lambda route: route.name)
        under.include_router(self.router, prefix=PREFIX, dependencies=said, deprecated=bool(said) or None)
        return under.routes


GROUPS = tuple(
    RouteGroup(each.router)
    for each in (
        instances, triggers, events, approvals, schedules, runs, agents, gates, patches, breakers, stuck, dead, brakes,
        supervisor, jobs, limits, phases, overrides, audit, subscriptions, tokens, definitions, health,
    )
)  # fmt: skip
