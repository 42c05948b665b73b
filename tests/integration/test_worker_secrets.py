"""A worker proves by the secret of its registration that it is itself (AUTHORITY-15): its name alone proves nothing."""

import traceback
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from interlock.workers.client.client import Client
from interlock.workers.overrides.workers import shut_down
from interlock.workers.pool import claims, registration
from interlock.workers.pool.agent import Agent, heartbeat
from interlock.workers.pool.registration import Registration
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, InterlockError, NotYours
from tests import databases
from tests.crewing import Site
from tests.driving import drain_all, state, trail
from tests.rights import OF_SECRET, SECRET

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

DONE = Report("execution_completed", {"exit_code": 0})
FIRED = """
INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, authority, proof)
VALUES (%(id)s, '', %(worker)s, 'shutdown_requested', %(name)s, 'holder', %(proof)s)"""
INSERTED = (
    "INSERT INTO interlock.task_claims (task_id, run_id, worker_id) SELECT task_id, run_id, %s FROM interlock.tasks"
)
TAKEN = "SELECT c.* FROM interlock.tasks t, interlock.take_claim(t.task_id, t.run_id, %s, %s) c"
STANDING = ("SELECT * FROM workers ORDER BY name", "SELECT * FROM task_claims", "SELECT * FROM tasks")
AN_HOUR_LATER = "UPDATE refusal_counts SET recent = ARRAY(SELECT at - interval '1 hour' FROM unnest(recent) AS at)"
REFUSED = (
    "SELECT metadata->>'attempted', triggered_by FROM workflow_transitions WHERE trigger = 'refuse' ORDER BY position"
)


def deeds(runtime: Runtime, as_: Registration, token: int) -> Mapping[str, Callable[[], object]]:
    """Refusal -> everything that is done in a worker's name, through Python."""
    agent = Agent.called(str(as_.worker_id), secret=as_.secret, runtime=runtime)
    return {
        "claim": lambda: claims.take(runtime, as_),
        "send a heartbeat": lambda: heartbeat(str(as_.worker_id), secret=as_.secret, runtime=runtime),
        "send a heartbeat, first of a claim": agent.claim,
        "see the claims": lambda: claims.held(runtime, as_),
        "report": lambda: agent.finish(token),
        "report, to end it": lambda: claims.release(runtime, as_, token),
        "report, to give it back": lambda: claims.return_task(runtime, as_, token, "mine"),
        "give its tasks back": lambda: registration.drop(runtime, as_, "was robbed"),
        "shut down": agent.leave,
        "shut down, at last": lambda: agent.leave(wait_for_tasks=True),
        "shut down, by command": lambda: shut_down(runtime, "agent-7", by="agent-7", secret=as_.secret),
        "shutdown_requested": lambda: Client(runtime).fire(
            as_.worker_id, "shutdown_requested", by="agent-7", proof=f"secret:{as_.secret}"
        ),
    }


