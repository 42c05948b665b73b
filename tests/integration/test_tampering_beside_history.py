"""What a superuser can do to rows beside history, with all protections off: each is found, and said where."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.orchestration import jobs
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit import anchors
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.overrides.transaction import OverrideOrder, operating
from interlock.workers.pool import claims
from interlock.workers.pool.claims import Claim
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.archived import archive, expire_timers
from tests.crewing import Site, hand
from tests.driving import UP_TO_REVIEW, applied, drain_all, outcome
from tests.homes import open_directory
from tests.landscape import Landscape
from tests.rights import grant, known
from tests.tampering import RECHAIN, Tampering, assert_found, found_by_itself, tamper, together, unprotected
from tests.working import settle

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]

PATCHES = (
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
)
GATE = (
    Tampering(
        "a command changed",
        "UPDATE commands SET argv = '{{rm,-r,/}}' WHERE workflow_id = '{gate}'",
        "commands {gate} was changed",
    ),
    Tampering("a command deleted", "DELETE FROM commands WHERE workflow_id = '{gate}'", "commands {gate} is missing"),
    Tampering(
        "a command changed, with its digest",
        "UPDATE commands SET argv = '{{rm}}' WHERE workflow_id = '{gate}'; UPDATE workflow_instances i SET bodies = "
        "bodies || jsonb_build_object('commands', body_digest(to_jsonb(c))) FROM commands c WHERE c.workflow_id = i.id "
        "AND i.id = '{gate}'",
        "{gate} chain broken",
    ),
)
BARE = (
    Tampering(
        "a command added",
        "INSERT INTO commands (workflow_id, run_id, source, made_by, kind, argv) "
        "VALUES ('{bare}', '{run}', 'plan', 'mallory', 'command', '{{rm,-r,/}}')",
        "commands {bare} was added",
    ),
)
PLANS = (
    Tampering("a plan changed", "UPDATE plans SET directory = '/' WHERE run_id = '{run}'", "plans {run} was changed"),
    Tampering("a plan deleted", "DELETE FROM plans WHERE run_id = '{run}'", "plans {run} is missing"),
)
ENTRY = (
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
        "a patch's commit made up",
        "UPDATE patch_ledger_entries SET commit_sha = 'x' WHERE ledger_id = '{entry}'",
        "patch_ledger_entries {entry} was changed",
    ),
)
JOB = (
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
    Tampering(
        "an archived patch's commit changed",
        'UPDATE archived_records SET body = body || \'{{"commit_sha": "x"}}\' '
        "WHERE kind = 'patch_ledger_entries' AND key = '{old_entry}'",
        "patch_ledger_entries {old_entry} was changed",
    ),
)


START = "{claimed} trigger_requests interlock:claim:{claimed_number}:start"


def request(what: str, change: str) -> Tampering:
    return Tampering(
        what,
        f"UPDATE trigger_requests SET {change} WHERE workflow_id = '{{claimed}}' AND result->>'seq' = '2'",
        f"{START} was changed: event 2 says otherwise",
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
        f"{START} is missing: event 2 was asked for by it",
    ),
    Tampering(
        "a request given to another instance",
        "UPDATE trigger_requests SET workflow_id = '{gate}' WHERE workflow_id = '{claimed}' AND result->>'seq' = '2'",
        "{gate} trigger_requests interlock:claim:{claimed_number}:start was changed: no event is what it says",
    ),
    Tampering(
        "an applied request added",
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, status, "
        "finished_at) VALUES ('done-{claimed}', '', '{claimed}', 'start', 'mallory', 'applied', now())",
        "{claimed} trigger_requests done-{claimed} was changed: no event is what it says",
    ),
    Tampering(
        "a vote added",
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, status, result, "
        "finished_at) SELECT 'vote-{claimed}', '', workflow_id, trigger, 'mallory', status, result, finished_at "
        "FROM trigger_requests WHERE workflow_id = '{claimed}' AND result->>'seq' = '2'",
        "{claimed} trigger_requests vote-{claimed} was changed: no event is what it says",
    ),
)


def claim(what: str, change: str, found: str = "was changed: event 2, which it proved, says otherwise") -> Tampering:
    return Tampering(
        what,
        f"UPDATE task_claims SET {change} WHERE task_id = '{{claimed}}'",
        f"{{claimed}} task_claims {{claimed_number}} {found}",
    )


CLAIMS = (
    claim("a claim's task changed", "task_id = (SELECT task_id FROM tasks WHERE task_id <> '{claimed}' LIMIT 1)"),
    claim("a claim's time changed", "claimed_at = claimed_at + interval '1 hour'", "was changed: its task's start"),
    claim("a claim's run changed", "run_id = gen_random_uuid()", "was changed: its task's start"),
    claim("a claim's worker changed", "worker_id = gen_random_uuid()"),
    Tampering(
        "a claim deleted",
        "DELETE FROM task_claims WHERE task_id = '{claimed}'",
        "{claimed} task_claims {claimed_number} is missing: it proved event 2",
    ),
    Tampering(
        "a claim added",
        "INSERT INTO task_claims (claim_id, task_id, run_id, worker_id) OVERRIDING SYSTEM VALUE "
        "SELECT 1000, task_id, run_id, worker_id FROM task_claims WHERE task_id = '{claimed}'",
        "{claimed} task_claims 1000 was added: its task's start was not asked for",
    ),
)


def forged(what: str, instance: str, change: str, found: str, seq: int = 1) -> Tampering:
    """An event and its request changed alike, and all hashes computed anew."""
    request = f"UPDATE trigger_requests SET {change} WHERE workflow_id = '{instance}' AND result->>'seq' = '{seq}'"
    event = f"UPDATE workflow_transitions SET {change} WHERE workflow_id = '{instance}' AND seq = {seq}"
    return Tampering(what, f"{request}; {event}; {RECHAIN % {'id': instance}}", f"{instance} {found}")


NOBODY = "00000000-0000-7000-8000-000000000007"
RIGHTS = (
    forged(
        "an event given a right that its definition does not give",
        "{claimed}",
        "authority = 'anyone', proof = NULL",
        "not allowed: it is of anyone, but open to holder",
        seq=2,
    ),
    forged("an event's proof taken away", "{claimed}", "proof = NULL", "not proven: it says it is of machinery"),
    forged("an event proven by a right that is not its own", "{claimed}", "proof = 'lease:1:1'", "event 1: its proof"),
    forged("an event proven by a run that never was", "{claimed}", f"proof = 'run:{NOBODY}'", "event 1: its proof"),
    forged("an event proven by a later version", "{claimed}", "proof = 'state:1'", "event 1: its proof"),
)
LEASES = (
    forged(
        "an event proven by a lease that never was", "{gate}", f"proof = 'lease:{NOBODY}:1'", "event 2: its proof", 2
    ),
)
STORY = (
    forged(
        "an event proven by an event that never was", "{story}", f"proof = 'event:{NOBODY}'", "event 4: its proof", 4
    ),
    forged(
        "an override proven by a grant that never was", "{story}", f"proof = 'grant:{NOBODY}'", "event 5: its proof", 5
    ),
    forged(
        "an override by somebody who never was an operator",
        "{story}",
        "triggered_by = 'mallory'",
        "event 5: its proof",
        5,
    ),
    Tampering(
        "an operator's grant moved behind the override that it proves",
        "UPDATE workflow_transitions SET position = DEFAULT WHERE workflow_id = '{grant}'",
        "{story} event 5: its proof",
    ),
    Tampering(
        "an operator's grant ended before his override, in its events too",
        "UPDATE operators SET until = now() - interval '1 day' WHERE grant_id = '{grant}'; UPDATE workflow_transitions "
        "SET metadata = jsonb_set(metadata, '{{terms,until}}', to_jsonb(now() - interval '1 day')) WHERE workflow_id = "
        "'{grant}'; " + RECHAIN % {"id": "{grant}"},
        "{story} event 5: its proof",
    ),
    Tampering(
        "an operator's grant erased with its history",
        "DELETE FROM operators WHERE grant_id = '{grant}'; DELETE FROM trigger_requests WHERE workflow_id = '{grant}'; "
        "DELETE FROM workflow_transitions WHERE workflow_id = '{grant}'; DELETE FROM workflow_instances WHERE id = "
        "'{grant}'",
        "{story} event 5: its proof",
    ),
)
MERGED = (
    forged("an approval taken from an event", "{merged}", "proof = NULL", "not approved", seq=3),
    forged(
        "another approval given to an event", "{merged}", "proof = 'approval:{approval}'", "event 3: its proof", seq=3
    ),
    Tampering(
        "an approval erased with its history",
        "DELETE FROM trigger_requests WHERE workflow_id = '{given}'; DELETE FROM workflow_transitions WHERE "
        "workflow_id = '{given}'; DELETE FROM workflow_instances WHERE id = '{given}'",
        "{merged} event 3: its proof",
    ),
    Tampering(
        "an approval of easier terms than its definition asks for",
        "UPDATE workflow_instances SET context = context || '{{\"author\": \"zoe\"}}' WHERE id = '{given}'",
        "{given} no definition asks for such an approval",
    ),
)


def held(what: str, sql: str, found: str, *, applied: bool = False) -> Tampering:
    return Tampering(what, sql, found, applied=applied)


HELD = (
    held(
        "a held trigger released",
        "UPDATE trigger_requests SET granted = true, status = 'pending' WHERE status = 'waiting'",
        "{review} trigger_requests",
    ),
    held(
        "a held trigger released, and applied",
        "UPDATE trigger_requests SET granted = true, status = 'pending' WHERE status = 'waiting'",
        "{review} not approved",
        applied=True,
    ),
    held(
        "a held trigger released by its approval's name, and applied",
        "UPDATE trigger_requests SET granted = true, status = 'pending', proof = 'approval:{approval}' "
        "WHERE status = 'waiting'",
        "{review} event 3: its proof",
        applied=True,
    ),
    held(
        "a held trigger's author changed",
        "UPDATE trigger_requests SET triggered_by = 'mallory' WHERE status = 'waiting'",
        "{review} trigger_requests",
    ),
    held(
        "a held trigger deleted", "DELETE FROM trigger_requests WHERE status = 'waiting'", "{approval} trigger_requests"
    ),
    held(
        "a held trigger settled by hand",
        "UPDATE trigger_requests SET held_by = NULL, status = 'rejected', finished_at = now() WHERE status = 'waiting'",
        "{approval} trigger_requests",
    ),
    held(
        "a held trigger given to an operator",
        "UPDATE trigger_requests SET authority = 'operator', proof = 'grant:1' WHERE status = 'waiting'",
        "its proof grant:1 is none",
    ),
    held(
        "an approval's terms changed",
        "UPDATE workflow_instances SET context = context || '{{\"author\": \"x\"}}' WHERE id = '{approval}'",
        "{approval} its context was changed",
    ),
    held(
        "an approval's decision written by hand",
        "UPDATE workflow_instances SET current_state = 'approved' WHERE id = '{approval}'",
        "{approval} stands in 'approved'",
    ),
)
VOTES = (
    Tampering(
        "the first of two votes deleted",
        "DELETE FROM trigger_requests WHERE workflow_id = '{voted}' AND triggered_by = 'bob'",
        " is missing: event 1 was asked for by it",
    ),
    Tampering(
        "a vote changed",
        "UPDATE trigger_requests SET triggered_by = 'mallory' WHERE workflow_id = '{voted}' AND triggered_by = 'bob'",
        "event 1 says otherwise",
    ),
    Tampering(
        "an approval's quorum raised after it was given",
        "UPDATE workflow_instances SET context = context || '{{\"quorum\": 3}}' WHERE id = '{voted}'",
        "{voted} event 2: it says other terms than its approval has",
    ),
    Tampering(
        "the author among those who approved",
        "UPDATE workflow_instances SET context = context || '{{\"author\": \"bob\"}}' WHERE id = '{voted}'",
        "{voted} event 1: bob is its author",
    ),
    Tampering(
        "the deciders of an approval replaced after it was given",
        "UPDATE workflow_instances SET context = context || '{{\"deciders\": [\"cyd\"]}}' WHERE id = '{voted}'",
        "{voted} event 1: bob is none of its deciders",
    ),
    Tampering(
        "a vote forged that its author may not give",
        "UPDATE workflow_transitions SET triggered_by = 'ann' WHERE (workflow_id, seq) = ('{voted}', 1)",
        "{voted} event 1: ann is its author",
    ),
    Tampering(
        "the votes taken out of the event that gave an approval",
        "UPDATE workflow_transitions SET metadata = metadata - 'votes' WHERE (workflow_id, seq) = ('{voted}', 2)",
        '{voted} event 2: it says nobody approved it; who may and did: ["bob", "cyd"]',
    ),
    Tampering(
        "the terms changed in the event that gave an approval",
        "UPDATE workflow_transitions SET metadata = metadata || '{{\"terms\": {{}}}}'"
        " WHERE (workflow_id, seq) = ('{voted}', 2)",
        "{voted} event 2: it says other terms than its approval has",
    ),
)
COMMITTED = (
    Tampering(
        "a patch's commit changed",
        "UPDATE patch_ledger_entries SET commit_sha = 'x' WHERE ledger_id = '{committed}'",
        "patch_ledger_entries {committed} was changed",
    ),
)
OF_CLAIMS = (*REQUESTS, *CLAIMS, *RIGHTS)
ROUNDS = together(PATCHES, (*GATE, *LEASES), BARE, PLANS, ENTRY, JOB, ARCHIVED, STORY, MERGED, HELD, VOTES, COMMITTED)
TABLE = (*OF_CLAIMS, *chain.from_iterable(ROUNDS))


@dataclass(frozen=True)
class Written:
    """What is tampered with: the database to copy, the home with its anchors, and instances by what they are."""

    database: str
    home: Path
    names: dict[str, UUID | int]
    claimed: list[Claim]  # one for each of `OF_CLAIMS`


@pytest.fixture(scope="module")
def written(servers: Servers, template: str) -> Iterator[Written]:
    """Written once: a copy costs a twentieth of writing it anew."""
    with open_directory() as place, databases.copy_of(servers, template) as url:
        settings = Settings(home=place / "home", database_url=url, broker_url=servers.broker_url)
        runtime = Runtime(settings)
        with psycopg.connect(databases.as_superuser(servers, url), autocommit=True) as dba:
            names = {**archived(runtime, dba, place / "old"), **work(runtime, dba, place / "new")}
            claimed = _claimed(runtime, "claimed", len(OF_CLAIMS))
        assert verify(runtime).ok
        anchors.anchor(runtime)
        runtime.close()
        yield Written(url.rpartition("/")[2], settings.home, names, claimed)


@pytest.fixture
def database_to_copy(written: Written) -> str:
    return written.database


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], written: Written) -> Runtime:
    return make_runtime(home=written.home)


def work(runtime: Runtime, dba: Dba, place: Path) -> dict[str, UUID | int]:
    """A run with a patch in its ledger, a gate with a command that was started, and one without; and decisions."""
    place.mkdir()
    land = Landscape(runtime, dba, place, project="new")
    made = {"run": land.run, "entry": land.patch({"app.py": "1\n"}), "gate": land.gate(["true"])}
    made["bare"] = land.create("test_gate", "demo/w/bare", {"gate_type": "UNIT", "workstream_id": str(land.workstream)})
    made["task"] = land.entry(made["entry"])["task_id"]
    made["job"] = land.create("job", "build", {"depth": 0, "task_description": "build"})
    made["worker"] = land.create("supervised_worker", "w-1", {})
    with transaction(runtime.database) as connection:
        jobs.hold(connection, made["job"], made["worker"])
    made["committed"] = land.committed_patch(name="new")
    return {**made, **_decided(runtime, dba)}


def _decided(runtime: Runtime, dba: Dba) -> dict[str, UUID | int]:
    """A merge that was approved, with its story, which an operator moved on; one that is held; two votes of two."""
    client = Client(runtime)
    grant(client, "olga")
    story = client.create("story", "S-1", project="delivery")["id"]
    applied(client, story, *UP_TO_REVIEW)
    about: list[dict[str, str]] = [{"author": "ann", "story_id": "S-1"}, {"author": "ann"}]
    reviews = [
        client.create("pr_review", f"PR-{n}", project="delivery", context=each)["id"] for n, each in enumerate(about)
    ]
    approvals = []
    for review in reviews:
        applied(client, review, "start_review", "approve", by="bob")
        receipt = client.fire(review, "merge", by="bob")
        drain_all(runtime)
        approvals.append(outcome(client, receipt.request_id)["held_by"])
    applied(client, approvals[0], "approve", by="cyd")
    with operating(runtime, OverrideOrder("olga", "it works"), "walk", story) as operation:
        operation.walk(operation.find(story), "done")
    voted = client.create("approval", "A-1", project="delivery", context={"quorum": 2, "author": "ann"})["id"]
    for by in ("bob", "cyd"):
        client.fire(voted, "approve", by=by)
    drain_all(runtime)
    ((granted,),) = dba.execute("SELECT grant_id FROM interlock.operators WHERE name = 'olga'").fetchall()
    made = {"story": story, "merged": reviews[0], "given": approvals[0], "review": reviews[1], "approval": approvals[1]}
    return {**made, "voted": voted, "grant": granted}


def archived(runtime: Runtime, dba: Dba, place: Path) -> dict[str, UUID | int]:
    """An archived run with a task whose patch was committed, and one whose task a worker took."""
    place.mkdir()
    land = Landscape(runtime, dba, place, project="old")
    gate = land.gate(["true"])
    land.settle()
    judged = land.task({"app.py": "1\n"}, "judged", gates=[str(gate)])
    entry = land.entry(land.committed_patch(name="old"))
    land.cancel()
    (taken,) = _claimed(runtime, "taken")
    applied(Client(runtime), taken.run_id, "cancel", by="ann")
    settle(Client(runtime), taken.run_id)
    expire_timers(dba)
    assert dict(archive(runtime).held) == {}
    return {
        "old_run": land.run,
        "old_entry": entry["ledger_id"],
        "old_task": entry["task_id"],
        "old_gate": gate,
        "judged": judged,
        "taken": taken.task_id,
        "taken_number": taken.id,
    }


def _claimed(runtime: Runtime, name: str, count: int = 1) -> list[Claim]:
    """Claims of tasks of one run that a worker has taken, and reported on."""
    Site(Client(runtime), name).queue(count)
    worker = known(hand(runtime, f"{name}-worker", max_concurrent_tasks=count))
    taken = [claim for _ in range(count) if (claim := claims.take(runtime, worker))]
    drain_all(runtime)
    for claim in taken:
        claims.finish(runtime, worker, claim.token, Report("execution_completed", {"exit_code": 0}))
    drain_all(runtime)
    assert len(taken) == count
    return taken


@pytest.mark.parametrize("tamperings", ROUNDS, ids=lambda each: each[0].what)
def test_each_is_found_and_said_where(
    runtime: Runtime, dba: Dba, written: Written, tamperings: Sequence[Tampering]
) -> None:
    tamper(dba, "; ".join(each.sql.format(**written.names) for each in tamperings))
    if any(each.applied for each in tamperings):
        assert drain_all(runtime) > 0
    _assert_said(runtime, {each.what: each.where.format(**written.names) for each in tamperings})


def test_each_is_found_of_the_claim_that_it_was_done_to(runtime: Runtime, dba: Dba, written: Written) -> None:
    named = [written.names | {"claimed": claim.task_id, "claimed_number": claim.id} for claim in written.claimed]
    tamper(dba, "; ".join(each.sql.format(**names) for each, names in zip(OF_CLAIMS, named, strict=True)))
    _assert_said(runtime, {each.what: each.where.format(**names) for each, names in zip(OF_CLAIMS, named, strict=True)})


def _assert_said(runtime: Runtime, expected: Mapping[str, str]) -> None:
    """By both verifications, the one that is asked for and the one that runs by itself."""
    assert_found([f"{each.instance} {each.message}" for each in verify(runtime).problems], expected)
    assert_found(["{instance} {message}".format(**each) for each in found_by_itself(runtime)], expected)


def test_a_lease_is_missed_until_its_effects_keeping_time_is_over(runtime: Runtime, dba: Dba) -> None:
    with transaction(runtime.database) as connection:
        assert effects.prune(connection, keep_days=0, limit=1_000) > 0
    assert verify(runtime).ok
    with unprotected(dba, "pruned"):
        dba.execute("UPDATE pruned SET effects_upto = '-infinity'")
    assert "no effect of this instance was under such a lease" in verify(runtime).problems[0].message
