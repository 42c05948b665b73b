"""What a superuser can do to history, with every protection off and put back: each is found, and said where."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from interlock.db.audit import schema_state
from interlock.db.connection import transaction
from interlock.db.core.deprecations import DefinitionPart
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers import sweeps
from interlock.workers.audit import anchor_copies, anchors, exports
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.overrides.deprecations import announce, approve_removal, propose_removal
from interlock.workers.overrides.narrowing import narrow
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests import databases
from tests.driving import UP_TO_REVIEW, applied, drain_all
from tests.rights import grant
from tests.tampering import RECHAIN, Tampering, assert_found, found_by_itself, tamper, together

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
CONTEXT = {"title": "Search"}
MOVES = (*UP_TO_REVIEW, "block", "unblock")
OLD = ("workstream", "0.1.0")
EVENT = "workflow_id = '{story}' AND seq = 2"
ToFiles = Callable[[Path, Path], None]  # takes the directories of the audit and of the journal


def event(column: str, value: str, what: str = "") -> Tampering:
    return Tampering(
        what or f"an event's `{column}` changed", f"UPDATE workflow_transitions SET {column} = {value} WHERE {EVENT}"
    )


def object_(what: str, sql: str, where: str) -> Tampering:
    return Tampering(what, sql, where, of_schema=not where.startswith("definition"))


def outside(what: str, sql: str, where: str, to_files: ToFiles = lambda audit, state: None) -> Tampering:
    return Tampering(what, sql, where, to_files=to_files)


def part(state: Path, number: int) -> Path:
    (path,) = state.glob(f"transitions.{number:06}.*.jsonl")
    return path


def rewrite(change: Callable[[list[str]], list[str]]) -> ToFiles:
    def write(audit: Path, state: Path) -> None:
        path = part(state, 1)
        path.chmod(0o640)
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return write


def changed(lines: list[str]) -> list[str]:
    return [lines[0].replace("agent-1", "agent-2"), *lines[1:]]


def repeated(lines: list[str]) -> list[str]:
    return [lines[0], *lines]


def swapped(lines: list[str]) -> list[str]:
    return [lines[1], lines[0], *lines[2:]]


def remove_export(audit: Path, state: Path) -> None:
    (path,) = audit.glob("exports/export-000001.*")
    path.chmod(0o750)
    shutil.rmtree(path)


def remove_anchors(pattern: str) -> ToFiles:
    def remove(audit: Path, state: Path) -> None:
        for path in audit.glob(f"anchors/{pattern}"):
            path.unlink()

    return remove


def overwrite(name: str) -> ToFiles:
    def write(audit: Path, state: Path) -> None:
        (path,) = audit.glob(f"exports/export-000001.*/{name}")
        path.chmod(0o640)
        path.write_bytes(b"x")

    return write


HISTORIES = (
    event("to_state", "'done'"),
    event("from_state", "'done'"),
    event("trigger", "'block'"),
    event("triggered_by", "'mallory'"),
    event("request_id", "'another'"),
    event("authority", "'operator'"),
    event("proof", "'grant:1'"),
    event("login", "'another'"),
    event("severity", "'critical'"),
    event("metadata", "metadata || '{{\"more\": 1}}'"),
    event("created_at", "created_at - interval '1 hour'"),
    event("definition_version", "'9.9.9'"),
    event("workflow_type", "'sprint'"),
    event("id", "gen_random_uuid()"),
    event("hash", "sha256('x')"),
    event("prev_hash", "sha256('x')"),
    event("seq", "99"),
    event("xid", "'1'"),
    event("position", "DEFAULT"),
    Tampering(
        "an event moved to another instance",
        f"UPDATE workflow_transitions SET workflow_id = '{{other}}', seq = 99 WHERE {EVENT}",
    ),
    Tampering("an event in the middle deleted", f"DELETE FROM workflow_transitions WHERE {EVENT}"),
    Tampering(
        "two events swapped",
        "UPDATE workflow_transitions SET seq = CASE seq WHEN 2 THEN 1002 ELSE 1003 END WHERE workflow_id = "
        "'{story}' AND seq IN (2, 3); UPDATE workflow_transitions SET seq = CASE seq WHEN 1002 THEN 3 ELSE 2 "
        "END WHERE seq > 1000",
    ),
    Tampering(
        "an event's author changed, and all hashes computed anew",
        f"UPDATE workflow_transitions SET triggered_by = 'mallory' WHERE {EVENT}",
        rechained=True,
    ),
    Tampering(
        "an event's right changed, and all hashes computed anew",
        f"UPDATE workflow_transitions SET authority = 'operator' WHERE {EVENT}",
        rechained=True,
    ),
    Tampering(
        "an event's author changed, with its request, and all hashes computed anew",
        f"UPDATE workflow_transitions SET triggered_by = 'mallory' WHERE {EVENT}; UPDATE trigger_requests SET "
        "triggered_by = 'mallory' WHERE workflow_id = '{story}' AND result->>'seq' = '2'",
        rechained=True,
    ),
    Tampering(
        "an illegal move, with all hashes computed anew",
        f"UPDATE workflow_transitions SET to_state = 'done' WHERE {EVENT}; UPDATE workflow_transitions SET "
        f"from_state = 'done' WHERE workflow_id = '{{story}}' AND seq = 3",
        rechained=True,
    ),
    Tampering(
        "a first move that leaves another state than the first",
        "UPDATE workflow_transitions SET from_state = 'design' WHERE workflow_id = '{story}' AND seq = 1",
        rechained=True,
    ),
    Tampering(
        "the last event deleted, and the instance set back",
        "DELETE FROM workflow_transitions t USING workflow_instances i WHERE i.id = '{story}' AND "
        "t.workflow_id = i.id AND t.seq = i.version; UPDATE workflow_instances i SET version = t.seq, "
        "current_state = t.to_state FROM workflow_transitions t WHERE i.id = '{story}' AND t.workflow_id = "
        "i.id AND t.seq = i.version - 1",
    ),
    Tampering(
        "an instance deleted with its whole history",
        "DELETE FROM workflow_transitions WHERE workflow_id = '{story}'; DELETE FROM trigger_requests WHERE "
        "workflow_id = '{story}'; DELETE FROM workflow_instances WHERE id = '{story}'",
    ),
    Tampering("an instance deleted without its history", "DELETE FROM workflow_instances WHERE id = '{story}'"),
    Tampering(
        "an instance's state changed", "UPDATE workflow_instances SET current_state = 'done' WHERE id = '{story}'"
    ),
    Tampering("an instance's version changed", "UPDATE workflow_instances SET version = 1 WHERE id = '{story}'"),
    Tampering("an instance's name changed", "UPDATE workflow_instances SET entity_id = 'another' WHERE id = '{story}'"),
    Tampering(
        "an instance's project changed", "UPDATE workflow_instances SET project = 'another' WHERE id = '{story}'"
    ),
    Tampering(
        "an instance's creator changed", "UPDATE workflow_instances SET created_by = 'mallory' WHERE id = '{story}'"
    ),
    Tampering(
        "an instance's time of birth changed",
        "UPDATE workflow_instances SET created_at = created_at - interval '1 hour' WHERE id = '{story}'",
    ),
    Tampering(
        "an instance's context changed",
        "UPDATE workflow_instances SET context = context || '{{\"more\": 1}}' WHERE id = '{still}'",
        "{still}",
    ),
    Tampering(
        "an instance's context changed, with its digest",
        "UPDATE workflow_instances SET context = '{{}}', context_sha256 = digest('{{}}') WHERE id = '{story}'",
    ),
    Tampering(
        "the context of an instance that has not moved changed, with its digest",
        "UPDATE workflow_instances SET context = '{{}}', context_sha256 = digest('{{}}') WHERE id = '{still}'",
        "{still}",
    ),
    Tampering(
        "an instance's version at birth changed",
        "UPDATE workflow_instances SET born_version = '9.9.9' WHERE id = '{story}'",
    ),
    Tampering(
        "the digests of an instance's bodies changed",
        "UPDATE workflow_instances SET bodies = '{{}}' WHERE id = '{story}'",
    ),
    Tampering(
        "an instance's birth said to be of a token",
        "UPDATE workflow_instances SET born_proof = 'token:00000000-0000-7000-8000-000000000000' WHERE id = '{story}'",
    ),
    Tampering(
        "an instance's type changed",
        "UPDATE workflow_instances SET workflow_type = 'sprint', definition_version = '1.0.0', current_state "
        "= 'planned' WHERE id = '{story}'",
    ),
    Tampering(
        "an instance born in another state than the first",
        "UPDATE workflow_instances SET current_state = 'testing' WHERE id = '{still}'",
        "{still}",
    ),
)
GRANTS = (
    Tampering(
        "an operator's grant forged",
        "INSERT INTO operators SELECT gen_random_uuid(), 'active', 'mallory', 'ann', 'mine', now(), NULL, NULL, NULL",
        "operator_grant mallory",
    ),
    Tampering("an operator's grant deleted", "DELETE FROM operators WHERE grant_id = '{grant}'", "{grant}"),
    Tampering(
        "an operator's grant ended",
        "UPDATE operators SET until = now() - interval '1 hour' WHERE grant_id = '{grant}'",
        "{grant}",
    ),
    Tampering(
        "an operator's grant given another name, in its events too",
        "UPDATE operators SET name = 'mallory' WHERE grant_id = '{grant}'; UPDATE workflow_transitions SET metadata = "
        "jsonb_set(metadata, '{{terms,name}}', '\"mallory\"') WHERE workflow_id = '{grant}'",
        "{grant}",
    ),
)
DEPRECATIONS = (
    Tampering(
        "a deprecation deleted", "DELETE FROM deprecations WHERE deprecation_id = '{deprecation}'", "{deprecation}"
    ),
    Tampering(
        "a removal undone",
        "UPDATE deprecations SET state = 'announced', removal_proposed_by = NULL, removed_by = NULL, removed_at = NULL",
        "{deprecation}",
    ),
    Tampering(
        "a removal forged",
        "INSERT INTO deprecations SELECT gen_random_uuid(), 'removed', 'story', '1.0.0', 'version', '', 'ann', 'x', "
        "'', now(), now(), 'ann', 'bob', now()",
        "deprecation story-1.0.0",
    ),
)
NARROWINGS = (
    Tampering("a narrowed right deleted", "DELETE FROM narrowings WHERE narrowing_id = '{narrowing}'", "{narrowing}"),
    Tampering(
        "a narrowed right widened",
        "UPDATE narrowings SET open_to = '{{operator,holder}}' WHERE narrowing_id = '{narrowing}'",
        "{narrowing}",
    ),
    Tampering(
        "a right narrowed without an event",
        "INSERT INTO narrowings SELECT project, type, 'block', open_to, '{story}' FROM narrowings",
        "story.block",
    ),
)
OBJECTS = (
    object_(
        "a function replaced",
        "CREATE OR REPLACE FUNCTION interlock.append() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "function interlock.append()",
    ),
    object_(
        "a function added",
        "CREATE FUNCTION interlock.more() RETURNS integer LANGUAGE sql RETURN 1",
        "function interlock.more()",
    ),
    object_("a trigger dropped", "DROP TRIGGER kept ON workflow_transitions", "trigger workflow_transitions.kept"),
    object_("a trigger switched off", "ALTER TABLE anchors DISABLE TRIGGER kept", "trigger anchors.kept"),
    object_(
        "a trigger that replication skips",
        "ALTER TABLE archived_records ENABLE TRIGGER kept",
        "trigger archived_records.kept",
    ),
    object_(
        "a trigger added",
        "CREATE TRIGGER aa BEFORE INSERT ON workflow_transitions FOR EACH ROW EXECUTE FUNCTION interlock.fixed()",
        "trigger workflow_transitions.aa",
    ),
    object_(
        "a CHECK dropped",
        "ALTER TABLE effects DROP CONSTRAINT effects_attempts_check",
        "constraint effects.effects_attempts_check",
    ),
    object_(
        "a foreign key dropped",
        "ALTER TABLE trigger_requests DROP CONSTRAINT trigger_requests_workflow_id_fkey",
        "constraint trigger_requests.trigger_requests_workflow_id_fkey",
    ),
    object_("a unique index dropped", "DROP INDEX effects_exclusive", "index interlock.effects_exclusive"),
    object_(
        "a column's default changed",
        "ALTER TABLE trigger_requests ALTER login SET DEFAULT 'me'",
        "column trigger_requests.login",
    ),
    object_("a right granted", "GRANT DELETE ON trigger_requests TO interlock_client", "table trigger_requests"),
    object_(
        "a function called by more",
        "GRANT EXECUTE ON FUNCTION interlock.archive(uuid[], interval, interval) TO interlock_client",
        "function interlock.archive(uuid[],interval,interval)",
    ),
    object_(
        "a rule added",
        "CREATE RULE nothing AS ON DELETE TO workflow_links DO INSTEAD NOTHING",
        "rule workflow_links.nothing",
    ),
    object_("a table's owner changed", "ALTER TABLE workflow_links OWNER TO interlock_engine", "table workflow_links"),
    object_(
        "a recorded state made terminal",
        "UPDATE definition_states SET terminal = true WHERE (type, version, state) = ('story', '1.0.0', 'design')",
        "definition story 1.0.0",
    ),
    object_(
        "a recorded first state changed",
        "UPDATE workflow_definitions SET initial_state = 'active' WHERE (type, version) = ('sprint', '1.0.0')",
        "definition sprint 1.0.0",
    ),
    object_(
        "a recorded move added",
        "INSERT INTO definition_transitions VALUES ('pr_review', '1.0.0', 'merged', 'merge', 'approved', '{{anyone}}')",
        "definition pr_review 1.0.0",
    ),
    object_(
        "a recorded right widened",
        "UPDATE definition_transitions SET by = '{{anyone}}' WHERE (type, trigger) = ('approval', 'expire')",
        "definition approval 1.0.0",
    ),
    object_(
        "the name of a move's events taken away",
        "UPDATE definition_transitions SET event = NULL WHERE (type, trigger) = ('patch_ledger', 'roll_back')",
        "definition patch_ledger 1.1.0",
    ),
    object_(
        "a recorded body changed",
        "UPDATE workflow_definitions SET body = body || '{{\"rules\": []}}' WHERE (type, version) = ('job', '1.0.0')",
        "definition job 1.0.0",
    ),
)
ANCHORS = (
    Tampering(
        "a function replaced, and the schema recorded anew",
        "CREATE OR REPLACE FUNCTION interlock.append() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN "
        "NEW; END'; DELETE FROM schema_states",
        "anchor 1",
        recorded_anew=True,
    ),
    Tampering(
        "an anchor's record changed",
        "UPDATE anchors SET record = replace(record, '1', '2')",
        "anchor 1",
    ),
    Tampering(
        "an anchor's signature changed",
        "UPDATE anchors SET proof = overlay(proof placing 'AAAA' from length(proof) - 80)",
        "anchor 1",
    ),
    Tampering(
        "an anchor's signed checkpoint replaced by junk",
        "UPDATE anchors SET proof = 'junk'",
        "anchor 1",
    ),
    Tampering(
        "an anchor renumbered",
        "UPDATE anchor_heads SET number = number + 9; UPDATE anchors SET number = number + 9",
        "anchor 10",
    ),
    Tampering(
        "an anchor's time changed",
        "UPDATE anchors SET made_at = made_at + interval '1 day'",
        "anchor 1",
    ),
    Tampering("an anchor deleted", "DELETE FROM anchor_heads; DELETE FROM anchors", "anchor 1"),
    Tampering(
        "an anchor's head changed",
        "UPDATE anchor_heads SET hash = sha256('x') WHERE workflow_id = '{story}'",
        "anchor 1",
    ),
    outside(
        "the newest anchor deleted with its files",
        "DELETE FROM anchor_heads WHERE number = 2; DELETE FROM anchors WHERE number = 2",
        "anchor 2",
        remove_anchors("anchor-000002*"),
    ),
    outside(
        "all anchors deleted with their files",
        "DELETE FROM anchor_heads; DELETE FROM anchors",
        "anchor 1",
        remove_anchors("*"),
    ),
)
JOURNAL = (
    outside(
        "an event moved in commit order",
        "UPDATE workflow_transitions t SET xid = b.xid FROM workflow_transitions b "
        "WHERE t.workflow_id = '{story}' AND t.seq = 2 AND b.workflow_id = t.workflow_id AND b.seq = 1",
        "{story}",
    ),
    outside("a line of the journal deleted", "", "{story}", rewrite(lambda lines: lines[1:])),
    outside("a line of the journal changed", "", ".jsonl:1", rewrite(changed)),
    outside("a line of the journal added", "", ".jsonl:2", rewrite(repeated)),
    outside("two lines of the journal swapped", "", ".jsonl:2", rewrite(swapped)),
    outside("a part of the journal deleted", "", "{story}", lambda _, state: part(state, 2).unlink()),
)
EXPORTS = (
    outside("an export deleted", "", "export 1", remove_export),
    outside(
        "an export deleted with its record and its cursor",
        "DELETE FROM audit_exports; UPDATE relay_cursors SET xid = '0', position = 0 WHERE name = 'export'",
        "export 1",
        remove_export,
    ),
    outside("an export's events changed", "", "events.jsonl.gz", overwrite("events.jsonl.gz")),
    outside(
        "an export rewritten with its record",
        "UPDATE audit_exports SET manifest = encode(sha256('x'), 'hex')",
        "manifest.json",
        overwrite("manifest.json"),
    ),
    outside(
        "the cursor of exports moved past an event",
        "UPDATE relay_cursors SET position = position + 1 WHERE name = 'export'",
        "cursor export",
    ),
)
POWERS = (*GRANTS, *DEPRECATIONS, *NARROWINGS)  # a grant proves the others' events
ROUNDS = (*together(ANCHORS, POWERS), *together(JOURNAL, EXPORTS), OBJECTS)
TABLE = (*HISTORIES, *chain.from_iterable(ROUNDS))


@dataclass(frozen=True)
class Written:
    """Histories, anchored and partly exported: the database to copy, and the home and the anchors' copies with it."""

    database: str
    settings: Settings
    kept: Path  # a copy of `place`
    place: Path  # a fixed one: where anchors are copied to is named in the database
    stories: tuple[UUID, ...]

    def restored(self) -> Settings:
        """Put the files back as they were."""
        self.place.rename(self.kept.with_name(uuid4().hex))
        shutil.copytree(self.kept, self.place)
        return self.settings


