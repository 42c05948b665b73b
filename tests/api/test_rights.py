"""Who may use which route: every route, by role, own and other project, and token in force or not."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from interlock.api.groups import GROUPS, PREFIX
from interlock.api.lately import Lately
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.access.tokens import Principal, digest_of
from interlock.workers.circuit_breakers import calling
from interlock.workers.client.client import Client
from interlock.workers.orchestration.submission import checked, deliver
from interlock.workers.overrides.tokens import revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.schedules import creating
from interlock.workers.settings import Settings
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.machines.governance.api_token import ROLES
from interlock.workflows.plan.read import read_plan
from tests import databases
from tests.calling import Calls, calls, token
from tests.driving import drain_all
from tests.http_rights import PLAN, RIGHTS, Place
from tests.rights import operate
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
OWN, OTHER = "own", "other"
TOOL = "pytest"
IN_FORCE = {"read-only": "bot", "agent": "bot", "operator": "ann", "admin": "ann"}
NOT_IN_FORCE = ("", "x", "ilk_" + "A" * 43, "ilk_" + "ü" * 43, "revoked", "expired")


class Site(NamedTuple):
    """The API over a database with two projects, and tokens by role and the projects they cover, or by state."""

    call: Calls
    places: dict[str, Place]
    tokens: dict[tuple[str, str | None], str]
    superuser: str


def place(client: Client, project: str) -> Place:
    story = client.create("story", "S-1", project=project)["id"]
    approval = client.create("approval", "A-1", project=project)["id"]
    times, does = {"cron": "0 3 * * *"}, {"create": {"type": "story", "name": "s-%due"}}
    within = Client(client.runtime, project=project)
    schedule = creating.create_schedule(within, "nightly", times, does, by="cyd")["id"]
    with calling(client.runtime, project, TOOL):
        pass  # now it has a breaker
    request_id = client.fire(story, "block", by="cyd").request_id
    return Place(project, story, approval, schedule, request_id, TOOL, *supervised(within), *runs(within))


def supervised(client: Client) -> tuple[UUID, ...]:
    """An idle worker, a terminated one, a job that waits for more workers than there are, and a canceled one."""
    supervisor, jobs, cyd = Supervisor(client), Jobs(client), ActionOrder("cyd", "a test")
    worker, ended = (supervisor.create(order=cyd).subject["id"] for _ in range(2))
    supervisor.terminate(ended, cyd)
    job, canceled = (jobs.submit("build", worker_count=10, order=cyd).subject["id"] for _ in range(2))
    jobs.validate(job, cyd)
    jobs.cancel(canceled, cyd)
    return worker, ended, job, canceled


def runs(client: Client) -> tuple[UUID, ...]:
    """A run under way, and a canceled one."""
    under_way, canceled = (submit(client, name) for name in ("under-way", "canceled"))
    client.fire(canceled, "cancel", by="cyd")
    return under_way, canceled


def submit(client: Client, name: str) -> UUID:
    read = read_plan(PLAN)
    return deliver(
        client.runtime,
        checked(client.runtime, read, project=client.project, by="cyd", directory=Path("/"), priority=0),
        name,
    ).id


def write(client: Client) -> tuple[dict[str, Place], dict[tuple[str, str | None], str]]:
    operate(client.runtime, "ann")
    places = {each: place(client, each) for each in (OWN, OTHER)}
    drain_all(client.runtime)
    runtime = client.runtime
    tokens: dict[tuple[str, str | None], str] = {("revoked", None): token(runtime, "cyd", projects=None)}
    revoke_tokens(runtime, "cyd", OverrideOrder("ann", "a test"))
    tokens["expired", None] = token(runtime, "eve", projects=None)
    for role in ROLES:
        tokens[role, OWN] = token(runtime, IN_FORCE[role], role, (OWN,))
        tokens[role, None] = token(runtime, IN_FORCE[role], role, None)
    return places, tokens


@pytest.fixture(scope="module")
def site(servers: Servers, template: str, default_settings: Settings) -> Iterator[Site]:
    with (
        databases.written(servers, template, write) as (name, (places, tokens)),
        databases.copy_of(servers, name) as url,
    ):
        superuser = databases.as_superuser(servers, url)
        with psycopg.connect(superuser, autocommit=True) as dba, unprotected(dba, "api_tokens"):
            dba.execute("UPDATE api_tokens SET expires_at = now() WHERE name = 'eve'")
        own = {"database_url": url, "broker_url": servers.broker_url}
        with calls(default_settings.model_copy(update=own)) as call:
            yield Site(call, places, tokens, superuser)


def test_every_route_has_its_row(site: Site) -> None:
    grouped = [route for group in GROUPS for route in group.router.routes if isinstance(route, APIRoute)]
    assert {(method, f"{PREFIX}{each.path}") for each in grouped for method in each.methods} == set(RIGHTS), (
        "add it to tests/http_rights.py, then run `python -m docs.generate`"
    )
    served = {each.path for each in site.call.app.routes if isinstance(each, Route)}
    assert served == {"/api/openapi.json"}, "every other one is of a group"


@pytest.mark.parametrize(("method", "path"), [*RIGHTS], ids=str)
def test_a_route_answers_whose_token_may_and_nobody_else(site: Site, method: str, path: str) -> None:
    right = RIGHTS[method, path]

    def status(there: Place, token: str) -> int:
        return site.call(method, right.url(there), token=token, **right.said(there)).status_code

    for role in ROLES:
        allowed = right.status if role in right.roles or not right.roles else 403
        assert status(site.places[OWN], site.tokens[role, OWN]) == allowed, (role, OWN)
        assert status(site.places[OTHER], site.tokens[role, None]) == allowed, (role, "all")
        beyond = right.outside or allowed
        assert status(site.places[OTHER], site.tokens[role, OWN]) == beyond, (role, OTHER)


@pytest.mark.parametrize("presented", NOT_IN_FORCE)
def test_a_token_that_is_not_in_force_gets_one_answer_and_no_detail(site: Site, presented: str) -> None:
    bodies = set()
    for (method, path), right in RIGHTS.items():
        bearer = site.tokens.get((presented, None), presented)
        header = {"Authorization": f"Bearer {bearer}".encode()} if presented else {}
        there = site.places[OWN]
        sent = site.call.client.request(method, right.url(there), headers=header, **right.said(there))
        answer = site.call.loop.run(sent)
        assert answer.status_code == (401 if right.roles else right.status), path
        if right.roles:
            assert answer.headers["www-authenticate"] == "Bearer"
            bodies.add(answer.text)
    assert len(bodies) == 1
    assert "detail" not in bodies.pop()


NOTHING_TO_ACCEPT = {  # one reads, the others find nothing to do: their look-up was all that judged the token
    ("POST", "/api/audit/report/check"): 200,
    ("POST", "/api/breakers/{tool:path}/reset"): 200,
    ("POST", "/api/jobs/{ref}/allocate"): 200,
    ("POST", "/api/supervisor/jobs/{ref}/recover"): 200,
}
ASKED = """
SELECT (SELECT count(*) FROM trigger_requests WHERE trigger <> 'refuse'),
       (SELECT count(*) FROM workflow_instances WHERE workflow_type <> 'refusal_log')
