"""Nobody moves what is not theirs: every transition of every machine, fired in every way by who has no right to it."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import typer
from psycopg.errors import InsufficientPrivilege, RestrictViolation
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from interlock.cli.instances.instances import fire as fire_command
from interlock.db.connection import transaction
from interlock.db.core import effects, instances
from interlock.db.core.request_rows import of_lease
from interlock.db.statements import as_json
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.client.operations import fire_by_right
from interlock.workers.client.receipts import Receipt
from interlock.workers.effects import intents
from interlock.workers.engine.creation import Birth
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.narrowing import narrow
from interlock.workers.overrides.operators import revoke
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.pool import claims
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import catalogue
from interlock.workflows.definition import AUTHORITIES, Definition, Link, Transition
from interlock.workflows.errors import BadInput, InterlockError, NotYours, RequestConflict
from interlock.workflows.input.names import DEFAULT_PROJECT
from tests import databases
from tests.crewing import Site, hand
from tests.driving import applied, drain_all, make_due, outcome, state, swept
from tests.rights import SECRET, grant, known
from tests.walking import Walker, path

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
INTRUDER = "mallory"
TERMS: dict[str, dict[str, Any]] = {"approval": {"deciders": ["cyd"]}}  # without any, everyone but the author decides
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
fire_alone = typer.Typer()
fire_alone.command()(fire_command)
EVERY = [pytest.param(each, id=f"{each.type}-{each.version}") for each in catalogue()]
# One request by raw SQL: whether PostgreSQL accepts it.
TRY = """
INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, authority, proof,
                              bound_version)
VALUES (gen_random_uuid()::text, '', %(id)s, %(trigger)s, %(by)s, '{"exit_code": 0, "reason": "mine"}',
        %(authority)s, %(proof)s, %(bound)s)"""
OVERRIDE = """
INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, origin, metadata, authority)
VALUES (gen_random_uuid()::text, '', %(id)s, %(trigger)s, %(by)s::text, 'override',
        jsonb_build_object('operator', %(by)s::text, 'reason', 'mine', 'override', '{"name": "force"}'::jsonb),
        %(authority)s)"""

ACCEPT = "SELECT * FROM interlock.accept_all(%(rows)s::json)"


@dataclass(frozen=True)
class Target:
    """An instance, and what an intruder has: a claim and a lease that ended, and those of others that are open."""

    definition: Definition
    id: UUID
    stale_claim: int
    others_claim: int
    stale_lease: str
    others_lease: str
    name: str = ""
    others_secret: str = ""
    outsider: Dba | None = None  # logged in as a client


Way = Callable[[Runtime, Dba, Target, str], bool]
Aim = Callable[..., dict[str, Target]]


def by_client(runtime: Runtime, engine: Dba, target: Target, trigger: str) -> bool:
    try:
        Client(runtime).fire(target.id, trigger, by=INTRUDER, data={"exit_code": 0, "reason": "mine"})
    except NotYours:
        return False
    return True


def in_its_name(secret: Callable[[Target], str] | None = None) -> Way:
    """By who gives the instance's own name as his, and perhaps a secret."""

    def fire(runtime: Runtime, engine: Dba, target: Target, trigger: str) -> bool:
        proof = f"secret:{secret(target)}" if secret else ""
        try:
            Client(runtime).fire(target.id, trigger, by=target.name, data={"reason": "mine"}, proof=proof)
        except NotYours:
            return False
        return True

    return fire


def by_command(runtime: Runtime, engine: Dba, target: Target, trigger: str) -> bool:
    given = ["--by", INTRUDER, "--data", '{"exit_code": 0, "reason": "mine"}']
    done = CliRunner().invoke(fire_alone, [str(target.id), trigger, *given])
    assert done.exception is None or isinstance(done.exception, NotYours), done
    return done.exception is None


