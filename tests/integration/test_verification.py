"""History is verified without being asked: in parts, each part once a day, and what was changed is told."""

import shutil
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import event

from interlock.db.audit import schema_state
from interlock.db.audit import verify as audit
from interlock.db.audit.snapshot import Snapshot
from interlock.db.connection import transaction
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers import sweeps
from interlock.workers.audit import anchors, evidence, verification
from interlock.workers.client.client import Client
from interlock.workers.operations import metrics
from interlock.workers.operations.checks.finding import Finding
from interlock.workers.relay.journal import ACTIVE
from interlock.workers.runtime import Runtime
from tests import databases
from tests.doctoring import examined
from tests.driving import applied
from tests.tampering import unprotected
from tests.waiting import eventually

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


@pytest.fixture(scope="module")
def written(servers: Servers, template: str) -> Iterator[tuple[str, list[UUID]]]:
    """Written once: the name of the database, and the stories."""

    def write(client: Client) -> list[UUID]:
        made = [client.create("story", f"S-{number}")["id"] for number in range(5)]
        for each in made:
            applied(client, each, "design_complete", "start_coding")
        return sorted(made)

    with databases.written(servers, template, write) as both:
        yield both


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, database_to_copy: str, written: tuple[str, list[UUID]]) -> str:
    return written[0] if "stories" in request.fixturenames else database_to_copy


@pytest.fixture
def stories(written: tuple[str, list[UUID]]) -> list[UUID]:
    """Five stories with two events each."""
    return written[1]


def swept(runtime: Runtime) -> int:
    return sweeps.SWEEPS["verify"](runtime) + sweeps.SWEEPS["evidence"](runtime)


def passes(dba: Dba) -> list[tuple[Any, ...]]:
    """(ended, instances, transitions, problems) of each pass."""
    query = "SELECT finished_at IS NOT NULL, instances, transitions, problems FROM verifications ORDER BY pass"
    return dba.execute(query).fetchall()


def a_day_passes(dba: Dba) -> None:
    dba.execute("UPDATE verifications SET started_at = started_at - interval '25 hours'")


def forge(dba: Dba, story: UUID, seq: int = 2) -> None:
    with unprotected(dba, "workflow_transitions"):
        dba.execute(
            "UPDATE workflow_transitions SET severity = 'error' WHERE (workflow_id, seq) = (%s, %s)", (story, seq)
        )


def gauge(runtime: Runtime, name: str) -> float:
    return metrics.read(runtime)[name, ()]


def finding(runtime: Runtime) -> Finding:
    (found,) = examined(runtime, "verification")
    return found


def test_all_of_history_is_verified_once_a_day(runtime: Runtime, stories: list[UUID], dba: Dba) -> None:
    assert finding(runtime).level == "ok"
    assert swept(runtime) == 0
    assert passes(dba) == [(True, 5, 10, 0)]
    assert swept(runtime) == 0
    assert len(passes(dba)) == 1
    assert gauge(runtime, "interlock_audit_age_seconds") < 60
    assert "5 instances were verified" in finding(runtime).message
    a_day_passes(dba)
    assert gauge(runtime, "interlock_audit_age_seconds") > 86_400
    assert swept(runtime) == 0
    assert passes(dba)[1:] == [(True, 5, 10, 0)]


def test_a_forged_event_is_found_and_told_until_a_whole_pass_finds_it_mended(
    runtime: Runtime, stories: list[UUID], dba: Dba
) -> None:
    forge(dba, stories[3])
    assert swept(runtime) == 1
    assert gauge(runtime, "interlock_audit_problems") == 1
    told = finding(runtime)
    assert (told.level, told.cure) == ("fail", "interlock playbook show audit-finding")
    assert f"first {stories[3]}, event 2: changed" in told.message
    with unprotected(dba, "workflow_transitions"):
        dba.execute("UPDATE workflow_transitions SET severity = 'info'")
    assert gauge(runtime, "interlock_audit_problems") == 1
    a_day_passes(dba)
    assert swept(runtime) == 0
    assert (gauge(runtime, "interlock_audit_problems"), finding(runtime).level) == (0, "ok")


