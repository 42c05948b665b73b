"""Every route of the API, and what whose token may do with it: tried by tests, printed into docs/security.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from interlock.workflows.machines.governance.api_token import ROLES, Role

NOW = {"wait": 0}
READERS = frozenset(ROLES)
WRITERS = READERS - {"read-only"}
NOBODY_NEEDED = frozenset[Role]()


class Place(NamedTuple):
    """A project, and what is in it."""

    project: str
    story: UUID
    approval: UUID
    schedule: UUID
    request_id: str


@dataclass(frozen=True)
class RouteRight:
    """Who may use a route.

    Attributes:
        roles: those whose tokens may; none: no token is needed.
        status: the answer to them.
        outside: the answer to a token that does not cover the project; 0: the route is of no project.
        url, said: how a place's are asked for.
    """

    roles: frozenset[Role]
    status: int
    outside: int
    url: Callable[[Place], str]
    said: Callable[[Place], Mapping[str, Any]] = lambda _: {}


def _listed(path: str) -> RouteRight:
    return RouteRight(READERS, 200, 403, lambda there: f"{path}?project={there.project}")


def _one(url: Callable[[Place], str]) -> RouteRight:
    return RouteRight(READERS, 200, 404, url)


def _written(url: Callable[[Place], str], status: int, outside: int, json: Callable[[Place], Any]) -> RouteRight:
    return RouteRight(WRITERS, status, outside, url, lambda there: {"json": json(there), "params": NOW})


def _working(path: str, status: int, json: Any = None) -> RouteRight:
    return RouteRight(WRITERS, status, 403, lambda there: f"{path}?project={there.project}", lambda _: {"json": json})


RIGHTS: Mapping[tuple[str, str], RouteRight] = {
    ("GET", "/api/instances"): _listed("/api/instances"),
    ("POST", "/api/instances"): _written(
        lambda _: "/api/instances",
        201,
        403,
        lambda there: {"type": "story", "entity_id": str(uuid4())[:20], "project": there.project},
    ),
    ("GET", "/api/instances/{ref:path}"): _one(lambda there: f"/api/instances/{there.story}"),
    ("GET", "/api/history/{ref:path}"): _one(lambda there: f"/api/history/{there.story}"),
    ("POST", "/api/triggers"): _written(
        lambda _: "/api/triggers", 202, 404, lambda there: {"instance": str(there.story), "trigger": "design_complete"}
    ),
    ("POST", "/api/triggers/batch"): _written(
        lambda _: "/api/triggers/batch",
        202,
        403,
        lambda there: {"project": there.project, "triggers": [{"instance": str(there.story), "trigger": "block"}]},
    ),
    ("GET", "/api/requests"): _one(lambda there: f"/api/requests?id={there.request_id}"),
    ("GET", "/api/requests/{request_id:path}"): _one(lambda there: f"/api/requests/{there.request_id}"),
    ("GET", "/api/events"): RouteRight(READERS, 200, 403, lambda there: f"/api/events?project={there.project}&wait=0"),
    ("GET", "/api/approvals"): _listed("/api/approvals"),
    ("POST", "/api/approvals/{approval_id}/decision"): _written(
        lambda there: f"/api/approvals/{there.approval}/decision", 202, 404, lambda _: {"decision": "approve"}
    ),
    ("GET", "/api/schedules"): _listed("/api/schedules"),
    ("POST", "/api/schedules"): _written(
        lambda _: "/api/schedules",
        201,
        403,
        lambda there: {
            "name": str(uuid4())[:20],
            "project": there.project,
            "times": {"cron": "0 3 * * *"},
            "create": {"type": "story", "name": "s-%due"},
        },
    ),
    ("GET", "/api/schedules/{ref:path}"): _one(lambda there: f"/api/schedules/{there.schedule}"),
    # Whose token may is told that it has not registered, or that what it says of itself is not valid.
    ("PUT", "/api/agent"): _working("/api/agent", 422, {"capabilities": ["interlock:x"]}),
    ("DELETE", "/api/agent"): _working("/api/agent", 404),
    ("GET", "/api/agent/claims"): _working("/api/agent/claims", 404),
    ("POST", "/api/agent/claims"): _working("/api/agent/claims", 404),
    ("POST", "/api/agent/heartbeat"): _working("/api/agent/heartbeat", 404),
    ("POST", "/api/agent/log"): _working("/api/agent/log", 404, {"token": 1, "text": "x"}),
    ("POST", "/api/agent/finish"): _working("/api/agent/finish", 404, {"token": 1}),
    ("GET", "/api/definitions"): RouteRight(READERS, 200, 0, lambda _: "/api/definitions"),
    ("GET", "/api/definitions/{type}"): RouteRight(READERS, 200, 0, lambda _: "/api/definitions/story"),
    ("GET", "/api/health"): RouteRight(NOBODY_NEEDED, 200, 0, lambda _: "/api/health"),
    ("GET", "/api/ready"): RouteRight(NOBODY_NEEDED, 200, 0, lambda _: "/api/ready"),
}


def rights_table() -> str:
    """The table in docs/security.md."""
    rows = [f"| `{method} {path.replace(':path', '')}` | {_row(each)} |" for (method, path), each in RIGHTS.items()]
    head = "| route | no token | read-only | agent | operator | admin | a token for another project |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _row(right: RouteRight) -> str:
    if not right.roles:
        return " | ".join([str(right.status)] * 6)
    by_role = [str(right.status) if role in right.roles else "403" for role in ROLES]
    return " | ".join(["401", *by_role, str(right.outside or right.status)])
