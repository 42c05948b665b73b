"""The console's application: `create_console(access)`. Importing this opens nothing."""

from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from interlock.api.access import Access
from interlock.api.bounds import Bounds
from interlock.console import failures, static_files
from interlock.console.pages import find, licences, live, overriding, run_parts, sign_in
from interlock.console.pages.register import PAGES
from interlock.console.readings import Readings
from interlock.console.security_headers import SecurityHeaders
from interlock.db.connection import transaction
from interlock.db.core import newest_instances
from interlock.workers.operations import metrics
from interlock.workers.runtime import Runtime

BESIDE = (sign_in, licences, live, find, static_files, run_parts, overriding)  # what is no page of the navigation
ROUTERS = tuple(each.router for each in (*BESIDE, *(page.module for page in PAGES)))


def create_console(access: Access) -> SecurityHeaders:
    """The console's pages.

    Args:
        access: the API's, with which it shares connections and rates.
    """
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Bounds, settings=access.runtime.settings),
            Middleware(GZipMiddleware, minimum_size=1_000),
        ],
    )
    app.state.access, app.state.pages = access, PAGES
    app.state.readings = Readings(partial(metrics.read, access.runtime))
    app.state.projects = Readings(partial(_projects, access.runtime))
    failures.install(app)
    for each in ROUTERS:
        app.include_router(each)
    return SecurityHeaders(app)


def _projects(runtime: Runtime) -> list[str]:
    with transaction(runtime.database) as connection:
        return newest_instances.first_projects(connection)