"""
REVOKED = (
    "UPDATE api_tokens SET state = 'revoked', ended_by = 'ann', ended_at = now() WHERE secret_sha256 = %s"
    " AND state = 'active'"
)
BACK = "UPDATE api_tokens SET state = 'active', ended_by = NULL, ended_at = NULL WHERE secret_sha256 = %s"


@pytest.fixture
def revoked_once_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """Each token is revoked right after its look-up, before PostgreSQL accepts anything; and is back for the next."""
    access = site.call.app.state.access
    look_up, revoked = access.tokens.ask, set[bytes]()
    with psycopg.connect(site.superuser, autocommit=True) as dba, unprotected(dba, "api_tokens"):

        def back() -> None:
            while revoked:
                dba.execute(BACK, (revoked.pop(),))

        async def ask(asked: tuple[str, str]) -> Principal | None:
            back()
            found: Principal | None = await look_up(asked)
            revoked.add(digest_of(asked[0]))
            assert dba.execute(REVOKED, tuple(revoked)).rowcount == 1
            return found

        monkeypatch.setattr(access, "lately", Lately())
        monkeypatch.setattr(access.tokens, "ask", ask)
        yield dba
        back()


def test_a_token_that_is_revoked_before_its_request_is_accepted_is_told_nothing(
    site: Site, revoked_once_found: psycopg.Connection
) -> None:
    before, told = revoked_once_found.execute(ASKED).fetchone(), dict[tuple[str, str], int]()
    for (method, path), right in RIGHTS.items():
        if method != "GET":
            bearer = site.tokens[next(each for each in ("agent", "operator", "admin") if each in right.roles), OWN]
            asked = right.said(site.places[OWN])
            told[method, path] = site.call(method, right.url(site.places[OWN]), token=bearer, **asked).status_code
    assert {each: status for each, status in told.items() if status != 401} == NOTHING_TO_ACCEPT
    assert revoked_once_found.execute(ASKED).fetchone() == before


def test_what_is_in_another_project_is_as_what_is_nowhere(site: Site) -> None:
    other, nowhere = site.places[OTHER].story, "01977777-7777-7777-8777-777777777777"
    told = [
        site.call("GET", f"/api/instances/{each}", token=site.tokens["admin", OWN]).text.replace(str(each), "ID")
        for each in (other, nowhere)
    ]
    assert told[0] == told[1]
    named = site.call("GET", "/api/instances/S-2?project=own", token=site.tokens["agent", OWN])
    assert OTHER not in named.text


def test_an_operators_trigger_needs_an_operators_token_and_a_reason(site: Site) -> None:
    body = {"instance": str(site.places[OWN].schedule), "trigger": "stop", "data": {"reason": "a test"}}

    def sent(role: str, **more: object) -> int:
        said = body | more
        return site.call("POST", "/api/triggers?wait=0", token=site.tokens[role, OWN], json=said).status_code

    assert [sent(role) for role in ROLES] == [403, 403, 202, 202]
    assert sent("operator", data={}) == 403
    refused = site.call("POST", "/api/triggers?wait=0", token=site.tokens["agent", OWN], json=body)
    assert "Who may: " in refused.json()["detail"]
