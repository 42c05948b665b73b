"""What a superuser can do to rows beside history, with all protections off: each is found, and said where."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.orchestration import jobs
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit import anchors
from interlock.workers.audit.verification import verify_some
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.pool import claims
from interlock.workers.pool.registration import EXECUTE, WorkerDescription, register
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.archived import archive, expire_timers
from tests.crewing import Site
from tests.driving import applied, drain_all
from tests.homes import open_directory
from tests.landscape import Landscape
from tests.rights import known, remember
from tests.tampering import Tampering, unprotected
from tests.working import settle

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

BODIES = (
    Tampering(
        "a patch's text changed",
        "UPDATE patches SET body = 'x' WHERE patch_id = 'patch-t'",
        "patches patch-t was changed",
    ),
    Tampering(
        "a patch's author changed",
        "UPDATE patches SET created_by = 'mallory' WHERE patch_id = 'patch-t'",
        "patches patch-t was changed",
    ),
    Tampering(
        "a patch deleted",
        "DELETE FROM patches WHERE patch_id = 'patch-t'",
        "patches patch-t is missing",
    ),
    Tampering(
        "a command changed",
        "UPDATE commands SET argv = '{{rm,-r,/}}' WHERE workflow_id = '{gate}'",
        "commands {gate} was changed",
    ),
    Tampering("a command deleted", "DELETE FROM commands WHERE workflow_id = '{gate}'", "commands {gate} is missing"),
    Tampering(
        "a command added",
        "INSERT INTO commands (workflow_id, run_id, source, made_by, kind, argv) "
        "VALUES ('{bare}', '{run}', 'plan', 'mallory', 'command', '{{rm,-r,/}}')",
        "commands {bare} was added",
    ),
    Tampering("a plan changed", "UPDATE plans SET directory = '/' WHERE run_id = '{run}'", "plans {run} was changed"),
    Tampering("a plan deleted", "DELETE FROM plans WHERE run_id = '{run}'", "plans {run} is missing"),
    Tampering(
        "a command changed, with its digest",
        "UPDATE commands SET argv = '{{rm}}' WHERE workflow_id = '{gate}'; UPDATE workflow_instances i SET bodies = "
        "bodies || jsonb_build_object('commands', body_digest(to_jsonb(c))) FROM commands c WHERE c.workflow_id = i.id "
        "AND i.id = '{gate}'",
        "{gate}",
    ),
)
LINKS = (
    Tampering(
        "a link deleted",
        "DELETE FROM workflow_links WHERE source_id = '{entry}' AND role = 'task'",
        "workflow_links {entry} task {task} is missing",
    ),
    Tampering(
        "a link added",
        "INSERT INTO workflow_links (source_id, role, inverse, target_id) "
        "VALUES ('{entry}', 'gates', 'judges', '{gate}')",
        "workflow_links {entry} gates {gate} was added",
    ),
    Tampering(
        "a link's role changed",
        "UPDATE workflow_links SET role = 'waived' WHERE source_id = '{entry}' AND role = 'task'",
        "workflow_links {entry} task {task} is missing",
    ),
    Tampering(
        "a link's target changed",
        "UPDATE workflow_links SET target_id = '{gate}' WHERE source_id = '{entry}' AND role = 'task'",
        "workflow_links {entry} task {task} is missing",
    ),
    Tampering(
        "a link's inverse changed",
        "UPDATE workflow_links SET inverse = 'x' WHERE source_id = '{entry}' AND role = 'task'",
        "workflow_links {entry} task {task} was changed",
    ),
    Tampering(
        "a link's time changed",
        "UPDATE workflow_links SET created_at = created_at - interval '1 hour' WHERE source_id = '{entry}'",
        "workflow_links {entry} task {task} was changed",
    ),
    Tampering(
        "a link deleted that was made after the birth",
        "DELETE FROM workflow_links WHERE source_id = '{job}'",
        "workflow_links {job} workers {worker} is missing",
    ),
    Tampering(
        "a recorded change of a link deleted",
        "DELETE FROM link_changes WHERE source_id = '{job}'",
        "workflow_links {job} workers {worker} was added",
    ),
    Tampering(
        "a recorded change of a link changed",
        "UPDATE link_changes SET login = 'another' WHERE source_id = '{job}'",
        "link_changes {job} 1 was changed",
    ),
)
ARCHIVED = (
    Tampering(
        "an archived link deleted",
        "DELETE FROM archived_links WHERE source_id = '{judged}' AND role = 'gates'",
        "workflow_links {judged} gates {old_gate} is missing",
    ),
    Tampering(
        "an archived link's role changed",
        "UPDATE archived_links SET role = 'waived' WHERE source_id = '{judged}' AND role = 'gates'",
        "workflow_links {judged} gates {old_gate} is missing",
    ),
    Tampering(
        "an archived patch's text changed",
        "UPDATE archived_records SET body = body || '{{\"body\": \"x\"}}' WHERE key = 'patch-old'",
        "patches patch-old was changed",
    ),
    Tampering(
        "an archived command changed",
        "UPDATE archived_records SET body = body || '{{\"argv\": [\"rm\"]}}' WHERE kind = 'commands' AND "
        "key = '{old_task}'",
        "commands {old_task} was changed",
    ),
    Tampering(
        "an archived command deleted",
        "DELETE FROM archived_records WHERE kind = 'commands' AND key = '{old_task}'",
        "commands {old_task} is missing",
    ),
    Tampering(
        "an archived plan changed",
        "UPDATE archived_records SET body = body || '{{\"directory\": \"/\"}}' WHERE kind = 'plans' AND "
        "key = '{old_run}'",
        "plans {old_run} was changed",
    ),
    Tampering(
        "an archived claim deleted",
        "DELETE FROM archived_records WHERE kind = 'task_claims'",
        "{taken} task_claims {taken_number} is missing: it proved event 2",
    ),
)


def request(what: str, change: str) -> Tampering:
    return Tampering(
        what,
        f"UPDATE trigger_requests SET {change} WHERE workflow_id = '{{claimed}}' AND result->>'seq' = '2'",
        "was changed: event 2 says otherwise",
    )


REQUESTS = (
    request("a request's author changed", "triggered_by = 'mallory'"),
    request("a request's trigger changed", "trigger = 'cancel'"),
    request("a request's right changed", "authority = 'operator'"),
    request("a request's proof changed", "proof = 'grant:1'"),
    request("a request's login changed", "login = 'another'"),
    request("a request turned into an override", "origin = 'override', metadata = '{{\"override\": {{}}}}'"),
    request("a request made to wait again", "status = 'pending', finished_at = NULL"),
    request("a request's answer changed", 'result = result || \'{{"to": "failed"}}\''),
    request("a request's time changed", "finished_at = finished_at + interval '1 hour'"),
    Tampering(
        "a request deleted",
        "DELETE FROM trigger_requests WHERE workflow_id = '{claimed}' AND result->>'seq' = '2'",
        "is missing: event 2 was asked for by it",
    ),
    Tampering(
        "a request given to another instance",
        "UPDATE trigger_requests SET workflow_id = '{gate}' WHERE workflow_id = '{claimed}' AND result->>'seq' = '2'",
        "was changed: no event is what it says",
    ),
    Tampering(
        "an applied request added",
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, status, "
        "finished_at) VALUES ('forged', '', '{claimed}', 'start', 'mallory', 'applied', now())",
        "trigger_requests forged was changed: no event is what it says",
    ),
    Tampering(
        "a vote added",
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, status, result, "
        "finished_at) SELECT 'forged', '', workflow_id, trigger, 'mallory', status, result, finished_at "
        "FROM trigger_requests WHERE workflow_id = '{claimed}' AND result->>'seq' = '2'",
        "trigger_requests forged was changed: no event is what it says",
    ),
)


def claim(what: str, change: str, found: str = "was changed: event 2, which it proved, says otherwise") -> Tampering:
    return Tampering(
        what,
        f"UPDATE task_claims SET {change} WHERE task_id = '{{claimed}}'",
        f"task_claims {{claimed_number}} {found}",
    )


CLAIMS = (
    claim("a claim's task changed", "task_id = (SELECT task_id FROM tasks WHERE task_id <> '{claimed}' LIMIT 1)"),
    claim("a claim's worker changed", "worker_id = gen_random_uuid()"),
    claim("a claim's time changed", "claimed_at = claimed_at + interval '1 hour'", "was changed: its task's start"),
    claim("a claim's run changed", "run_id = gen_random_uuid()", "was changed: its task's start"),
    Tampering(
        "a claim deleted",
        "DELETE FROM task_claims WHERE task_id = '{claimed}'",
        "task_claims {claimed_number} is missing: it proved event 2",
    ),
    Tampering(
        "a claim added",
        "INSERT INTO task_claims (task_id, run_id, worker_id) SELECT task_id, run_id, worker_id FROM task_claims",
        "was added: its task's start was not asked for",
    ),
)
TABLE = (*BODIES, *LINKS, *REQUESTS, *CLAIMS, *ARCHIVED)


@dataclass(frozen=True)
class Written:
    """What is tampered with: the database to copy, the home with its anchors, and instances by what they are."""

    database: str
    home: Path
    names: dict[str, UUID | int]


@pytest.fixture(scope="module")
def written(servers: Servers, template: str) -> Iterator[Written]:
    """Written once: a copy costs a twentieth of writing it anew."""
    with open_directory() as place, databases.copy_of(servers, template) as url:
        settings = Settings(home=place / "home", database_url=url, broker_url=servers.broker_url)
        runtime = Runtime(settings)
        with psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as dba:
            names = {**archived(runtime, dba, place / "old"), **work(runtime, dba, place / "new")}
        assert verify(runtime).ok
        anchors.anchor(runtime)
        runtime.close()
        yield Written(url.rpartition("/")[2], settings.home, names)


@pytest.fixture
def database_url(servers: Servers, written: Written) -> Iterator[str]:
    with databases.copy_of(servers, written.database) as url:
        yield url


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], written: Written) -> Runtime:
    return make_runtime(home=written.home)


def work(runtime: Runtime, dba: Dba, place: Path) -> dict[str, UUID | int]:
    """A run with a patch in its ledger, a gate with a command that was started, and one without; and a claimed task."""
    place.mkdir()
    land = Landscape(runtime, dba, place, project="new")
    made = {"run": land.run, "entry": land.patch({"app.py": "1\n"}), "gate": land.gate(["true"])}
    made["bare"] = land.create("test_gate", "demo/w/bare", {"gate_type": "UNIT", "workstream_id": str(land.workstream)})
    made["task"] = land.entry(made["entry"])["task_id"]
    made["job"] = land.create("job", "build", {"depth": 0, "task_description": "build"})
    made["worker"] = land.create("supervised_worker", "w-1", {})
    with transaction(runtime.database) as connection:
        jobs.hold(connection, made["job"], made["worker"])
    return {**made, **_claimed(runtime, "claimed")}


def archived(runtime: Runtime, dba: Dba, place: Path) -> dict[str, UUID | int]:
    """An archived run with a task whose patch was committed, and one whose task a worker took."""
    place.mkdir()
    land = Landscape(runtime, dba, place, project="old")
    gate = land.gate(["true"])
    land.settle()
    judged = land.task({"app.py": "1\n"}, "judged", gates=[str(gate)])
    entry = land.entry(land.committed_patch(name="old"))
    land.cancel()
    taken = _claimed(runtime, "taken")
    applied(Client(runtime), taken["taken_run"], "cancel", by="ann")
    settle(Client(runtime), taken["taken_run"])
    expire_timers(dba)
    assert dict(archive(runtime).held) == {}
    return {"old_run": land.run, "old_task": entry["task_id"], "old_gate": gate, "judged": judged, **taken}


def _claimed(runtime: Runtime, name: str) -> dict[str, UUID | int]:
    """A task that a worker has taken, and reported on."""
    (task,) = Site(Client(runtime), name).queue()
    worker = remember(register(runtime, WorkerDescription(f"{name}-worker", ("python", EXECUTE))))
    claim = claims.take(runtime, known(worker))
    assert claim is not None
    drain_all(runtime)
    claims.finish(runtime, known(worker), claim.token, Report("execution_completed", {"exit_code": 0}))
    drain_all(runtime)
    return {name: task, f"{name}_run": claim.run_id, f"{name}_number": claim.id}


@pytest.mark.parametrize("tampering", TABLE, ids=lambda each: each.what)
def test_each_is_found_and_said_where(runtime: Runtime, dba: Dba, written: Written, tampering: Tampering) -> None:
    with unprotected(dba):
        dba.execute(tampering.sql.format(**written.names).encode())
    where = tampering.where.format(**written.names)
    found = [f"{each.instance} {each.message}" for each in verify(runtime).problems]
    assert any(where in each for each in found), found
    assert bool(verify_some(runtime)) == tampering.by_sweep