@pytest.fixture(scope="module")
def written(servers: Servers, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Written once: a copy costs a third of writing it anew."""
    place = tmp_path_factory.mktemp("written") / "place"
    (place / "copies").mkdir(parents=True)
    with databases.copy_of(servers, template) as url:
        settings = Settings(
            home=place / "home",
            database_url=url,
            owner_url=databases.as_owner(servers, url),
            broker_url=servers.broker_url,
            journal_bytes=1_900,  # parts of two events
            anchor_directories=(place / "copies",),
        )
        runtime = Runtime(settings)
        made = told(Client(runtime))
        assert verify(runtime).ok
        runtime.close()
        kept = place.with_name("kept")
        shutil.copytree(place, kept)
        yield Written(url.rpartition("/")[2], settings, kept, place, tuple(made))


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, database_to_copy: str) -> str:
    return request.getfixturevalue("written").database if "runtime" in request.fixturenames else database_to_copy


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], written: Written) -> Runtime:
    chosen = written.restored()
    return make_runtime(
        home=chosen.home, journal_bytes=chosen.journal_bytes, anchor_directories=chosen.anchor_directories
    )


@pytest.fixture
def stories(written: Written) -> tuple[UUID, ...]:
    return written.stories


def told(client: Client) -> list[UUID]:
    """One that has moved, one that only was born, another; two grants, a removal; all anchored, some exported."""
    made = [client.create("story", f"S-{number}", context=CONTEXT)["id"] for number in range(3)]
    applied(client, made[0], *MOVES)
    sweeps.SWEEPS["relay"](client.runtime)
    exported = exports.export(client.runtime)  # begins with an anchor
    assert exported
    assert exported.events == 5
    applied(client, made[2], *UP_TO_REVIEW)
    grant(client, "ann", "bob")
    ann, (type_, version) = OverrideOrder("ann", "a test"), OLD
    announce(client.runtime, DefinitionPart(type_, version), ann, remove_after=datetime.now(UTC))
    propose_removal(client.runtime, type_, version, ann)
    approve_removal(client.runtime, type_, version, OverrideOrder("bob", "a test"))
    narrow(client.runtime, "story", "unblock", ["operator"], ann)
    assert anchors.anchor(client.runtime) == 5
    anchor_copies.copy_all(client.runtime)
    return made


def told_often(client: Client, times: int) -> tuple[list[UUID], list[UUID]]:
    """Stories that have moved, and as many that only were born; all anchored, and all events exported."""
    births = [client.birth("story", f"S-{number}", context=CONTEXT) for number in range(2 * times)]
    client.create_many(births)
    moved, still = [each.id for each in births[:times]], [each.id for each in births[times:]]
    client.fire_many([Firing(each, move, "agent-1") for each in moved for move in MOVES])
    drain_all(client.runtime)
    sweeps.SWEEPS["relay"](client.runtime)
    exported = exports.export(client.runtime)  # begins with an anchor
    assert exported
    assert exported.events == times * len(MOVES)
    assert verify(client.runtime).ok
    return moved, still


def test_nothing_is_found_in_a_copy_of_database_and_files(runtime: Runtime) -> None:
    assert verify(runtime).ok
    assert found_by_itself(runtime) == []


@pytest.mark.parametrize("tamperings", ROUNDS, ids=lambda each: each[0].what)
def test_each_is_found_and_said_where(
    runtime: Runtime, dba: Dba, stories: tuple[UUID, ...], tamperings: Sequence[Tampering]
) -> None:
    ((granted, removed),) = dba.execute(
        "SELECT grant_id, deprecation_id FROM operators, deprecations WHERE operators.name = 'ann'"
    ).fetchall()
    names = {"story": stories[0], "grant": granted, "deprecation": removed}
    ((names["narrowing"],),) = dba.execute("SELECT narrowing_id FROM narrowings").fetchall()
    tamper(dba, "; ".join(each.sql.format(**names) for each in tamperings if each.sql and not each.of_schema))
    for each in tamperings:
        if each.of_schema:
            dba.execute(each.sql.encode())
        each.to_files(runtime.settings.audit_directory, runtime.settings.state_directory)
    if any(each.recorded_anew for each in tamperings):
        with transaction(runtime.owned) as connection:
            schema_state.record(connection)
    expected = {each.what: each.where.format(**names) for each in tamperings}
    assert_found([each.instance for each in verify(runtime).problems], expected)
    assert_found([each["instance"] for each in found_by_itself(runtime)], expected)


def test_each_is_found_in_the_history_that_it_was_done_to(make_runtime: Callable[..., Runtime], dba: Dba) -> None:
    runtime = make_runtime()
    moved, still = told_often(Client(runtime), len(HISTORIES) + 1)
    named = [{"story": moved[n], "still": still[n], "other": moved[-1]} for n in range(len(HISTORIES))]
    tamper(
        dba,
        "; ".join(
            each.sql.format(**names) + (f"; {RECHAIN % {'id': names['story']}}" if each.rechained else "")
            for each, names in zip(HISTORIES, named, strict=True)
        ),
    )
    done_to = {each.what: each.where.format(**names) for each, names in zip(HISTORIES, named, strict=True)}
    others = {*map(str, (*moved[:-1], *still))} - {*done_to.values()}
    assert len(others) == len(HISTORIES) + 1
    for said in (
        {each.instance for each in verify(runtime).problems},
        {each["instance"] for each in found_by_itself(runtime)},
    ):
        assert_found(said, done_to)
        assert said & others == set()