class Kept(Client):
    """A client whose connections a command does not close."""

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _command(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.cli.instances.instances.Client", lambda: Kept(runtime))


def by_sql(
    authority: str = "anyone",
    proof: Callable[[Target], str | None] = lambda _: None,
    *,
    in_its_name: bool = False,
    statement: str = TRY,
) -> Way:
    """By SQL of the engine's login."""

    def fire(runtime: Runtime, engine: Dba, target: Target, trigger: str) -> bool:
        given = {"authority": authority, "proof": proof(target), "bound": None}
        by = target.name if in_its_name else INTRUDER
        try:
            engine.execute(statement, {"id": target.id, "trigger": trigger, "by": by, **given})  # type: ignore[call-overload]
        except InsufficientPrivilege as refused:
            return refused.diag.constraint_name != "authority"
        return True

    return fire


def by_claim(token: Callable[[Target], int]) -> Way:
    def fire(runtime: Runtime, engine: Dba, target: Target, trigger: str) -> bool:
        try:
            Client(runtime).fire(
                target.id, trigger, by=INTRUDER, data={"reason": "mine"}, proof=f"claim:{token(target)}"
            )
        except NotYours:
            return False
        return True

    return fire


def by_login(
    statement: str,
    authority: str = "anyone",
    proof: Callable[[Target], str] | None = None,
    *,
    version: int | None = None,
    origin: str = "agent",
) -> Way:
    """By SQL of somebody who is logged in as a client."""

    def fire(runtime: Runtime, engine: Dba, target: Target, trigger: str) -> bool:
        assert target.outsider
        row = {
            "request_id": uuid4().hex,
            "fingerprint": "",
            "workflow_id": target.id,
            "trigger": trigger,
            "by": INTRUDER,
        }
        row |= {"id": target.id, "triggered_by": INTRUDER, "metadata": {"exit_code": 0, "reason": "mine"}}
        row |= {"origin": origin, "authority": authority, "proof": proof and proof(target), "bound": version}
        row |= {"bound_version": version}
        try:
            target.outsider.execute(statement, row | {"rows": as_json([row])})  # type: ignore[arg-type]
        except InsufficientPrivilege as refused:
            return statement == ACCEPT and refused.diag.constraint_name != "authority"
        return True

    return fire


OVERRIDES: Mapping[str, Way] = {
    "INSERT": by_sql(statement=OVERRIDE),
    "INSERT as operator": by_sql("operator", statement=OVERRIDE),
    "INSERT as machinery": by_sql("machinery", statement=OVERRIDE),
    "a client's login": by_login(ACCEPT, origin="override"),
    "a client's login, INSERT": by_login(OVERRIDE),
}
# What an intruder tries. Where a trigger is open to anyone, all of it is accepted, as anyone's.
WAYS: Mapping[str, Way] = {
    "client": by_client,
    "command": by_command,
    "INSERT": by_sql(),
    **{f"INSERT as {each}, without proof": by_sql(each) for each in AUTHORITIES if each not in ("anyone", "decider")},
    "INSERT as machinery of a later state": by_sql("machinery", lambda _: "state:99"),
    "INSERT as machinery of another run": by_sql("machinery", lambda _: f"run:{UUID(int=7)}"),
    "INSERT as machinery of no event": by_sql("machinery", lambda _: f"event:{UUID(int=7)}"),
    "INSERT as machinery of another's claim": by_sql("machinery", lambda target: f"claim:{target.others_claim}"),
    "INSERT as itself": by_sql("holder", lambda _: "itself"),
    "its name": in_its_name(),
    "its name, a made-up secret": in_its_name(lambda _: "x" * 43),
    "its name, another worker's secret": in_its_name(lambda target: target.others_secret),
    "INSERT in its name": by_sql(in_its_name=True),
    "INSERT in its name, as itself": by_sql("holder", lambda _: "itself", in_its_name=True),
    "INSERT in its name, no secret": by_sql("holder", lambda _: "secret:", in_its_name=True),
    "INSERT in its name, a made-up secret": by_sql("holder", lambda _: f"secret:{'x' * 43}", in_its_name=True),
    "INSERT in its name, another worker's secret": by_sql(
        "holder", lambda target: f"secret:{target.others_secret}", in_its_name=True
    ),
    "INSERT in another name, its secret": by_sql("holder", lambda _: f"secret:{SECRET}"),
    "INSERT as operator with a grant made up": by_sql("operator", lambda _: "grant:1"),
    "a stale claim": by_claim(lambda target: target.stale_claim),
    "another's claim": by_claim(lambda target: target.others_claim),
    "a stale lease": by_sql("effect", lambda target: f"lease:{target.stale_lease}:1"),
    "another's lease": by_sql("effect", lambda target: f"lease:{target.others_lease}:1"),
    "a lease with another token": by_sql("effect", lambda target: f"lease:{target.others_lease}:2"),
    "a client's login": by_login(ACCEPT),
    "a client's login, INSERT": by_login(TRY),
    "a client's login, INSERT as machinery": by_login(TRY, "machinery", lambda _: "state:0", version=0),
    "a client's login, as machinery with a proof that holds": by_login(
        ACCEPT, "machinery", lambda _: "state:0", version=0
    ),
    "a client's login, as an effect of another's lease": by_login(
        ACCEPT, "effect", lambda target: f"lease:{target.others_lease}:1"
    ),
    "a client's login, as operator": by_login(ACCEPT, "operator"),
    **{f"{each}, an override": way for each, way in OVERRIDES.items()},
}


UNSTATED = (
    "client",
    "command",
    "INSERT",
    "a client's login",
    "its name",
    "INSERT in its name",
)  # they say nothing of a right


@pytest.fixture
def walker(runtime: Runtime, dba: Dba) -> Walker:
    return Walker(runtime, dba)


@dataclass(frozen=True)
class Beside:
    """A database to copy with a worker, a claim of its that ended, one that is open, and an open lease."""

    database: str
    worker: UUID
    stale_claim: int
    open_claim: int
    open_lease: str


@pytest.fixture(scope="module")
def beside(servers: Servers, template: str) -> Iterator[Beside]:
    """Written once."""

    def write(client: Client) -> tuple[UUID, int, int, str]:
        worker = hand(client.runtime, max_concurrent_tasks=100)
        mine, others = Site(client, DEFAULT_PROJECT).queue(2)
        url = databases.as_superuser(servers, str(client.runtime.settings.database_url))
        with psycopg.connect(url, autocommit=True) as dba:
            return worker, _claim(dba, mine, worker, True), _claim(dba, others, worker, False), _lease(dba, worker, "1")

    with databases.written(servers, template, write) as (name, made):
        yield Beside(name, *made)


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, database_to_copy: str) -> str:
    return request.getfixturevalue("beside").database if "aim" in request.fixturenames else database_to_copy


