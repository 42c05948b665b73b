"""What a token allows, as PostgreSQL judges raw SQL of the engine: every role, authority, project and state."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from psycopg.types.json import Jsonb

from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.overrides.at_once import GOVERNANCE
from interlock.workers.overrides.tokens import TokenTerms, issue, revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workflows.definition import AUTHORITIES
from interlock.workflows.machines.governance.api_token import ROLES, Role
from tests import databases
from tests.rights import OF_SECRET, SECRET, operate
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Sql = psycopg.Connection[Any]
NONE = UUID(int=0)
WHY = OverrideOrder("ann", "a test")
OWN, OTHER, ALL = "own", "other", None
STATES = ("active", "expired", "revoked", "proposed", "unknown", "another's")
NAMES: dict[Role, str] = {"read-only": "bot", "agent": "bot", "operator": "ann", "admin": "ann"}
TRY = """
INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, authority, proof)
VALUES (gen_random_uuid()::text, '', %(id)s, %(trigger)s, %(by)s, '{"reason": "a test"}', %(authority)s, %(proof)s)
RETURNING authority, proof"""


@dataclass(frozen=True)
class Aim:
    """A trigger that is open to one authority only, and what else its request says."""

    authority: str
    id: UUID
    trigger: str
    said: str = "anyone"  # the request's own words; who says nothing has the right of the name
    proof: str = ""


@dataclass(frozen=True)
class Doors:
    """Tokens by role, state and project, and what to aim at by name, project and authority."""

    tokens: dict[tuple[Role, str, str | None], UUID]
    aims: dict[tuple[str, str, str], Aim]


def aims(client: Client, project: str, name: str) -> Iterator[Aim]:
    """One of each authority; `name` is its holder, and its decider."""

    def made(type_: str, **context: Any) -> UUID:
        entity = name if type_ == "worker" else str(uuid4())[:20]
        return client.create(type_, entity, project=project, context=context)["id"]

    yield Aim("anyone", made("story"), "design_complete")
    yield Aim("decider", made("approval", deciders=[name], author="cyd"), "approve")
    yield Aim("operator", made("limit", kind="key", name="k", at_once=1), "remove")
    yield Aim("holder", made("worker", **OF_SECRET), "registration_complete", "holder", f"secret:{SECRET} ")
    yield Aim("machinery", made("run"), "start", "machinery", "state:0 ")
    yield Aim("effect", made("test_gate", gate_type="UNIT"), "gate_passed", "effect", f"lease:{uuid4()}:1 ")


def tokens(client: Client) -> Iterator[tuple[tuple[Role, str, str | None], UUID]]:
    """One of each role, state and project, or for all; those to expire are active as yet."""

    def issued(name: str, role: Role, projects: tuple[str, ...] | None) -> UUID:
        return issue(client.runtime, TokenTerms(name, role, projects), WHY).row["token_id"]

    for role, where in product(ROLES, (OWN, ALL)):
        name, projects = NAMES[role], None if where is None else (where,)
        yield (role, "active", where), issued(name, role, projects)
        yield (role, "expired", where), issued(name, role, projects)
        revoke_tokens(client.runtime, str(gone := issued(name, role, projects)), WHY)
        yield (role, "revoked", where), gone
        terms = TokenTerms(name, role, projects).context | {"secret_sha256": uuid4().hex * 2}
        proposed = client.create("api_token", str(uuid4())[:20], project=GOVERNANCE, context=terms)
        yield (role, "proposed", where), proposed["id"]
        yield (role, "unknown", where), uuid4()
        yield (role, "another's", where), issued("cyd" if name == "bot" else "bob", role, projects)


def write(client: Client) -> Doors:
    operate(client.runtime, "ann", "bob")
    places = list(product(("bot", "ann"), (OWN, OTHER)))
    there = {(name, project, aim.authority): aim for name, project in places for aim in aims(client, project, name)}
    return Doors(dict(tokens(client)), there)


@pytest.fixture(scope="module")
def written(servers: Servers, template: str) -> Iterator[tuple[str, Doors]]:
    """The name of a database that has them, to copy."""
    with databases.written(servers, template, write) as made:
        yield made


@pytest.fixture(scope="module")
def doors(servers: Servers, written: tuple[str, Doors]) -> Iterator[tuple[str, Doors]]:
    """The URL of a database that has them, for the engine; no test leaves anything in it."""
    name, made = written
    with databases.copy_of(servers, name) as url:
        expired = [id_ for (_, state, _), id_ in made.tokens.items() if state == "expired"]
        superuser = databases.as_superuser(servers, url)
        with psycopg.connect(superuser, autocommit=True) as dba, unprotected(dba, "api_tokens"):
            gone = "UPDATE api_tokens SET expires_at = now() WHERE token_id = ANY (%s)"
            assert dba.execute(gone, (expired,)).rowcount == len(expired)
        yield url, made


@pytest.fixture(scope="module")
def sql(doors: tuple[str, Doors]) -> Iterator[Sql]:
    """Raw SQL of the engine in it; all of it is undone."""
    with psycopg.connect(doors[0], autocommit=True) as connection:
        yield connection


def said(sql: Sql, aim: Aim, by: str, token: object) -> tuple[str, str] | str:
    """The authority and proof with which PostgreSQL accepts it, in a transaction that is undone; or why it does not."""
    given = {"id": aim.id, "trigger": aim.trigger, "by": by, "authority": aim.said}
    try:
        with sql.transaction(force_rollback=True):
            accepted = sql.execute(TRY, given | {"proof": f"{aim.proof}token:{token}"}).fetchone()
            assert accepted
            return accepted[0], accepted[1]
    except InsufficientPrivilege as refused:
        return str(refused.diag.message_detail)


def may(role: Role, authority: str) -> bool:
    """What docs/spec/token.md says of a token in force that is good for the project."""
    return {
        "read-only": False,
        "agent": authority in ("anyone", "decider", "holder"),
        "operator": authority in ("anyone", "decider", "holder", "operator"),
        "admin": authority in ("anyone", "decider", "holder", "operator"),
    }[role]


@pytest.mark.parametrize(("role", "state"), [*product(ROLES, STATES)])
def test_a_request_with_a_token_is_accepted_only_as_the_token_allows(
    doors: tuple[str, Doors], sql: Sql, role: Role, state: str
) -> None:
    there = doors[1]
    name, tried = NAMES[role], 0
    for where, project, authority in product((OWN, ALL), (OWN, OTHER), AUTHORITIES):
        aim, token = there.aims[name, project, authority], there.tokens[role, state, where]
        answer = said(sql, aim, name, token)
        if state == "active" and (where is ALL or project == where) and may(role, authority):
            assert answer[0] == authority, answer
            assert answer[1].endswith(f"token:{token}"), answer
            assert SECRET not in answer[1]
        else:
            assert isinstance(answer, str), (where, project, authority, answer)
        tried += 1
    assert tried == 2 * 2 * len(AUTHORITIES)


@pytest.mark.parametrize("role", ROLES)
def test_what_gives_power_needs_an_admin_that_covers_it(doors: tuple[str, Doors], sql: Sql, role: Role) -> None:
    there = doors[1]
    name = NAMES[role]
    for where, covered in product((OWN, ALL), (OWN, ALL)):
        revoked = Aim("operator", there.tokens["agent", "active", covered], "revoke")
        grant = Aim("operator", next(iter(sql.execute("SELECT grant_id FROM operators").fetchone() or ())), "revoke")
        token = there.tokens[role, "active", where]
        accepted = [isinstance(said(sql, each, name, token), tuple) for each in (revoked, grant)]
        admin = role == "admin"
        assert accepted == [admin and (where is ALL or covered == where), admin and where is ALL]


def test_a_name_revokes_its_own_tokens_and_no_others(doors: tuple[str, Doors], sql: Sql) -> None:
    there = doors[1]
    own, others = (there.tokens["agent", state, OWN] for state in ("active", "another's"))
    for token, target, kept in product((own, others), (own, others), ("holder", "anyone")):
        by = "bot" if token == own else "cyd"
        answer = said(sql, Aim("holder", target, "revoke", kept), by, token)
        assert isinstance(answer, tuple) == (token == target and kept == "holder"), (by, target, kept, answer)


def test_a_later_grant_makes_no_agents_token_an_operators(servers: Servers, written: tuple[str, Doors]) -> None:
    source, there = written
    with (
        databases.written(servers, source, lambda client: operate(client.runtime, "bot")) as (name, _),
        psycopg.connect(databases.beside(servers.database_url, name), autocommit=True) as sql,
    ):
        answer = said(sql, there.aims["bot", OWN, "operator"], "bot", there.tokens["agent", "active", ALL])
        assert "a token of the role agent is no operator" in answer


@pytest.mark.parametrize("proof", ["token:", "token:x", f"token:{NONE} claim:1", f"token:{NONE}x", "x token:1"])
def test_what_is_no_token_is_refused(doors: tuple[str, Doors], sql: Sql, proof: str) -> None:
    there = doors[1]
    aim = there.aims["bot", OWN, "anyone"]
    given = {"id": aim.id, "trigger": aim.trigger, "by": "bot", "authority": "anyone", "proof": proof}
    with pytest.raises(InsufficientPrivilege):
        sql.execute(TRY, given)


def test_only_the_engines_logins_say_by_which_token_they_were_asked(servers: Servers, doors: tuple[str, Doors]) -> None:
    url, there = doors
    row = {
        "request_id": str(uuid4()), "fingerprint": "00", "workflow_id": str(there.aims["bot", OWN, "anyone"].id),
        "trigger": "design_complete", "triggered_by": "bot", "origin": "agent",
        "proof": f"token:{there.tokens['agent', 'active', OWN]}",
    }  # fmt: skip
    client = psycopg.connect(databases.as_client(servers, url), autocommit=True)
    with client as sql, pytest.raises(InsufficientPrivilege, match="open to: anyone"):
        sql.execute("SELECT * FROM interlock.accept_all(%s::json)", (Jsonb([row]),))
