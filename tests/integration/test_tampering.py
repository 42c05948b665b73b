"""History tampered with as a DBA would, triggers switched off: the audit names the instance and the event each time."""

import gzip
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from interlock.beat.sweeps import prune
from interlock.db.audit import schema_state
from interlock.db.audit import verify as audit
from interlock.db.connection import transaction
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers import sweeps
from interlock.workers.audit import anchors, exports, journal_checks, signing_keys
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.relay.journal import ACTIVE, files
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.audit.checkpoints import parsed_checkpoint, parsed_note
from interlock.workflows.errors import BadInput
from interlock.workflows.versioning.export import canonical_checksum
from tests import databases
from tests.doctoring import examined
from tests.driving import UP_TO_REVIEW, applied
from tests.tampering import cut_tail, erase, forge, unprotected
from tests.waiting import eventually

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
MOVES = (*UP_TO_REVIEW, "block", "unblock", "submit_pr")


@dataclass(frozen=True)
class Written:
    """Stories in a database to copy, and in another one with an anchor, whose files are in a home to copy."""

    stories: list[UUID]
    database: str
    anchored: str
    home: Path


@pytest.fixture(scope="module")
def written(servers: Servers, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Written once: a copy costs a sixth of writing it anew."""
    home = tmp_path_factory.mktemp("written") / "home"
    with (
        databases.written(servers, template, _moved, home) as (plain, stories),
        databases.written(servers, plain, lambda client: anchors.anchor(client.runtime), home) as (anchored, heads),
    ):
        assert heads == 4
        yield Written(stories, plain, anchored, home)


def _moved(client: Client) -> list[UUID]:
    births = [client.birth("story", f"S-{number}") for number in range(4)]
    client.create_many(births)
    for birth in births[:3]:
        applied(client, birth.id, *MOVES)
    return [birth.id for birth in births]


@pytest.fixture
def database_to_copy(request: pytest.FixtureRequest, database_to_copy: str, written: Written) -> str:
    if "anchored" in request.fixturenames:
        return written.anchored
    return written.database if "stories" in request.fixturenames else database_to_copy


@pytest.fixture
def stories(written: Written) -> list[UUID]:
    """Three that have moved alike, and one that was only born."""
    return written.stories


@pytest.fixture
def anchored(settings: Settings, stories: list[UUID], written: Written) -> list[UUID]:
    """The stories, with an anchor."""
    shutil.copytree(written.home, settings.home)
    return stories


def found(runtime: Runtime, **how: Any) -> set[tuple[str, int | None, str]]:
    """What a verification finds: where, and the first word of what."""
    verdict = verify(runtime, **how)
    assert verdict.found == len(verdict.problems)
    assert verdict.ok == (not verdict.problems)
    return {(each.instance, each.seq, each.message.split()[0].rstrip(":")) for each in verdict.problems}


def chains(runtime: Runtime) -> bool:
    """Whether the chains are whole in themselves."""
    return audit.verify(runtime.database).ok


def test_what_nobody_touched_is_as_it_was_written(runtime: Runtime, anchored: list[UUID], client: Client) -> None:
    applied(client, anchored[1], "block")
    assert anchors.anchor(runtime) == 1
    assert anchors.anchor(runtime) == 0
    verdict = verify(runtime)
    assert (verdict.ok, verdict.instances, verdict.transitions, verdict.anchors) == (True, 4, 19, 2)


def test_replication_mode_alone_switches_no_protection_off(anchored: list[UUID], dba: Dba) -> None:
    dba.execute("SET session_replication_role = replica")
    for statement in (
        "UPDATE workflow_transitions SET severity = 'error'",
        "DELETE FROM anchors",
        "UPDATE anchor_heads SET seq = 0",
        "TRUNCATE anchors CASCADE",
    ):
        with pytest.raises(psycopg.errors.RestrictViolation):
            dba.execute(statement)


def test_one_byte_changed(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    changes = {
        (anchored[1], 1): "triggered_by = 'agent-2'",
        (anchored[1], 2): "triggered_by = NULL",
        (anchored[1], 3): "severity = 'warning'",
        (anchored[1], 4): "request_id = request_id || ' '",
        (anchored[1], 5): "metadata = '{\"a\": 1}'",
        (anchored[1], 6): "created_at = created_at + interval '1 microsecond'",
        (anchored[2], 2): "id = gen_random_uuid()",
        (anchored[2], 5): "hash = set_byte(hash, 31, get_byte(hash, 31) # 1)",
    }
    with unprotected(dba, "workflow_transitions"):
        for event, change in changes.items():
            dba.execute(f"UPDATE workflow_transitions SET {change} WHERE (workflow_id, seq) = (%s, %s)", event)
    says = found(runtime)
    assert {(where, seq) for where, seq, what in says if what == "changed"} == {(str(id_), seq) for id_, seq in changes}
    assert {where for where, _, _ in says} == {str(anchored[1]), str(anchored[2])}


@pytest.mark.parametrize("change", ["entity_id = entity_id || '9'", "created_by = 'x'", "project = gen_random_uuid()"])
def test_a_birth_changed(runtime: Runtime, anchored: list[UUID], dba: Dba, change: str) -> None:
    with unprotected(dba, "workflow_instances"):
        dba.execute(f"UPDATE workflow_instances SET {change} WHERE id = ANY(%s)", ([anchored[1], anchored[3]],))
    assert found(runtime) == {(str(anchored[1]), 1, "chain"), (str(anchored[3]), 0, "forged")}


def test_a_row_removed_in_the_middle(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    with unprotected(dba, "workflow_transitions"):
        dba.execute("DELETE FROM workflow_transitions WHERE workflow_id = %s AND seq = 3", (anchored[1],))
    assert (str(anchored[1]), 4, "gap") in found(runtime)


def test_one_instance_is_verified_by_itself(client: Client, anchored: list[UUID], dba: Dba) -> None:
    with unprotected(dba, "workflow_transitions", "workflow_instances"):
        dba.execute(
            "UPDATE workflow_transitions SET severity = 'error' WHERE workflow_id = %s AND seq = 3", (anchored[1],)
        )
        dba.execute("UPDATE workflow_instances SET current_state = 'done' WHERE id = %s", (anchored[2],))
    assert [(each.seq, each.message.split()[0]) for each in client.verify(anchored[1])] == [(3, "changed:")]
    assert [(each.seq, each.message.split()[0]) for each in client.verify(anchored[2])] == [(None, "stands")]
    assert [client.verify(each) for each in (anchored[0], anchored[3])] == [(), ()]


def test_two_rows_swapped(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    with unprotected(dba, "workflow_transitions"):
        for was, becomes in ((2, -1), (3, 2), (-1, 3)):
            dba.execute(
                "UPDATE workflow_transitions SET seq = %s WHERE workflow_id = %s AND seq = %s",
                (becomes, anchored[1], was),
            )
    says = found(runtime)
    assert {(str(anchored[1]), 2, "chain"), (str(anchored[1]), 2, "changed"), (str(anchored[1]), 3, "chain")} <= says


def test_rows_of_two_instances_swapped(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    with unprotected(dba, "workflow_transitions"):
        for was, becomes, seq, target in (
            (anchored[0], anchored[1], 2, -2),
            (anchored[1], anchored[0], 2, 2),
            (anchored[1], anchored[1], -2, 2),
        ):
            dba.execute(
                "UPDATE workflow_transitions SET workflow_id = %s, seq = %s WHERE workflow_id = %s AND seq = %s",
                (becomes, target, was, seq),
            )
    says = found(runtime)
    assert {(str(anchored[0]), 2, "chain"), (str(anchored[1]), 2, "chain")} <= says


def test_the_tail_cut_with_its_state_is_seen_by_the_anchor_alone(
    runtime: Runtime, anchored: list[UUID], dba: Dba
) -> None:
    cut_tail(dba, anchored[1], keep=4)
    assert chains(runtime)
    assert found(runtime) >= {(str(anchored[1]), 6, "cut")}


def test_a_tail_cut_before_the_sweep_came_round_is_seen_by_the_journal_alone(
    runtime: Runtime, stories: list[UUID], dba: Dba
) -> None:
    sweeps.SWEEPS["relay"](runtime)
    cut_tail(dba, stories[1], keep=4)
    assert found(runtime, every_line=False) == set()
    assert found(runtime) == {(str(stories[1]), 5, "cut"), (str(stories[1]), 6, "cut")}


def test_a_request_is_missed_until_its_keeping_time_is_over(
    runtime: Runtime, stories: list[UUID], client: Client, dba: Dba
) -> None:
    dba.execute(
        "UPDATE trigger_requests SET finished_at = finished_at - interval '1 hour' WHERE finished_at IS NOT NULL"
    )
    with transaction(runtime.database) as connection:
        assert prune(connection, keep_days=1 / 48) > 0
    assert chains(runtime)
    applied(client, stories[1], "block")
    with unprotected(dba, "trigger_requests"):
        dba.execute("DELETE FROM trigger_requests WHERE workflow_id = %s", (stories[1],))
    assert [(each.seq, each.message.split(":")[1]) for each in audit.verify(runtime.database).problems] == [
        (None, " event 7 was asked for by it")
    ]


@pytest.fixture
def in_parts(make_runtime: Callable[..., Runtime], stories: list[UUID], monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The stories anchored, and the journal with each event in a part of its own, old from the start."""
    runtime = make_runtime(journal_bytes=1)
    sweeps.SWEEPS["relay"](runtime)
    anchors.anchor(runtime)
    monkeypatch.setattr(journal_checks, "MARGIN", timedelta(0))
    return runtime


def test_what_an_anchor_has_seen_is_not_looked_up_in_old_parts_of_the_journal_again(
    in_parts: Runtime, stories: list[UUID], dba: Dba
) -> None:
    forge(dba, stories[1], 3, "triggered_by", "mallory")
    assert (str(stories[1]), 3, "forged") not in found(in_parts)
    assert (str(stories[1]), 3, "forged") in found(in_parts, every_line=True)


def test_an_old_part_of_the_journal_that_was_changed_is_read_whatever_time_it_is_given(
    in_parts: Runtime, stories: list[UUID], dba: Dba
) -> None:
    ((made_at,),) = dba.execute("SELECT made_at FROM anchors").fetchall()
    eventually(lambda: datetime.now(UTC) > made_at + timedelta(seconds=0.1))  # a file's time lags by some ms
    path = files(in_parts.settings.state_directory)[0]
    was = path.stat()
    path.chmod(0o640)
    path.write_text(path.read_text().replace("agent-1", "agent-2"))
    path.chmod(was.st_mode)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert found(in_parts) == {(f"{path}:1", None, "changed")}


def test_a_line_of_the_journal_changed_shows_and_one_half_written_does_not(
    runtime: Runtime, stories: list[UUID]
) -> None:
    sweeps.SWEEPS["relay"](runtime)
    path = runtime.settings.state_directory / ACTIVE
    text = path.read_text()
    path.write_text(text + text.splitlines()[-1][:40])
    assert found(runtime) == set()
    path.write_text(text.replace('"triggered_by": "agent-1"', '"triggered_by": "agent-2"', 1))
    assert found(runtime) == {(f"{path}:1", None, "changed")}
    path.write_text("[" * 100_000 + "\n" + '{"context": {"seq": 1e99999999999999999999}}' + "\n")
    assert found(runtime) == {
        (f"{path}:1", None, "no"),
        (f"{path}:2", None, "no"),
    }  # and what follows is not written yet


def test_a_forged_row_with_all_hashes_after_it_computed_anew(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    sweeps.SWEEPS["relay"](runtime)
    forge(dba, anchored[1], 3, "triggered_by", "mallory")
    assert chains(runtime)
    assert found(runtime, every_line=False) == {(str(anchored[1]), 6, "forged")}
    says = found(runtime)
    assert says == {(str(anchored[1]), seq, "forged") for seq in (3, 4, 5, 6)}


def test_an_instance_erased_altogether(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    erase(dba, anchored[1])
    erase(dba, anchored[3])
    assert chains(runtime)
    assert found(runtime) == {
        (str(anchored[1]), 6, "cut"),
        (str(anchored[3]), 0, "cut"),
        ("anchor 1", None, "saw"),
    }


def test_a_new_anchor_after_the_cut_does_not_cover_it_up(
    runtime: Runtime, anchored: list[UUID], client: Client, dba: Dba
) -> None:
    cut_tail(dba, anchored[1], keep=3)
    applied(client, anchored[1], "block", "unblock", "submit_pr")  # as long as it was
    anchors.anchor(runtime)
    assert (str(anchored[1]), 6, "forged") in found(runtime)


def test_anchors_are_one_tree_that_anybody_can_follow(
    runtime: Runtime, anchored: list[UUID], client: Client, tmp_path: Path
) -> None:
    notes = [anchors.checkpoint(runtime)]
    for trigger in ("block", "unblock", "submit_pr", "block"):
        applied(client, anchored[1], trigger)
        anchors.anchor(runtime)
        notes.append(anchors.checkpoint(runtime))
    assert notes[0] is not None
    assert [parsed_checkpoint(parsed_note(each or "").text).size for each in notes] == [1, 2, 3, 4, 5]
    asked = str(anchors.checkpoint(runtime, 3))
    assert asked.startswith("old 3\n")
    assert asked.endswith(f"\n\n{notes[-1]}")
    with pytest.raises(BadInput, match="no anchor 6, the newest is 5"):
        anchors.checkpoint(runtime, 6)
    (proof,) = anchors.directory(runtime).glob("anchor-000005.tlog-proof")
    text, _, line = str(notes[-1]).partition("\n\n")
    assert proof.read_text().endswith(str(notes[-1]))
    if shutil.which("openssl") is None:
        return
    (tmp_path / "text").write_text(f"{text}\n")
    (tmp_path / "signature").write_bytes(b64decode(line.split()[2])[4:])
    (public,) = runtime.settings.signing_directory.glob("*.pub")
    command = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", str(public)]
    files = ["-in", str(tmp_path / "text"), "-sigfile", str(tmp_path / "signature")]
    assert subprocess.run([*command, *files], capture_output=True, check=False).returncode == 0


def test_a_damaged_newest_anchor_is_named_and_none_follows_it(
    runtime: Runtime, anchored: list[UUID], client: Client, dba: Dba
) -> None:
    applied(client, anchored[1], "block")
    for proof in ("replace(proof, 'index 0', 'index 5')", "'junk'"):
        with unprotected(dba, "anchors"):
            dba.execute(f"UPDATE anchors SET proof = {proof}".encode())
        with pytest.raises(anchors.AnchorFault, match="anchor 1"):
            anchors.anchor(runtime)


def test_an_anchor_taken_away_is_on_file_and_still_says_what_it_saw(
    runtime: Runtime, anchored: list[UUID], dba: Dba
) -> None:
    cut_tail(dba, anchored[1], keep=4)
    with unprotected(dba, "anchor_heads", "anchors"):
        dba.execute("DELETE FROM anchor_heads")
        dba.execute("DELETE FROM anchors")
    assert found(runtime) == {("anchor 1", None, "the"), (str(anchored[1]), 6, "cut")}


def test_heads_changed_to_fit_are_not_what_was_signed(runtime: Runtime, anchored: list[UUID], dba: Dba) -> None:
    forge(dba, anchored[1], 3, "triggered_by", "mallory")
    with unprotected(dba, "anchor_heads"):
        dba.execute(
            "UPDATE anchor_heads h SET hash = t.hash FROM workflow_transitions t"
            " WHERE t.workflow_id = h.workflow_id AND t.seq = h.seq"
        )
    assert found(runtime) == {
        ("anchor 1", None, "changed"),
        ("anchor 1", None, "the"),
        (str(anchored[1]), 6, "forged"),
    }
    shutil.rmtree(anchors.directory(runtime))
    assert found(runtime) == {("anchor 1", None, "changed")}


def test_a_middle_anchor_removed_breaks_their_chain(
    runtime: Runtime, anchored: list[UUID], client: Client, dba: Dba
) -> None:
    for trigger in ("block", "unblock"):
        applied(client, anchored[1], trigger)
        anchors.anchor(runtime)
    shutil.rmtree(anchors.directory(runtime))
    with unprotected(dba, "anchors"):
        dba.execute("DELETE FROM anchors WHERE number = 2")
    assert found(runtime) == {("anchor 3", None, "gap")}


def test_an_anchor_signed_by_somebody_else_is_not_believed(
    runtime: Runtime, anchored: list[UUID], tmp_path: Path
) -> None:
    ours = runtime.settings.signing_directory
    public = ours / f"{signing_keys.signer(ours, may_make=False).name}.pub"
    aside = shutil.copy(public, tmp_path / "ours.pub")
    shutil.rmtree(ours)
    assert {says for _, _, says in found(runtime)} == {"signed"}
    signing_keys.make(ours)
    assert {says for _, _, says in found(runtime)} == {"signed"}
    assert found(runtime, trusted=[Path(aside)]) == set()


def test_a_lost_signing_key_is_not_replaced_in_silence(runtime: Runtime, anchored: list[UUID], client: Client) -> None:
    (runtime.settings.signing_directory / signing_keys.SIGNING).unlink()
    applied(client, anchored[1], "block")
    with pytest.raises(signing_keys.KeyFault, match="--new"):
        anchors.anchor(runtime)
    signing_keys.make(runtime.settings.signing_directory)
    assert anchors.anchor(runtime) == 1
    assert found(runtime) == set()


@pytest.mark.parametrize("what", ["json", "tlog-proof", "heads.gz"])
def test_a_file_changed_does_not_count(runtime: Runtime, anchored: list[UUID], dba: Dba, what: str) -> None:
    (path,) = anchors.directory(runtime).glob(f"anchor-*.{what}")
    content = path.read_bytes()
    path.chmod(0o640)
    changed = content.replace(b'"heads": 4', b'"heads": 5').replace(b"\n1\n", b"\n2\n")
    path.write_bytes(gzip.compress(b"") if what == "heads.gz" else changed)
    with unprotected(dba, "anchor_heads", "anchors"):
        dba.execute("DELETE FROM anchor_heads")
        dba.execute("DELETE FROM anchors")
    assert {says for _, _, says in found(runtime)} == {"changed"}


@pytest.mark.parametrize("what", ["json", "tlog-proof", "heads.gz"])
@pytest.mark.parametrize("damage", [None, b"", b"junk\xff", b"\x1f\x8b\x08junk"])
def test_a_file_damaged_or_gone_is_a_finding_that_names_it(
    runtime: Runtime, anchored: list[UUID], what: str, damage: bytes | None
) -> None:
    (path,) = anchors.directory(runtime).glob(f"anchor-*.{what}")
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    expected = set() if (what, damage) == ("json", None) else {str(path.parent / "anchor-000001.json")}
    assert {where for where, _, _ in found(runtime)} == expected


def test_files_of_others_beside_anchors_and_exports_are_left_alone(runtime: Runtime, anchored: list[UUID]) -> None:
    (anchors.directory(runtime) / "anchor-copy.json").write_text("{}")
    other = exports.directory(runtime) / "export-old"
    other.mkdir(parents=True)
    (other / exports.MANIFEST).write_text("{}")
    assert found(runtime) == set()
    anchors.file_all(runtime)


def test_a_place_without_anchors_proves_nothing_and_is_refused(
    runtime: Runtime, anchored: list[UUID], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="holds no anchors"):
        verify(runtime, places=[tmp_path])
    assert found(runtime, places=[runtime.settings.audit_directory]) == set()


def test_an_export_that_the_database_forgot_shows(
    runtime: Runtime, anchored: list[UUID], client: Client, dba: Dba
) -> None:
    one = exports.export(runtime)
    applied(client, anchored[1], "block")
    assert one
    assert exports.export(runtime)
    with unprotected(dba, "audit_exports"):
        dba.execute("ALTER TABLE audit_exports DISABLE TRIGGER ALL")
        dba.execute("DELETE FROM audit_exports WHERE number = 1")
    expected = {str(one.directory / exports.MANIFEST), "export 1"}  # the anchor before the second names the first
    assert {where for where, _, _ in found(runtime)} == expected


def test_a_definition_rewritten_with_its_checksum_is_not_what_the_code_has(
    runtime: Runtime, anchored: list[UUID], dba: Dba
) -> None:
    ((body,),) = dba.execute("SELECT body FROM workflow_definitions WHERE (type, version) = ('story', '1.0.0')")
    body["transitions"].append({"source": "analysis", "trigger": "block", "dest": "done", "by": ["anyone"]})
    with unprotected(dba, "definition_transitions", "workflow_definitions"):
        dba.execute(
            "INSERT INTO definition_transitions VALUES ('story', '1.0.0', 'analysis', 'block', 'done', '{anyone}')"
        )
        dba.execute(
            "UPDATE workflow_definitions SET body = %s, checksum = %s WHERE (type, version) = ('story', '1.0.0')",
            (Jsonb(body), canonical_checksum(body)),
        )
    assert chains(runtime)
    assert found(runtime) == {("definition story 1.0.0", None, "differs")}


def test_anchors_copied_elsewhere_are_checked_too(
    runtime: Runtime, anchored: list[UUID], dba: Dba, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(anchors.directory(runtime), copy)
    shutil.rmtree(anchors.directory(runtime))
    cut_tail(dba, anchored[1], keep=4)
    with unprotected(dba, "anchor_heads", "anchors"):
        dba.execute("DELETE FROM anchor_heads")
        dba.execute("DELETE FROM anchors")
    assert found(runtime) == set()
    assert (str(anchored[1]), 6, "cut") in found(runtime, places=[copy])


def test_an_anchor_interrupted_before_it_was_filed_is_filed_by_the_next(
    runtime: Runtime, anchored: list[UUID], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied(client, anchored[1], "block")
    with monkeypatch.context() as patched:
        patched.setattr(anchors, "file_all", lambda _: None)
        assert anchors.anchor(runtime) == 1
    assert len(anchors.filed(anchors.directory(runtime))) == 1
    assert anchors.anchor(runtime) == 0
    assert len(anchors.filed(anchors.directory(runtime))) == 2
    assert found(runtime) == set()


def test_the_doctor_says_when_anchors_are_overdue(
    runtime: Runtime, anchored: list[UUID], client: Client, dba: Dba
) -> None:
    def finding() -> str:
        return next(each.level for each in examined(runtime, "anchors"))

    assert finding() == "ok"
    with unprotected(dba, "anchors"):
        dba.execute("UPDATE anchors SET made_at = made_at - interval '4 hours'")
    assert finding() == "warn"
    applied(client, anchored[1], "block")
    anchors.anchor(runtime)
    assert finding() == "ok"


def test_who_was_made_a_member_of_the_owner_is_named_until_a_migration_records_it(
    runtime: Runtime, anchored: list[UUID], client: Client, dba: Dba
) -> None:
    name = f"another-{token_hex(4)}"
    dba.execute(f'CREATE ROLE "{name}"; CREATE ROLE "{name}-2"')  # type: ignore[call-overload]
    try:
        dba.execute(f'GRANT interlock_owner TO "{name}"; GRANT "{name}" TO "{name}-2"')  # type: ignore[call-overload]
        dba.execute("GRANT interlock_engine TO interlock_client")
        assert found(runtime) == {
            (f'member "{name}" of interlock_owner', None, "added"),
            (f'member "{name}-2" of interlock_owner', None, "added"),
            ("member interlock_client of interlock_engine", None, "added"),
        }
        applied(client, anchored[1], "block")
        anchors.anchor(runtime)
        with transaction(runtime.owned) as connection:
            schema_state.record(connection)
        assert found(runtime) == set()
    finally:
        dba.execute("REVOKE interlock_engine FROM interlock_client")
        dba.execute(f'DROP ROLE "{name}", "{name}-2"')  # type: ignore[call-overload]


def test_the_doctor_names_each_protection_that_is_off_or_gone_and_its_cure_works(runtime: Runtime, dba: Dba) -> None:
    def finding() -> tuple[str, str, str]:
        return next((each.level, each.message, each.cure) for each in examined(runtime, "protection", by="database"))

    ((login, at),) = dba.execute("SELECT login, recorded_at AT TIME ZONE 'UTC' FROM schema_states").fetchall()
    as_recorded = f"the schema is as {login} recorded it at {at:%Y-%m-%d %H:%M} UTC (recorded 1 time so far)"
    assert finding()[:2] == ("ok", f"every protecting trigger is on, and {as_recorded}")
    dba.execute("ALTER TABLE trigger_requests DISABLE TRIGGER bounded_metadata, DISABLE TRIGGER worded")
    dba.execute("ALTER TABLE archived_records ENABLE TRIGGER kept")
    level, says, cure = finding()
    assert level == "fail"
    assert "archived_records.kept, trigger_requests.bounded_metadata, trigger_requests.worded" in says
    commands = cure.removesuffix("; then `interlock audit verify`").split("; ")
    assert commands[1] == (
        "ALTER TABLE interlock.trigger_requests ENABLE ALWAYS TRIGGER bounded_metadata, ENABLE ALWAYS TRIGGER worded"
    )
    for command in commands:
        dba.execute(command.encode())
    assert finding()[0] == "ok"
    dba.execute("CREATE INDEX mine ON schema_states (login)")
    level, says, cure = finding()
    assert (level, says) == ("fail", "the schema is not as the last migration left it: index interlock.mine")
    assert "if it was changed on purpose, interlock migrate --record" in cure
    dba.execute("DROP INDEX interlock.mine")
    dba.execute("DROP TRIGGER no_command ON workflow_instances")
    level, says, cure = finding()
    assert (level, says) == ("fail", "protecting triggers were dropped: workflow_instances.no_command")
    assert "interlock playbook show audit-finding" in cure


@pytest.mark.parametrize(
    ("named", "statement"),
    [
        (
            "story 1.0.0",
            "INSERT INTO definition_transitions VALUES ('story', '1.0.0', 'analysis', 'block', 'done', '{anyone}')",
        ),
        (
            "approval 1.0.0",
            "UPDATE definition_transitions SET by = '{anyone}' WHERE (type, trigger) = ('approval', 'expire')",
        ),
    ],
    ids=["a move more", "a right more"],
)
def test_the_moves_that_postgresql_enforces_changed(
    runtime: Runtime, anchored: list[UUID], dba: Dba, named: str, statement: str
) -> None:
    with unprotected(dba):
        dba.execute(statement)  # type: ignore[call-overload]
    assert found(runtime) == {(f"definition {named}", None, "changed")}
