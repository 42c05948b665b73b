"""Every route of the API, and what whose token may do with it: tried by tests, printed into docs/security.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from interlock.workflows.machines.governance.api_token import ROLES, Role

NOW = {"wait": 0}
READERS = frozenset(ROLES)
WRITERS = READERS - {"read-only"}
OPERATORS = frozenset[Role]({"operator", "admin"})
ADMINS = frozenset[Role]({"admin"})
PLAN = "{name: p, workstreams: [{id: w, tasks: [{id: t, agent: {instructions: write a test}}]}]}"
NOBODY_NEEDED = frozenset[Role]()
WHY = {"reason": "a test"}
UNSIGNED = {
    "payload": "",
    "payloadType": "application/vnd.in-toto+json",
    "signatures": [{"keyid": "nobody's", "sig": ""}],
}


class Place(NamedTuple):
    """A project, and what is in it."""

    project: str
    story: UUID
    approval: UUID
    schedule: UUID
    request_id: str
    tool: str
    worker: UUID  # IDLE, as cyd created it
    ended_worker: UUID
    job: UUID  # PENDING, as cyd submitted it
    ended_job: UUID
    run: UUID  # under way, with the workstream w and its task t
    ended_run: UUID


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
    return RouteRight(READERS, 200, 403, _within(path))


def _one(url: Callable[[Place], str]) -> RouteRight:
    return RouteRight(READERS, 200, 404, url)


def _written(url: Callable[[Place], str], status: int, outside: int, json: Callable[[Place], Any]) -> RouteRight:
    return RouteRight(WRITERS, status, outside, url, lambda there: {"json": json(there), "params": NOW})


def _operated(url: Callable[[Place], str], status: int, outside: int, **said: Any) -> RouteRight:
    return RouteRight(OPERATORS, status, outside, url, lambda _: {"json": WHY | said})


def _within(path: str) -> Callable[[Place], str]:
    return lambda there: f"{path}?project={there.project}"


def _working(path: str, status: int, json: Any = None) -> RouteRight:
    return RouteRight(WRITERS, status, 403, _within(path), lambda _: {"json": json})


def _acted(
    url: Callable[[Place], str], status: int, *, json: Any = None, roles: frozenset[Role] = OPERATORS
) -> RouteRight:
    return RouteRight(roles, status, 404, url, lambda _: {"json": json or {}})


def _worker(action: str, status: int, *, json: Any = None, roles: frozenset[Role] = WRITERS) -> RouteRight:
    return _acted(lambda there: f"/api/{action.format(there.worker)}", status, json=json, roles=roles)


def _job(action: str, status: int, *, json: Any = None, roles: frozenset[Role] = OPERATORS) -> RouteRight:
    return _acted(lambda there: f"/api/{action.format(there.job)}", status, json=json, roles=roles)


def _born(path: str, **more: object) -> RouteRight:
    return RouteRight(OPERATORS, 201, 403, lambda _: path, lambda there: {"json": {"project": there.project} | more})


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
    # Operators are told that a story is no gate and no patch, or that there is nothing of that name.
    ("GET", "/api/gates"): _listed("/api/gates"),
    ("GET", "/api/gates/{ref:path}"): RouteRight(READERS, 404, 404, lambda there: f"/api/gates/{there.story}"),
    ("POST", "/api/gates/{ref:path}/rerun"): _operated(lambda there: f"/api/gates/{there.story}/rerun", 404, 404),
    ("GET", "/api/patches"): _listed("/api/patches"),
    ("GET", "/api/patches/{ref:path}"): RouteRight(READERS, 404, 404, lambda there: f"/api/patches/{there.story}"),
    ("POST", "/api/patches/{ref:path}/roll-back"): _operated(
        lambda there: f"/api/patches/{there.story}/roll-back", 404, 404
    ),
    ("POST", "/api/patches"): _operated(_within("/api/patches"), 404, 403, based_on="S-1"),
    ("GET", "/api/breakers"): _listed("/api/breakers"),
    ("GET", "/api/breakers/{tool:path}"): RouteRight(
        READERS, 200, 403, lambda there: f"/api/breakers/{there.tool}?project={there.project}"
    ),
    ("POST", "/api/breakers/{tool:path}/reset"): _operated(
        lambda there: f"/api/breakers/{there.tool}/reset?project={there.project}", 200, 403
    ),
    ("GET", "/api/stuck"): _listed("/api/stuck"),
    ("GET", "/api/dead"): _listed("/api/dead"),
    ("POST", "/api/dead/redrive"): _operated(_within("/api/dead/redrive"), 422, 403, ids=["nothing"]),
    ("GET", "/api/brakes"): _listed("/api/brakes"),
    ("GET", "/api/brakes/{name}"): RouteRight(READERS, 404, 403, _within("/api/brakes/nothing")),
    ("POST", "/api/brakes/{name}/release"): _operated(_within("/api/brakes/nothing/release"), 404, 403),
    ("GET", "/api/budgets"): _listed("/api/budgets"),
    ("POST", "/api/budgets"): _operated(
        _within("/api/budgets"), 201, 403, kind="actor", name="cyd", resource="triggers", most=1_000_000
    ),
    ("POST", "/api/budgets/remove"): _operated(
        _within("/api/budgets/remove"), 404, 403, kind="actor", name="nobody", resource="triggers"
    ),
    ("GET", "/api/limits"): _listed("/api/limits"),
    ("POST", "/api/limits"): _operated(_within("/api/limits"), 201, 403, kind="key", name="eu", at_once=3),
    ("POST", "/api/limits/remove"): _operated(_within("/api/limits/remove"), 404, 403, kind="key", name="nothing"),
    ("GET", "/api/phases"): _listed("/api/phases"),
    ("POST", "/api/phases/{name}/freeze"): _operated(_within("/api/phases/nothing/freeze"), 404, 403),
    ("POST", "/api/phases/{name}/thaw"): _operated(_within("/api/phases/nothing/thaw"), 404, 403),
    ("GET", "/api/overrides"): _listed("/api/overrides"),
    ("POST", "/api/overrides/{act}"): _operated(_within("/api/overrides/drop-patch"), 404, 403, instance="S-1"),
    ("GET", "/api/audit"): RouteRight(READERS, 200, 0, lambda _: "/api/audit"),
    ("GET", "/api/audit/report"): _one(lambda there: f"/api/audit/report?instance={there.story}"),
    ("POST", "/api/audit/report/check"): RouteRight(
        READERS, 200, 0, lambda _: "/api/audit/report/check", lambda _: {"json": UNSIGNED}
    ),
    ("GET", "/api/subscriptions"): _listed("/api/subscriptions"),
    ("POST", "/api/subscriptions/{ref:path}/replay"): _operated(
        lambda there: f"/api/subscriptions/{there.story}/replay", 404, 404, since="2026-01-01T00:00:00Z"
    ),
    ("GET", "/api/tokens"): RouteRight(ADMINS, 200, 0, lambda _: "/api/tokens"),
    ("POST", "/api/tokens"): RouteRight(
        ADMINS,
        201,
        403,
        lambda _: "/api/tokens",
        lambda there: {
            "json": WHY | {"name": "dan", "role": "agent", "projects": [there.project], "expires_at": None},
        },
    ),
    ("POST", "/api/tokens/{token_id}/revoke"): RouteRight(
        ADMINS, 404, 0, lambda there: f"/api/tokens/{there.story}/revoke", lambda _: {"json": WHY}
    ),
    ("POST", "/api/runs"): RouteRight(
        OPERATORS, 201, 403, lambda there: f"/api/runs?project={there.project}", lambda _: {"content": PLAN}
    ),
    ("GET", "/api/runs"): _listed("/api/runs"),
    ("GET", "/api/runs/{ref}"): _one(lambda there: f"/api/runs/{there.run}"),
    ("POST", "/api/runs/{ref}/cancel"): _written(
        lambda there: f"/api/runs/{there.ended_run}/cancel", 202, 404, lambda _: WHY
    ),
    ("POST", "/api/runs/{ref}/resume"): _acted(lambda there: f"/api/runs/{there.run}/resume", 409),
    ("POST", "/api/runs/{ref}/workstreams/{workstream}/retry"): _acted(
        lambda there: f"/api/runs/{there.run}/workstreams/w/retry", 409, json=WHY
    ),
    ("GET", "/api/runs/{ref}/logs"): _one(lambda there: f"/api/runs/{there.run}/logs?task=w/t"),
    ("GET", "/api/runs/{ref}/results"): _one(lambda there: f"/api/runs/{there.run}/results"),
    # Moves that the machine refuses then: whose token may not make them is told so first. A heartbeat needs the secret.
    ("POST", "/api/workers"): _born("/api/workers"),
    ("GET", "/api/workers"): _listed("/api/workers"),
    ("GET", "/api/workers/{ref}"): _one(lambda there: f"/api/workers/{there.worker}"),
    ("POST", "/api/workers/{ref}/start"): _worker("workers/{}/start", 409, json={"tasks": ["a", "b"]}),
    ("POST", "/api/workers/{ref}/heartbeat"): _worker("workers/{}/heartbeat", 403, json={"secret": "A" * 43}),
    ("POST", "/api/workers/{ref}/complete"): _worker("workers/{}/complete", 409, roles=OPERATORS),
    ("POST", "/api/workers/{ref}/fail"): _worker("workers/{}/fail", 409, roles=OPERATORS),
    **{
        ("POST", f"/api/supervisor/workers/{{ref}}/{each}"): _worker(f"supervisor/workers/{{}}/{each}", 409, json=WHY)
        for each in ("pause", "resume")
    },
    ("POST", "/api/supervisor/workers/{ref}/terminate"): _acted(
        lambda there: f"/api/supervisor/workers/{there.ended_worker}/terminate", 409, json=WHY, roles=WRITERS
    ),
    ("POST", "/api/supervisor/workers/{ref}/recover"): _worker(
        "supervisor/workers/{}/recover", 409, json=WHY | {"kind": "unrecoverable"}, roles=OPERATORS
    ),
    ("POST", "/api/jobs"): _born("/api/jobs", description="build the report"),
    ("GET", "/api/jobs"): _listed("/api/jobs"),
    ("GET", "/api/jobs/{ref}"): _one(lambda there: f"/api/jobs/{there.job}"),
    ("GET", "/api/jobs/{ref}/tree"): _one(lambda there: f"/api/jobs/{there.job}/tree"),
    ("POST", "/api/jobs/{ref}/validate"): _job("jobs/{}/validate", 409),
    ("POST", "/api/jobs/{ref}/allocate"): _job("jobs/{}/allocate", 200),
    ("POST", "/api/jobs/{ref}/succeed"): _job("jobs/{}/succeed", 409),
    ("POST", "/api/jobs/{ref}/fail"): _job("jobs/{}/fail", 409),
    ("POST", "/api/supervisor/jobs/{ref}/cancel"): _acted(
        lambda there: f"/api/supervisor/jobs/{there.ended_job}/cancel", 409, json=WHY, roles=WRITERS
    ),
    ("POST", "/api/supervisor/jobs/{ref}/recover"): _job(
        "supervisor/jobs/{}/recover", 200, json=WHY | {"kind": "resource_unavailable"}, roles=WRITERS
    ),
    ("GET", "/api/definitions"): RouteRight(READERS, 200, 0, lambda _: "/api/definitions"),
    ("GET", "/api/definitions/{type}"): RouteRight(READERS, 200, 0, lambda _: "/api/definitions/story"),
    ("GET", "/api/definitions/{type}/diagram"): RouteRight(READERS, 200, 0, lambda _: "/api/definitions/story/diagram"),
    ("GET", "/api/diagrams/{ref:path}"): _one(lambda there: f"/api/diagrams/{there.story}"),
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
    return " | ".join(["401", *by_role, str(right.outside or "as its role")])