@pytest.mark.parametrize("instances", [1, 2, 3, 5, 500])
def test_in_parts_of_any_size_it_finds_what_a_verification_as_a_whole_finds(
    runtime: Runtime, stories: list[UUID], dba: Dba, monkeypatch: pytest.MonkeyPatch, instances: int
) -> None:
    forge(dba, stories[0])
    forge(dba, stories[2], seq=1)
    with unprotected(dba, "workflow_instances", "definition_transitions"):
        for gone in (stories[1], stories[4]):  # in the middle, and after the last
            dba.execute("DELETE FROM workflow_instances WHERE id = %s", (gone,))
        dba.execute("UPDATE definition_transitions SET by = '{anyone}' WHERE (type, trigger) = ('approval', 'expire')")
    monkeypatch.setattr(verification, "INSTANCES", instances)
    whole = audit.verify(runtime.database)
    assert swept(runtime) == whole.found == 7
    assert passes(dba) == [(True, whole.instances, whole.transitions, whole.found)]
    (found,) = dba.execute("SELECT found FROM verifications").fetchone() or ()
    listed = {(each["instance"], each["seq"], each["message"]) for each in found}
    assert listed == {(each.instance, each.seq, each.message) for each in whole.problems}


def test_a_pass_goes_on_where_it_was_interrupted(
    runtime: Runtime, stories: list[UUID], dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "INSTANCES", 2)
    monkeypatch.setattr(verification, "VERIFY_SECONDS", 0.0)
    read: Callable[..., Any] = verification.verify_next
    seen: list[UUID | None] = []

    def next_two(connection: Any, after: UUID | None, *, limit: int) -> Any:
        seen.append(after)
        return read(connection, after, limit=limit)

    monkeypatch.setattr(verification, "verify_next", next_two)
    clock = iter([0.0, -1.0, 1.0] * 3)  # each run has time for one part
    monkeypatch.setattr(verification, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert [swept(runtime) for _ in range(3)] == [0, 0, 0]
    assert seen == [None, stories[1], stories[3]]
    assert passes(dba) == [(True, 5, 10, 0)]


CUT = """
DELETE FROM workflow_transitions WHERE (workflow_id, seq) = (%(id)s, 2);
UPDATE workflow_instances i SET (current_state, version) = (t.to_state, 1)
  FROM workflow_transitions t WHERE i.id = %(id)s AND (t.workflow_id, t.seq) = (i.id, 1)"""


@pytest.mark.parametrize("instances", [1, 500])
def test_a_chain_that_was_cut_and_mended_is_found_by_what_an_anchor_recorded(
    runtime: Runtime, stories: list[UUID], dba: Dba, monkeypatch: pytest.MonkeyPatch, instances: int
) -> None:
    monkeypatch.setattr(verification, "INSTANCES", instances)
    anchors.anchor(runtime)
    assert swept(runtime) == 0
    a_day_passes(dba)
    with unprotected(dba), dba.transaction():
        for statement in CUT.split(";"):
            dba.execute(statement, {"id": stories[3]})
    assert swept(runtime) > 0
    (found,) = [
        each
        for (each,) in dba.execute("SELECT jsonb_array_elements(found) FROM verifications").fetchall()
        if "anchor" in each["message"]
    ]
    assert (found["instance"], found["message"]) == (str(stories[3]), "cut: anchor 1 saw event 2, which is gone")


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("UPDATE anchors SET proof = replace(proof, 'index', 'indexx') WHERE number = 2", "anchor 2"),
        ("UPDATE anchors SET record = replace(record, '\"number\": 2', '\"number\": 9') WHERE number = 2", "anchor 2"),
        ("DELETE FROM anchors WHERE number = 2", "anchor 2 is missing"),
        ("DELETE FROM anchor_heads WHERE number = 3", "its heads are not those that were signed"),
        ("UPDATE anchors SET proof = (SELECT proof FROM anchors WHERE number = 1) WHERE number = 3", "anchor 3"),
    ],
)
def test_a_changed_anchor_is_found(client: Client, stories: list[UUID], dba: Dba, tampering: str, found: str) -> None:
    for story in stories[:3]:
        applied(client, story, "block")
        anchors.anchor(client.runtime)
    assert swept(client.runtime) == 0
    a_day_passes(dba)
    with unprotected(dba, "anchors", "anchor_heads"), dba.transaction():
        dba.execute("SET LOCAL session_replication_role = replica")  # the foreign key
        assert dba.execute(tampering).rowcount > 0
    assert swept(client.runtime) > 0
    everything = "SELECT string_agg(found::text, ' ') FROM verifications"
    assert found in str(dba.execute(everything).fetchone())
    assert finding(client.runtime).level == "fail"


def test_without_a_key_the_journal_is_compared_and_anchors_are_not(
    runtime: Runtime, client: Client, stories: list[UUID], dba: Dba
) -> None:
    anchors.anchor(runtime)
    sweeps.SWEEPS["relay"](runtime)
    with unprotected(dba, "anchors"):
        dba.execute("UPDATE anchors SET proof = '' WHERE number = 1")
    shutil.rmtree(runtime.settings.signing_directory)
    assert swept(runtime) == 0
    assert passes(dba) == [(True, 5, 10, 0)]
    a_day_passes(dba)
    active = runtime.settings.state_directory / ACTIVE
    active.write_text("".join(active.read_text().splitlines(keepends=True)[1:]))
    assert swept(runtime) == 1


