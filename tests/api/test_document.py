"""The OpenAPI document says what the API does: Schemathesis calls every operation of it, as each role and as nobody."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import schemathesis
from httpx import InvalidURL
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from interlock.workflows.machines.governance.api_token import ROLES
from tests import databases
from tests.calling import BASE, Calls, bearing, calls, token
from tests.driving import drain_all
from tests.http_rights import RIGHTS
from tests.rights import operate

pytestmark = pytest.mark.integration
RIGHTS_OF = {(path.replace(":path", ""), method): right for (method, path), right in RIGHTS.items()}
EACH = 4  # generated requests of an operation, valid and invalid ones; each is sent as each role
STORY, ENDLESS = "S-1", "/api/events"
LONGEST = 16_000  # the client's own limit of a URL is 65,536 bytes, the server's 16,384
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


class Site(NamedTuple):
    """The API, a token of each role, and the document."""

    call: Calls
    tokens: dict[str, str]
    document: Any


def write(client: Client) -> dict[str, str]:
    """Something to be found, and a token of each role."""
    operate(client.runtime, "ann")
    client.create("story", STORY)
    client.create("approval", "A-1")
    client.fire(STORY, "design_complete", by="bot", request_id=STORY)
    drain_all(client.runtime)
    names = {role: "bot" if role in ("read-only", "agent") else "ann" for role in ROLES}
    return {role: token(client.runtime, names[role], role) for role in ROLES} | {"nobody": ""}


@pytest.fixture(scope="module")
def site(servers: Servers, template: str, default_settings: Settings) -> Iterator[Site]:
    with databases.written(servers, template, write) as (name, tokens), databases.copy_of(servers, name) as url:
        own = {"database_url": url, "broker_url": servers.broker_url, "api_rate": 0}
        with calls(default_settings.model_copy(update=own)) as call:
            yield Site(call, tokens, schemathesis.openapi.from_dict(call.app.openapi()))


def answered(call: Calls, case: Case, bearer: str) -> Any:
    """The answer to a generated request."""
    if "wait" in (case.query or {}) or case.path == ENDLESS:
        case.query = dict(case.query or {}) | {"wait": 0}
    said = case.as_transport_kwargs(base_url=BASE)
    headers = dict(said["headers"]) | bearing(bearer)
    if len(case.formatted_path) > LONGEST:
        reject()
    try:
        request = call.client.build_request(
            said["method"],
            said["url"],
            params=said.get("params"),
            content=said.get("data"),
            json=said.get("json"),
            headers={name: str(value).encode("utf-8", "replace") for name, value in headers.items()},
        )
    except InvalidURL:  # it is too long for the client
        reject()
    return call.loop.run(call.client.send(request))


@pytest.mark.parametrize(("path", "method"), [*RIGHTS_OF], ids=" ".join)
def test_it_answers_as_documented_whatever_is_sent_by_whom(site: Site, path: str, method: str) -> None:
    operation = site.document[path][method]

    invalid = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @given(case=st.one_of(operation.as_strategy(), invalid))
    @settings(
        max_examples=EACH,
        phases=[Phase.generate],
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def each(case: Case) -> None:
        for role, bearer in site.tokens.items():
            answer = answered(site.call, case, bearer)
            case.validate_response(answer, checks=CHECKS)
            if role == "nobody" and RIGHTS_OF[path, method].roles:
                assert answer.status_code in (400, 401), "what cannot be read is refused before it is asked who sent it"
            else:
                assert answer.status_code != 401

    each()