@pytest.fixture
def aim(walker: Walker, client: Client, dba: Dba, beside: Beside, servers: Servers, database_url: str) -> Iterator[Aim]:
    """Makes an instance of a definition in each of some states, and all that an intruder may have beside it."""

    def make(definition: Definition, *states: str) -> dict[str, Target]:
        stale, secret = beside.stale_claim, known(beside.worker).secret
        targets = {}
        for source in states:
            made = walker.at(definition, source, **TERMS.get(definition.type, {}))
            if dba.execute("SELECT FROM tasks WHERE task_id = %s", (made,)).fetchone():
                stale = _claim(dba, made, beside.worker, True)
            lease, name = _lease(dba, made, "-1"), client.show(made)["entity_id"]
            others = (beside.open_claim, lease, beside.open_lease)
            targets[source] = Target(definition, made, stale, *others, name, secret, outsider)
        return targets

    with psycopg.connect(databases.as_client(servers, database_url), autocommit=True) as outsider:
        yield make


def left_from(definition: Definition, move: Transition) -> str:
    """The state, of those that a transition leaves, that is the fewest moves away from a birth."""
    return min(sorted(move.sources), key=lambda source: len(path(definition, source)))


@pytest.mark.parametrize("definition", EVERY)
def test_every_transition_is_refused_to_who_has_no_right_to_it(
    runtime: Runtime, engine: Dba, aim: Aim, definition: Definition
) -> None:
    sources = {move: left_from(definition, move) for move in definition.transitions}
    targets = aim(definition, *sorted({*sources.values()}))
    tried: Counter[str] = Counter()
    for move in definition.transitions:
        for name, way in WAYS.items():
            tried[name] += 1
            accepted = way(runtime, engine, targets[sources[move]], move.trigger)
            assert not (accepted and name.endswith("an override")), f"{move.trigger}: {name}"
            if "anyone" in move.authorities:
                assert accepted or name not in UNSTATED, f"{move.trigger}: {name}"
            else:
                assert not accepted, f"{move.trigger} of {definition.type} was accepted: {name}"
    assert set(tried.values()) == {len(definition.transitions)}


