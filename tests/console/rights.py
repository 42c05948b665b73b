"""Every page of the console, and what is answered to a session, by its role: tried by tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from interlock.workflows.machines.governance.api_token import ROLES, Role

READERS: frozenset[Role] = frozenset(ROLES)
WRITERS = READERS - {"read-only"}
ADMINS: frozenset[Role] = frozenset({"admin"})


@dataclass(frozen=True)
class PageRight:
    """Who gets what of a route.

    Attributes:
        roles: those that are answered `status`; the others: 403.
        status: 200, 202 (held) or 303; 409 where the machine refuses what the role may try.
        url: with `{story}` and `{token}` of the session's project.
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
