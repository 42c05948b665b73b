"""A project leaves a trigger to fewer than its definition does, and never to more (docs/spec/narrowing.md)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege, RestrictViolation
from psycopg.types.json import Jsonb

from interlock.db.connection import transaction
from interlock.db.core import narrowings
from interlock.db.statements import as_json
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.overrides.narrowing import NotNarrowed, narrow, widen_again
from interlock.workers.overrides.transaction import NotAnOperator, OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours, UnknownTrigger
from tests import databases
from tests.crewing import Site
from tests.driving import drain_all, state
from tests.rights import grant

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
ORDER = OverrideOrder("olga", "only leads block stories")
BORN = """
INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, context,
                                created_by)
VALUES (%s, 'narrowing', '1.0.0', 'proposed', 'evil', 'p', %s, 'mallory')"""


@pytest.fixture(autouse=True)
def _operator(client: Client) -> None:
    grant(client, "olga")


def test_only_those_that_are_left_may_fire(client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    other = client.create("story", "S-1", project=f"{project}-2")["id"]
    made = narrow(client.runtime, "story", "block", ["machinery", "operator"], ORDER, project=project)
    assert (made["current_state"], made["context"]["to"]) == ("in_force", ["machinery", "operator"])
    may = [client.show(each)["may"]["block"] for each in (story, other)]
    assert may == [["machinery", "operator"], ["anyone"]]
    with pytest.raises(NotYours, match="mallory is not an operator"):
        client.fire(story, "block", by="mallory")
    with pytest.raises(NotYours, match="no reason is given"):
        client.fire(story, "block", by="olga")
    for ref, by in ((other, "mallory"), (story, "olga")):
        client.fire(ref, "block", by=by, data={"reason": "it waits"})
    client.fire(story, "unblock", by="mallory")  # another trigger
    drain_all(client.runtime)
    assert (state(client, story), state(client, other)) == ("implementation", "blocked")
    blocked = next(each for each in client.history(story) if each["trigger"] == "block")
    assert (blocked["authority"], blocked["proof"].partition(":")[0]) == ("operator", "grant")
    lifted = widen_again(client.runtime, "story", "block", OverrideOrder("olga", "over"), project=project)
    assert lifted["current_state"] == "lifted"
    client.fire(story, "block", by="mallory")
    drain_all(client.runtime)
    assert state(client, story) == "blocked"
    events = client.history(made["id"])
    assert [(each["trigger"], each["triggered_by"], each["metadata"]["reason"]) for each in events] == [
        ("enforce", "olga", ORDER.reason),
        ("lift", "olga", "over"),
    ]


def test_what_was_accepted_before_stays_accepted(client: Client, project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    receipt = client.fire(story, "block", by="mallory", request_id="r")
    narrow(client.runtime, "story", "block", ["operator"], ORDER, project=project)
    assert client.fire(story, "block", by="mallory", request_id="r").replayed
    drain_all(client.runtime)
    assert client.wait([receipt.request_id])[0].status == "applied"


@pytest.mark.parametrize(
    ("type_", "trigger", "to", "why"),
    [
        ("story", "block", ["anyone"], "a list of authorities, each once: "),
        ("story", "block", [], "a list of authorities, each once: "),
        ("story", "block", ["god"], "a list of authorities, each once: "),
        ("worker", "suspend", ["holder"], "cannot give it to: holder"),
        ("task", "execution_completed", ["holder", "operator"], "cannot give it to"),
        ("circuit_breaker", "cooldown_expires", ["operator"], "as machinery: add that to --to"),
        ("test_gate", "gate_passed", ["operator"], "cannot give it to: operator"),
        ("job", "cancel", ["operator"], "as machinery: add that to --to"),
        ("narrowing", "lift", ["operator"], "cannot be narrowed"),
    ],
)
def test_a_narrowing_never_widens(
    client: Client, project: str, type_: str, trigger: str, to: list[str], why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        narrow(client.runtime, type_, trigger, to, ORDER, project=project)


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"type": "story", "trigger": "block"},
        {"type": "story", "trigger": "block", "to": []},
        {"type": "story", "trigger": "block", "to": ["anyone"]},
        {"type": "story", "trigger": "block", "to": ["god"]},
        {"type": "story", "trigger": "block", "to": "operator"},
        {"type": "story", "trigger": "nosuch", "to": ["operator"]},
        {"type": "worker", "trigger": "suspend", "to": ["holder"]},
        {"type": "test_gate", "trigger": "gate_passed", "to": ["effect", "holder"]},
        {"type": "narrowing", "trigger": "lift", "to": ["operator"]},
    ],
    ids=str,
)
def test_raw_sql_of_the_engine_widens_nothing(dba: Dba, context: dict[str, Any]) -> None:
    with dba.transaction(force_rollback=True):
        dba.execute("SET LOCAL ROLE interlock_engine")
        with pytest.raises(CheckViolation):
            dba.execute(BORN, (uuid4(), Jsonb(context)))


# What would widen it again, and what PostgreSQL says to that. `:narrowing` and `:story` are the instances' ids.
WIDENING = (
    "INSERT INTO narrowings VALUES ('p', 'worker', 'suspend', ARRAY['anyone'], gen_random_uuid())",
    "UPDATE narrowings SET open_to = ARRAY['anyone']",
    "DELETE FROM narrowings",
    "TRUNCATE narrowings",
    "ALTER TABLE narrowings DISABLE TRIGGER ALL",
    "ALTER TABLE workflow_transitions DISABLE TRIGGER narrows",
    "ALTER TABLE trigger_requests DISABLE TRIGGER accept",
    "DROP FUNCTION interlock.narrowed CASCADE",
    "CREATE OR REPLACE FUNCTION interlock.narrowed(open_to text[], narrowed_to text[]) RETURNS text[] LANGUAGE sql"
    " RETURN open_to",
    "SET session_replication_role = replica",
    "UPDATE definition_transitions SET \"by\" = ARRAY['anyone']",
    "INSERT INTO definition_transitions SELECT type, '9.0.0', trigger FROM definition_transitions",
    "UPDATE workflow_instances SET context = '{}' WHERE id = :narrowing",
    "UPDATE workflow_instances SET project = 'elsewhere' WHERE id = :narrowing",
    "UPDATE workflow_instances SET project = 'elsewhere' WHERE id = :story",
    "UPDATE workflow_instances SET workflow_type = 'sprint' WHERE id = :story",
    "UPDATE workflow_instances SET current_state = 'lifted', version = 2 WHERE id = :narrowing",
    "UPDATE workflow_instances SET current_state = 'blocked', version = 1 WHERE id = :story",
    "DELETE FROM workflow_instances WHERE id = :narrowing",
    "INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state,"
    " trigger, triggered_by, request_id, severity, metadata) VALUES (gen_random_uuid(), :narrowing, 2, 'narrowing',"
    " '1.0.0', 'in_force', 'lifted', 'lift', 'mallory', 'r', 'warning', '{}')",
    "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, authority, proof,"
    " bound_version) VALUES ('r', '', :narrowing, 'lift', 'mallory', 'machinery', 'state:1', 1)",
    "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, origin, metadata)"
    """ VALUES ('r', '', :narrowing, 'lift', 'mallory', 'override', '{"reason": "mine", "operator": "mallory"}')""",
    "UPDATE trigger_requests SET trigger = 'block' WHERE workflow_id = :story",
    "UPDATE trigger_requests SET workflow_id = :story WHERE workflow_id <> :story AND trigger = 'block'",
)


def test_nobody_widens_what_is_narrowed_by_raw_sql(
    client: Client, project: str, servers: Servers, database_url: str
) -> None:
    story, other = (client.create("story", f"S-{n}", project=f"{project}{n}")["id"] for n in ("", "-2"))
    made = narrow(client.runtime, "story", "block", ["operator"], ORDER, project=project)
    for subject, trigger in ((story, "design_complete"), (other, "block")):
        client.fire(subject, trigger, by="mallory")
    for url in (database_url, databases.as_client(servers, database_url)):
        with psycopg.connect(url, autocommit=True) as connection:
            for change in WIDENING:
                named = change.replace(":narrowing", f"'{made['id']}'").replace(":story", f"'{story}'")
                with pytest.raises((InsufficientPrivilege, RestrictViolation, CheckViolation)):
                    connection.execute(named)  # type: ignore[call-overload]
    with transaction(client.runtime.database) as connection:
        (row,) = narrowings.listed(connection)
    assert (row["narrowing_id"], row["to"]) == (made["id"], ["operator"])
    with pytest.raises(NotYours, match="mallory is not an operator"):
        client.fire(story, "block", by="mallory")


def test_nobody_but_an_operator_narrows_or_widens(
    client: Client, project: str, servers: Servers, database_url: str
) -> None:
    made = narrow(client.runtime, "story", "block", ["operator"], ORDER, project=project)
    with pytest.raises(NotYours, match="is not an operator"):
        client.fire(made["id"], "lift", by="mallory", data={"reason": "mine"})
    terms = {"type": "story", "trigger": "block", "to": ["operator"]}
    row = {"id": uuid4(), "workflow_type": "narrowing", "definition_version": "1.0.0", "current_state": "proposed"}
    row |= {"entity_id": "evil", "project": project, "context": terms, "created_by": "mallory"}
    with (
        psycopg.connect(databases.as_client(servers, database_url), autocommit=True) as outsider,
        pytest.raises(InsufficientPrivilege, match="creating a narrowing"),
    ):
        outsider.execute("SELECT interlock.create_all(%s::json)", (as_json([row]),))
    with pytest.raises(NotAnOperator):
        narrow(client.runtime, "story", "unblock", ["operator"], OverrideOrder("mallory", "mine"), project=project)
    with pytest.raises(NotAnOperator):
        widen_again(client.runtime, "story", "block", OverrideOrder("mallory", "mine"), project=project)


def test_another_version_gets_no_more_than_it_says(dba: Dba) -> None:
    for open_to, narrowed, left in (
        (["anyone"], ["operator"], ["operator"]),
        (["machinery", "operator"], ["operator", "holder"], ["operator"]),
        (["effect"], ["operator"], []),
    ):
        assert dba.execute("SELECT narrowed(%s, %s)", (open_to, narrowed)).fetchone() == (left,)


def test_a_trigger_that_is_left_to_nobody_is_refused_to_all(
    client: Client, dba: Dba, project: str, make_runtime: Callable[..., Runtime]
) -> None:
    (task,) = Site(client, project).queue()
    dba.execute(  # as if a version had been recorded later
        "INSERT INTO narrowings VALUES (%s, 'task', 'cancel', ARRAY['decider'], gen_random_uuid())", (project,)
    )
    with pytest.raises(NotYours):
        client.fire(task, "cancel", by="olga", data={"reason": "mine"})


def test_one_at_a_time_and_listed(client: Client, project: str) -> None:
    narrow(client.runtime, "story", "block", ["operator"], ORDER, project=project)
    with pytest.raises(BadInput, match="narrowed already"):
        narrow(client.runtime, "story", "block", ["machinery"], ORDER, project=project)
    with pytest.raises(NotNarrowed):
        widen_again(client.runtime, "story", "unblock", ORDER, project=project)
    with pytest.raises(UnknownTrigger):
        narrow(client.runtime, "story", "fly", ["operator"], ORDER, project=project)
    with transaction(client.runtime.database) as connection:
        (row,) = narrowings.listed(connection, project=project)
        assert (row["type"], row["trigger"], row["to"], row["by"], row["reason"]) == (
            *("story", "block", ["operator"], "olga"),
            ORDER.reason,
        )
        assert narrowings.listed(connection, project="elsewhere") == []
        assert narrowings.listed(connection, type_="sprint") == []
        assert narrowings.listed(connection, trigger="unblock") == []
    assert isinstance(row["narrowing_id"], UUID)


def test_what_interlock_fires_itself_is_known(client: Client) -> None:
    known = client.runtime.catalogue
    assert known.fires_itself("supervised_worker", "terminate") == {"machinery"}
    assert known.fires_itself("approval", "expire") == {"machinery"}
    assert known.fires_itself("story", "block") == set()