def test_what_a_project_leaves_to_operators_is_refused_to_everybody_else(
    runtime: Runtime, engine: Dba, aim: Aim, walker: Walker
) -> None:
    grant(Client(runtime), "olga")
    target = aim(story := walker.get("story"), story.initial)[story.initial]
    for move in story.transitions:
        assert WAYS["client"](runtime, engine, target, move.trigger), "it is open to anyone"
    order = OverrideOrder("olga", "only operators move stories")
    for trigger in {move.trigger for move in story.transitions} - {"approve"}:  # a merge fires that one, too
        narrow(runtime, "story", trigger, ["operator"], order, project=str(walker.project))
        for name, way in WAYS.items():
            assert not way(runtime, engine, target, trigger), f"{trigger}: {name}"


def test_the_page_says_how_much_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    moves = [(f"{each.type} {each.version}", move) for each in catalogue() for move in each.transitions]
    free = sum("anyone" in move.authorities for _, move in moves)
    said = (
        f"**{len(moves) * len(WAYS):,} tries**: {len(moves)} transitions of {len(EVERY)} versions of definitions, each "
        f"in {len(WAYS)} ways.\n{free} of the transitions are open to anyone."
    )
    with capsys.disabled():
        print(f"\n{said}")
    assert said in SECURITY.read_text(), said


# The four attacks of which this began --------------------------------------------------------------------------------


def _refused(client: Client, engine: Dba, made: UUID, *triggers: str) -> None:
    before = state(client, made)
    for trigger in triggers:
        for way in (by_client, by_command, by_sql(), by_sql("effect"), by_sql("machinery"), by_sql("holder")):
            target = Target(client.runtime.catalogue.get("story"), made, 0, 0, "", "")
            assert not way(client.runtime, engine, target, trigger), trigger
    drain_all(client.runtime)
    assert state(client, made) == before


def test_a_gate_is_not_passed_by_who_waits_for_it(walker: Walker, client: Client, engine: Dba) -> None:
    gate = walker.at(walker.get("test_gate"), "RUNNING")
    _refused(client, engine, gate, "gate_passed", "gate_failed")


def test_a_task_is_not_completed_by_who_does_not_hold_it(client: Client, engine: Dba, project: str) -> None:
    (task,) = Site(client, project).queue()
    hand(client.runtime)
    _refused(client, engine, task, "worker_started", "execution_completed", "execution_failed", "validation_passed")


def test_a_patch_is_not_committed_by_hand(walker: Walker, client: Client, engine: Dba) -> None:
    patch = walker.born(walker.get("patch_ledger"))
    _refused(
        client, engine, patch, "validation_passed", "accept", "apply_succeeded", "tests_passed", "commit_succeeded"
    )


def test_a_workstream_is_not_landed_by_hand(walker: Walker, client: Client, engine: Dba) -> None:
    workstream = walker.at(walker.get("workstream"), "validating")
    _refused(client, engine, workstream, "validation_passed", "all_tasks_completed")


# What an attack found ------------------------------------------------------------------------------------------------


def test_nobody_creates_an_instance_of_a_definition_of_their_own(client: Client, project: str) -> None:
    job = client.runtime.catalogue.get("job")
    forged = replace(job, links=(Link("children", type="task", context_key="kids", inverse="zz"),))
    birth = Birth(forged, "evil", project, INTRUDER, {"depth": 0, "kids": []})
    with pytest.raises(BadInput, match="another definition than the known one"):
        client.create_many([birth])
    with pytest.raises(BadInput, match="depth must be"):
        client.create_many([Birth(job, "evil", project, INTRUDER, {"depth": 99})])