def test_a_pass_ends_once_both_are_done_and_problems_stay_until_all_is_whole(
    runtime: Runtime, stories: list[UUID], dba: Dba
) -> None:
    sweeps.SWEEPS["relay"](runtime)
    assert sweeps.SWEEPS["evidence"](runtime) == 0  # no pass has begun
    sweeps.SWEEPS["verify"](runtime)
    assert passes(dba) == [(False, 5, 10, 0)]
    sweeps.SWEEPS["evidence"](runtime)
    assert passes(dba) == [(True, 5, 10, 0)]
    active = runtime.settings.state_directory / ACTIVE
    whole = active.read_text()
    active.write_text("".join(whole.splitlines(keepends=True)[1:]))
    for days in range(1, 3):
        a_day_passes(dba)
        sweeps.SWEEPS["verify"](runtime)
        assert gauge(runtime, "interlock_audit_problems") == (0 if days == 1 else 1)
        assert sweeps.SWEEPS["evidence"](runtime) == 1
        assert gauge(runtime, "interlock_audit_problems") == 1
    active.write_text(whole)
    a_day_passes(dba)
    assert swept(runtime) == 0
    assert (gauge(runtime, "interlock_audit_problems"), finding(runtime).level) == (0, "ok")


def test_two_comparisons_do_not_run_beside_each_other(
    runtime: Runtime, make_runtime: Callable[..., Runtime], stories: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps.SWEEPS["verify"](runtime)
    beside: list[int] = []
    compare: Callable[..., None] = evidence.compare
    anchors.anchor(runtime)

    def comparing(*given: Any, **named: Any) -> None:
        beside.append(verification.compare_evidence(make_runtime()))
        compare(*given, **named)

    monkeypatch.setattr(evidence, "compare", comparing)
    assert sweeps.SWEEPS["evidence"](runtime) == 0
    assert beside == [0]


def test_it_can_be_left_to_be_asked_for(make_runtime: Callable[..., Runtime], stories: list[UUID], dba: Dba) -> None:
    runtime = make_runtime(verify_seconds=0)
    assert swept(runtime) == 0
    assert passes(dba) == []
    assert "on request only" in finding(runtime).message


def test_a_late_verification_is_a_warning(runtime: Runtime, stories: list[UUID], dba: Dba) -> None:
    swept(runtime)
    dba.execute("UPDATE verifications SET started_at = started_at - interval '3 days'")
    assert finding(runtime).level == "warn"


def test_the_age_of_the_newest_anchor_counts_from_it_once_there_are_events_since(
    runtime: Runtime, stories: list[UUID], client: Client, dba: Dba
) -> None:
    sweeps.SWEEPS["anchor"](runtime)
    with unprotected(dba, "anchors"):
        dba.execute("UPDATE anchors SET made_at = made_at + interval '1 second'")
    assert gauge(runtime, "interlock_anchor_age_seconds") == 0
    with unprotected(dba, "anchors"):
        dba.execute("UPDATE anchors SET made_at = made_at - interval '1 hour'")
    applied(client, stories[0], "block")
    assert gauge(runtime, "interlock_anchor_age_seconds") > 3_500


def test_each_reader_of_a_snapshot_begins_once(runtime: Runtime, stories: list[UUID]) -> None:
    """PostgreSQL warns of a second BEGIN, and each such warning is a line in its log."""
    warnings: list[str | None] = []

    @event.listens_for(runtime.database, "checkout")
    def listen(session: "psycopg.Connection[Any]", *_: object) -> None:
        session.add_notice_handler(lambda notice: warnings.append(notice.message_primary))

    with Snapshot(runtime.database) as snapshot:
        for each in (snapshot.connection(), snapshot.connection()):
            assert each.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
            assert each.execute("SHOW transaction_read_only").fetchone() == ("on",)
        assert len(list(snapshot.rows("SELECT id FROM interlock.workflow_transitions"))) == 2 * len(stories)
    assert audit.verify(runtime.database).ok
    assert warnings == []


def test_no_session_keeps_what_it_read_of_the_whole_schema(runtime: Runtime, dba: Dba) -> None:
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    with transaction(runtime.database) as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        schema_state.present(connection)
        assert connection.exec_driver_sql(sessions, (pid,)).scalar_one() == 1
    eventually(lambda: dba.execute(sessions, (pid,)).fetchone() == (0,))
