"""Every page of the console, and what is answered to a session, by its role: tried by tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from interlock.workflows.machines.governance.api_token import ROLES, Role

READERS: frozenset[Role] = frozenset(ROLES)
WRITERS = READERS - {"read-only"}
ADMINS: frozenset[Role] = frozenset({"admin"})
OPERATORS = ADMINS | {"operator"}
BECAUSE = {"reason": "a test"}


@dataclass(frozen=True)
class PageRight:
    """Who gets what of a route.

    Attributes:
        roles: those that are answered `status`; the others: 403.
        status: 200, 202 (held) or 303; 409 where the machine refuses what the role may try.
        url: of what is in the session's project: a story, an approval, a token.
        form: what is posted.
        outside: what is answered for an instance of another project; 0: the route names none.
    """

    roles: frozenset[Role]
    status: int
    url: Callable[[Mapping[str, UUID]], str]
    form: Mapping[str, str] = field(default_factory=dict)
    outside: int = 0


def _page(path: str, status: int = 200) -> PageRight:
    return PageRight(READERS, status, lambda _: path)


def _of_none(path: str) -> PageRight:
    """A page of a run's part: an instance of another type is none for anybody (`test_run_pages.py` has real ones)."""
    return PageRight(READERS, 404, lambda there: f"{path}{there['story']}", outside=404)


RIGHTS: Mapping[tuple[str, str], PageRight] = {
    ("GET", "/"): _page("/"),
    ("GET", "/live"): _page("/live"),
    ("GET", "/find"): _page("/find?words=S"),
    ("GET", "/licences"): _page("/licences"),
    ("GET", "/boards"): _page("/boards", 303),
    ("GET", "/boards/{type}"): _page("/boards/story"),
    ("GET", "/instances"): _page("/instances"),
    ("GET", "/instances/{id_}"): PageRight(READERS, 200, lambda there: f"/instances/{there['story']}", outside=404),
    ("POST", "/instances/{id_}/fire"): PageRight(
        WRITERS, 200, lambda there: f"/instances/{there['story']}/fire", {"trigger": "block"}, outside=404
    ),
    ("GET", "/runs"): _page("/runs"),
    ("GET", "/runs/{run_id}"): _of_none("/runs/"),
    ("GET", "/tasks/{task_id}"): _of_none("/tasks/"),
    ("GET", "/gates/{gate_id}"): _of_none("/gates/"),
    ("GET", "/patches/{ledger_id}"): _of_none("/patches/"),
    ("GET", "/approvals"): _page("/approvals"),
    ("GET", "/approvals/{approval_id}"): PageRight(
        READERS, 200, lambda there: f"/approvals/{there['approval']}", outside=404
    ),
    ("GET", "/stuck"): _page("/stuck"),
    ("GET", "/dead"): _page("/dead"),
    ("POST", "/dead/redrive"): PageRight(
        OPERATORS, 422, lambda _: "/dead/redrive", {"id": "none", "project": "default"} | BECAUSE
    ),
    ("POST", "/dead/redrive-all"): PageRight(
        OPERATORS, 200, lambda _: "/dead/redrive-all", {"project": "default"} | BECAUSE
    ),
    ("GET", "/brakes"): _page("/brakes"),
    ("POST", "/brakes/release"): PageRight(
        OPERATORS, 404, lambda _: "/brakes/release", {"name": "none", "project": "default"} | BECAUSE
    ),
    ("GET", "/breakers"): _page("/breakers"),
    ("POST", "/overrides/{name}/{id_}"): PageRight(
        OPERATORS, 404, lambda there: f"/overrides/reset-task/{there['story']}", BECAUSE, outside=404
    ),
    ("POST", "/patches/{id_}/roll-back"): PageRight(
        OPERATORS, 404, lambda there: f"/patches/{there['story']}/roll-back", BECAUSE, outside=404
    ),
    ("POST", "/phases/thaw"): PageRight(
        OPERATORS, 404, lambda _: "/phases/thaw", {"name": "none", "project": "default"} | BECAUSE
    ),
    ("POST", "/jobs/{id_}/validate"): PageRight(
        WRITERS, 404, lambda there: f"/jobs/{there['story']}/validate", BECAUSE, outside=404
    ),
    ("GET", "/workers"): _page("/workers"),
    ("POST", "/workers/{id_}/shutdown"): PageRight(
        OPERATORS, 404, lambda there: f"/workers/{there['story']}/shutdown", BECAUSE, outside=404
    ),
    ("GET", "/schedules"): _page("/schedules"),
    ("GET", "/history"): _page("/history?name=S-1"),
    ("GET", "/tokens"): _page("/tokens"),
    ("POST", "/tokens/{id_}/revoke"): PageRight(
        ADMINS, 200, lambda there: f"/tokens/{there['token']}/revoke", {"reason": "a test"}
    ),
}
WITHOUT = {  # what needs no session, and what ends it
    ("GET", "/sign-in"),
    ("POST", "/sign-in"),
    ("POST", "/sign-out"),
    ("GET", "/static/{digest}/{name:path}"),
}