def test_nobody_speaks_for_a_worker_by_its_name(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    (task,) = Site(client, project).queue(1, kind="agent")
    agent, other = (Agent(name, runtime=runtime) for name in ("agent-7", "agent-8"))
    worker, _ = agent.register(), other.register()
    claim = agent.claim()
    assert claim
    drain_all(runtime)
    before = [dba.execute(query).fetchall() for query in STANDING]
    for secret in ("x" * 43, other.secret):  # made up, and another worker's
        for act in (acts := deeds(runtime, Registration(worker, secret), claim.token)).values():
            with pytest.raises(NotYours, match=r"the worker itself, by the secret of its registration"):
                act()
            if secret != other.secret:
                dba.execute(AN_HOUR_LATER)
        if secret != other.secret:  # of the second round, the hour's limit lets fewer be recorded
            drain_all(runtime)
            recorded = [(deed.partition(",")[0], "agent-7") for deed in acts]
            assert dba.execute(REFUSED).fetchall() == recorded
    for nothing in ("", "short", "x" * 42 + "ü"):
        with pytest.raises(BadInput, match="no worker's secret"):
            Agent.called("agent-7", secret=nothing, runtime=runtime)
    with pytest.raises(NotYours, match=r"none is given\. If it is lost, an operator can shut the worker down"):
        shut_down(runtime, "agent-7", by="agent-7")
    with pytest.raises(NotYours, match="agent-7 is not an operator"):
        client.fire(worker, "shutdown_requested", by="agent-7", data={"reason": "mine"})
    drain_all(runtime)
    assert [dba.execute(query).fetchall() for query in STANDING] == before
    again = Agent.called("agent-7", secret=agent.secret, runtime=runtime)  # as another process would
    assert again.heartbeat() == "busy"
    assert again.finish(claim.token) == "execution_completed"
    assert again.leave() == 0
    drain_all(runtime)
    assert (state(client, task), state(client, worker)) == ("completed", "shutdown")
    assert [(each["authority"], each["proof"]) for each in client.history(worker) if each["proof"] == "itself"] == [
        ("holder", "itself")
    ] * 2  # as it registered and as it left


def test_a_worker_alone_is_shown_the_claims_it_holds_again(runtime: Runtime, client: Client, project: str) -> None:
    """As `claim` showed them; by an agent that has only its secret left."""
    first, second = Site(client, project).queue(2, kind="agent")
    agent, other = Agent("agent-7", max_concurrent_tasks=2, runtime=runtime), Agent("agent-8", runtime=runtime)
    agent.register(), other.register()
    claimed = [agent.claim(), agent.claim()]
    drain_all(runtime)
    again = Agent.called("agent-7", secret=agent.secret, runtime=runtime)
    assert again.claims() == claimed
    assert other.claims() == []
    with pytest.raises(NotYours):
        Agent.called("agent-7", secret=other.secret, runtime=runtime).claims()
    client.fire(first, "user_cancelled", by="ann")
    drain_all(runtime)
    (left,) = again.claims()
    assert left.task_id == second, "the other was revoked"
    assert again.finish(left.token) == "execution_completed"
    assert again.claims() == []


def test_raw_sql_of_the_engines_login_does_not_either(
    runtime: Runtime, client: Client, project: str, database_url: str
) -> None:
    Site(client, project).queue(1, kind="agent")
    agent, other = (Agent(name, runtime=runtime) for name in ("agent-7", "agent-8"))
    worker, _ = agent.register(), other.register()
    with psycopg.connect(
        str(runtime.settings.resolved_database_url()).replace("+psycopg", ""), autocommit=True
    ) as engine:
        with pytest.raises(InsufficientPrivilege, match="permission denied for table task_claims"):
            engine.execute(INSERTED, (worker,))
        for secret in (None, "", "itself", "x" * 43, other.secret):
            with pytest.raises(InsufficientPrivilege) as refused:
                engine.execute(TAKEN, (worker, secret))
            assert refused.value.diag.constraint_name == "authority"
            for proof in (secret, secret and f"secret:{secret}"):
                given = {"id": uuid4().hex, "worker": worker, "name": "agent-7", "proof": proof}
                with pytest.raises(InsufficientPrivilege) as refused:
                    engine.execute(FIRED, given)
                assert refused.value.diag.constraint_name == "authority"
        ((claim_id, _),) = engine.execute(TAKEN, (worker, agent.secret)).fetchall()
        assert claim_id
        given = {"id": uuid4().hex, "worker": worker, "name": "agent-7", "proof": f"secret:{agent.secret}"}
        engine.execute(FIRED, given)
        assert engine.execute(
            "SELECT proof FROM interlock.trigger_requests WHERE request_id = %(id)s", given
        ).fetchone() == ("itself",)


def test_no_secret_is_stored_or_shown(
    runtime: Runtime,
    client: Client,
    project: str,
    dba: Dba,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Site(client, project).queue(2, kind="agent")
    agent, other = (Agent(name, runtime=runtime) for name in ("agent-7", "agent-8"))
    worker, _ = agent.register(), other.register()
    claim = agent.claim()
    assert claim
    faults: list[BaseException] = []
    mine, token = Registration(worker, agent.secret), claim.token
    for act in (
        *deeds(runtime, Registration(worker, other.secret), token).values(),
        lambda: client.fire(worker, "suspend", by="agent-7", proof=f"secret:{agent.secret}"),
        lambda: client.fire(worker, "shutdown_requested", by="eve", proof=f"secret:{agent.secret}"),
        lambda: Agent.called("agent-7", secret=f"{agent.secret}x", runtime=runtime),
        lambda: client.fire(worker, "shutdown_requested", by="agent-7", proof=f"secret:{agent.secret}x"),
        lambda: claims.finish(runtime, mine, 1, DONE),
        *(
            lambda authority=each: dba.execute(
                FIRED.replace("'holder'", f"'{authority}'"),
                {"id": uuid4().hex, "worker": worker, "name": "eve", "proof": f"secret:{agent.secret}"},
            )
            for each in ("machinery", "effect", "holder", "operator", "anyone", "nonsense")
        ),
    ):
        with pytest.raises((InterlockError, psycopg.Error)) as fault:
            act()
        faults.append(fault.value)
    agent.leave(wait_for_tasks=True)
    agent.finish(token)
    other.leave()
    drain_all(runtime)
    told = "".join("".join(traceback.format_exception(each)) for each in faults)
    told += caplog.text + str(capsys.readouterr()) + repr((agent, mine, client.show(worker), client.history(worker)))
    told += "".join(str(row) for rows in databases.whole(dba).values() for row in rows)
    assert state(client, worker) == "shutdown"
    for secret in (agent.secret, other.secret):
        assert secret not in told
        assert secret[:20] not in told


def test_a_worker_of_the_execution_engine_proves_itself_too(client: Client, project: str) -> None:
    made = client.create("uet_worker", "U-1", project=project, context=OF_SECRET)["id"]
    bare = client.create("uet_worker", "U-2", project=project)["id"]
    with pytest.raises(NotYours, match="not U-2's to fire"):
        client.fire(bare, "initialization_complete", by="U-2")
    with pytest.raises(NotYours, match="it got none; an operator may override"):
        client.fire(bare, "initialization_complete", by="U-2", proof=f"secret:{SECRET}")
    client.fire(made, "initialization_complete", by="U-1", proof=f"secret:{SECRET}")
    drain_all(client.runtime)
    assert trail(client, made) == ["initialization_complete"]
    with pytest.raises(BadInput, match="secret_sha256 must be the SHA-256"):
        client.create("uet_worker", "U-3", project=project, context={"secret_sha256": SECRET})