@pytest.mark.parametrize(("name", "capabilities"), [("evil", ["interlock:execute"]), ("victim#99", ["python"])])
def test_nobody_creates_a_worker_that_carries_out_commands_or_takes_anothers_name(
    client: Client, project: str, name: str, capabilities: list[str]
) -> None:
    with pytest.raises(BadInput, match="come from its registration"):
        client.create("worker", name, project=project, context={"capabilities": capabilities}, by=INTRUDER)


def test_no_caller_takes_the_id_of_what_interlock_will_fire(client: Client, dba: Dba, project: str) -> None:
    (task,) = Site(client, project).queue()
    worker = hand(client.runtime)
    story = client.create("story", "S-1", project=project)["id"]
    for number in range(20):
        for trigger in ("start", "report"):
            with pytest.raises(BadInput, match="which only Interlock's own triggers have"):
                client.fire(story, "block", by=INTRUDER, request_id=f"interlock:claim:{number}:{trigger}")
            taking: Any = TRY.replace("gen_random_uuid()::text", f"'interlock:claim:{number}:{trigger}'")
            of = {"id": story, "trigger": "block" if number % 2 else "unknown", "by": INTRUDER, "bound": None}
            with pytest.raises(psycopg.Error) as refused:
                dba.execute(taking, of | {"authority": "anyone", "proof": None})
            assert refused.value.diag.constraint_name in ("sound", "authority")
            client.fire(story, "block", by=INTRUDER, request_id=f"claim:{number}:{trigger}")  # all else is free
    claim = claims.take(client.runtime, known(worker))
    assert claim
    claims.finish(client.runtime, known(worker), claim.token, Report("execution_completed", {"exit_code": 0}))
    drain_all(client.runtime)
    assert state(client, task) == "completed"


def test_nobody_creates_an_approval_before_it_is_asked_for(client: Client, dba: Dba, project: str) -> None:
    review = client.create("pr_review", "PR-1", project=project, context={"author": "ann"})["id"]
    for trigger in ("start_review", "approve"):
        applied(client, review, trigger, by="bob")
    held = client.fire(review, "merge", by="bob")
    (row,) = dba.execute("SELECT seq FROM trigger_requests WHERE request_id = %s", (held.request_id,)).fetchall()
    terms = {"subject": "mine", "trigger": "merge", "request_id": "mine", "quorum": 1, "deciders": [INTRUDER]}
    client.create("approval", f"PR-1:merge:{row[0]}", project=project, context=terms, by=INTRUDER)
    drain_all(client.runtime)
    assert outcome(client, held.request_id)["status"] == "waiting"


def test_an_operators_delayed_request_needs_the_grant_when_it_is_due(client: Client, dba: Dba) -> None:
    worker = hand(client.runtime)
    for name in ("olga", "otto"):
        grant(client, name)
        later = timedelta(hours=1)
        client.fire(worker, "suspend", by=name, data={"reason": "upgrade"}, request_id=name, after=later)
    revoke(client.runtime, "olga", by="otto", reason="a test")
    make_due(dba, "suspend")
    swept(client.runtime, "dispatch")
    drain_all(client.runtime)
    refused = outcome(client, "olga")
    assert (refused["status"], refused["result"]["code"]) == ("rejected", "not_an_operator")
    assert "olga is not an operator any more" in refused["result"]["message"]
    assert outcome(client, "otto")["status"] == "applied"


def test_a_claims_right_ends_with_the_claim(client: Client, project: str) -> None:
    (task,) = Site(client, project).queue()
    claim = claims.take(client.runtime, known(hand(client.runtime)))
    assert claim
    with pytest.raises(BadInput, match="is for now"):
        client.fire(task, "execution_completed", by="hand", proof=f"claim:{claim.token}", after=timedelta(hours=1))


def test_a_repetition_gets_its_receipt_after_the_claim_has_ended(client: Client, dba: Dba, project: str) -> None:
    (task,) = Site(client, project).queue()
    claim = claims.take(client.runtime, known(hand(client.runtime)))
    assert claim
    proof, data = f"claim:{claim.token}", {"exit_code": 0}

    def report(request_id: str, code: int = 0) -> Receipt:
        said = data | {"exit_code": code}
        return client.fire(task, "execution_completed", by="hand", data=said, request_id=request_id, proof=proof)

    first = report("mine")
    drain_all(client.runtime)
    dba.execute("UPDATE task_claims SET ended_at = now() WHERE claim_id = %s", (claim.id,))
    again = report("mine")
    assert (again.request_id, again.status, again.replayed, first.replayed) == ("mine", "applied", True, False)
    assert again.result == outcome(client, "mine")["result"]
    with pytest.raises(RequestConflict):
        report("mine", 1)
    with pytest.raises(NotYours):
        report("another")


def test_who_calls_himself_as_a_job_does_not_end_it(client: Client, dba: Dba, project: str) -> None:
    job = client.create("job", "J-9", project=project, context={"depth": 0})["id"]
    for trigger in ("success", "error"):
        with pytest.raises(NotYours):
            client.fire(job, trigger, by="J-9")
        with pytest.raises(InsufficientPrivilege):
            dba.execute(
                TRY, {"id": job, "trigger": trigger, "by": "J-9", "authority": "holder", "proof": "itself", "bound": 0}
            )


# What was accepted, and what was written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "workflow_id = (SELECT id FROM workflow_instances WHERE entity_id = 'S-2')",
        "trigger = 'block'",
        "triggered_by = 'ann'",
        "origin = 'timer'",
        "bound_version = 3",
        "authority = 'machinery'",
        "proof = 'run:1'",
        "login = 'postgres'",
        "request_id = 'another'",
        """metadata = '{"reason": "another"}'""",
    ],
)
def test_a_request_stays_what_was_accepted(client: Client, dba: Dba, project: str, change: str) -> None:
    for name in ("S-1", "S-2"):
        client.create("story", name, project=project)
    client.fire("S-1", "design_complete", by=INTRUDER, request_id="r")
    with pytest.raises(RestrictViolation, match="was accepted as it is"):
        dba.execute(f"UPDATE trigger_requests SET {change} WHERE request_id = 'r'")  # type: ignore[call-overload]


EVENT = """
WITH moved AS (
    UPDATE workflow_instances SET current_state = 'design', version = 1 WHERE id = %(id)s RETURNING id
)
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,
                                  triggered_by, request_id)
SELECT gen_random_uuid(), id, 1, '1.0.0', 'analysis', 'design', 'design_complete', %(by)s, %(request)s FROM moved"""


@pytest.mark.parametrize(
    ("request_id", "by"),
    [
        (None, INTRUDER),
        ("nothing", INTRUDER),
        ("mine", "ann"),
        ("mine", None),
        ("elsewhere", INTRUDER),
        ("block", "ann"),
    ],
)
def test_no_event_is_written_that_nobody_asked_for(
    client: Client, dba: Dba, project: str, request_id: str | None, by: str | None
) -> None:
    story, other = (client.create("story", name, project=project)["id"] for name in ("S-1", "S-2"))
    client.fire(story, "design_complete", by=INTRUDER, request_id="mine")
    client.fire(story, "block", by="ann", request_id="block")
    client.fire(other, "design_complete", by=INTRUDER, request_id="elsewhere")
    with pytest.raises(InsufficientPrivilege, match="no request asks for"):
        dba.execute(EVENT, {"id": story, "by": by, "request": request_id})


def test_an_applied_request_makes_no_second_event(client: Client, dba: Dba, project: str) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    client.fire(story, "block", by=INTRUDER, request_id="r")
    drain_all(client.runtime)
    again = EVENT.replace("'design', version = 1", "'blocked', version = 2").replace(
        "1, '1.0.0', 'analysis', 'design', 'design_complete'", "2, '1.0.0', 'blocked', 'implementation', 'unblock'"
    )
    with pytest.raises(InsufficientPrivilege, match="no request asks for"):
        dba.execute(again, {"id": story, "by": INTRUDER, "request": "r"})


def test_events_repeat_the_right_and_the_login(client: Client, dba: Dba, database_url: str, project: str) -> None:
    grant(client, "olga")
    worker = hand(client.runtime)
    client.fire(worker, "suspend", by="olga", data={"reason": "upgrade"})
    drain_all(client.runtime)
    registered, suspended = client.history(worker)
    assert (registered["authority"], registered["proof"]) == ("holder", "itself")
    assert (suspended["authority"], suspended["proof"].partition(":")[0]) == ("operator", "grant")
    assert {registered["login"], suspended["login"]} == {psycopg.conninfo.conninfo_to_dict(database_url)["user"]}


def test_a_lease_that_is_open_counts_for_its_own_triggers_only(client: Client, dba: Dba, walker: Walker) -> None:
    gate = walker.at(walker.get("test_gate"), "RUNNING")
    with transaction(client.runtime.database) as connection:
        effect = intents.of_gate(gate, instances.by_id(connection, gate)["version"])
        effects.intend(connection, [effect])
        leased = effects.claim(connection, effect["id"], holder="a node", lease_seconds=60)
    assert leased
    right = of_lease(leased["id"], leased["token"])
    with pytest.raises(NotYours):
        fire_by_right(client, Firing(gate, "timeout_exceeded", "effect"), right)
    fire_by_right(client, Firing(gate, "gate_passed", "effect", data={"exit_code": 0}), right)
    drain_all(client.runtime)
    assert state(client, gate) == "PASSED"
    assert client.history(gate)[-1]["proof"] == right.proof


def test_a_claims_token_is_its_holders_alone(client: Client, dba: Dba, project: str) -> None:
    (task,) = Site(client, project).queue()
    worker = hand(client.runtime)
    claim = claims.take(client.runtime, known(worker))
    assert claim
    written = "\n".join(str(row) for rows in databases.whole(dba, but="task_claims").values() for row in rows)
    assert str(claim.token) not in written
    assert client.history(task)[-1]["proof"] == f"claim:{claim.id}"
    with pytest.raises(NotYours):
        client.fire(task, "execution_completed", by="hand", data={"exit_code": 0}, proof=f"claim:{claim.id}")
    client.fire(task, "execution_completed", by="hand", data={"exit_code": 0}, proof=f"claim:{claim.token}")
    drain_all(client.runtime)
    assert state(client, task) == "validating"


def test_no_error_shows_a_claims_token(
    client: Client, dba: Dba, project: str, caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = Site(client, project).queue()
    worker = hand(client.runtime)
    claim = claims.take(client.runtime, known(worker))
    assert claim
    dba.execute("UPDATE task_claims SET revoked_at = now() WHERE claim_id = %s", (claim.id,))
    token, proof = claim.token, f"claim:{claim.token}"
    of = {"id": worker, "trigger": "task_assigned", "by": "x", "bound": None, "proof": proof}

    def divided() -> None:
        with transaction(client.runtime.database) as connection:
            connection.exec_driver_sql("SELECT %(token)s::bigint / 0", {"token": token})

    def finished() -> None:
        claims.finish(client.runtime, known(worker), token, Report("execution_completed", {"exit_code": 0}))

    def fired() -> None:
        client.fire(task, "execution_completed", by="x", data={"exit_code": 0}, proof=proof)

    def raw(authority: str) -> Callable[[], object]:
        return lambda: dba.execute(TRY, of | {"authority": authority})

    for act in (divided, finished, fired, *map(raw, ("machinery", "effect", "holder", "operator"))):
        with pytest.raises((DBAPIError, psycopg.Error, InterlockError)) as failed:
            act()
        told = "".join(traceback.format_exception(failed.value)) + caplog.text
        assert str(token) not in told, told


def _claim(dba: Dba, task: UUID, worker: UUID, ended: bool) -> int:
    row = dba.execute(
        "INSERT INTO task_claims (task_id, run_id, worker_id, revoked_at)"
        " SELECT task_id, run_id, %s, CASE WHEN %s THEN now() END FROM tasks WHERE task_id = %s RETURNING token",
        (worker, ended, task),
    ).fetchone()
    assert row
    return int(row[0])


def _lease(dba: Dba, instance: UUID, hours: str) -> str:
    row = dba.execute(
        "INSERT INTO effects (id, workflow_id, version, name, status, token, leased_by, lease_until)"
        " SELECT gen_random_uuid(), id, version, 'notice', 'leased', 1, 'a node', now() + %s::interval"
        "   FROM workflow_instances WHERE id = %s RETURNING id",
        (f"{hours} hours", instance),
    ).fetchone()
    assert row
    return str(row[0])
