"""The journal, exports and history have the same events: what only one of them has is found, and located."""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.db.audit.commit_order import Placed
from interlock.db.audit.verify import Verdict
from interlock.workers import sweeps
from interlock.workers.audit import anchors, exports, journal_checks, log_comparison
from interlock.workers.audit.log_comparison import Log, LogLine
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.relay.journal import ACTIVE, files
from interlock.workers.runtime import Runtime
from interlock.workers.system import write_once
from tests.driving import UP_TO_REVIEW, applied
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def parted(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A journal in parts of a few lines."""
    return make_runtime(journal_bytes=3_000)


@pytest.fixture
def stories(parted: Runtime, project: str) -> list[UUID]:
    """Three that have moved in turns, all in the journal."""
    client = Client(parted)
    made = [client.create("story", f"S-{number}", project=project)["id"] for number in range(3)]
    for each in made:
        applied(client, each, *UP_TO_REVIEW, "block", "unblock")
    sweeps.SWEEPS["relay"](parted)
    return made


def found(runtime: Runtime) -> list[tuple[str, int | None, str]]:
    return [(each.instance, each.seq, each.message) for each in verify(runtime, every_line=True).problems]


def said(runtime: Runtime) -> list[str]:
    return verify(runtime, every_line=True).not_compared


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def write(path: Path, content: list[str]) -> None:
    path.chmod(0o640)
    path.write_text("".join(content))


def move(dba: Dba, story: UUID) -> None:
    """Move a story's last event behind all others in commit order, which no hash covers."""
    with unprotected(dba, "workflow_transitions"):
        dba.execute(
            "UPDATE workflow_transitions SET xid = (xid::text::bigint + 100000)::text::xid8"
            " WHERE workflow_id = %s AND seq = 5",
            (story,),
        )


def named(line: str) -> tuple[str, int]:
    context = json.loads(line)["context"]
    return context["workflow_id"], context["seq"]


def test_the_first_line_of_an_entity_deleted_is_located(parted: Runtime, stories: list[UUID]) -> None:
    journal = files(parted.settings.state_directory)
    for path in journal:
        for number, line in enumerate(lines(path)):
            if named(line) == (str(stories[1]), 1):
                write(path, lines(path)[:number] + lines(path)[number + 1 :])
    ((instance, seq, message),) = found(parted)
    assert (instance, seq) == (str(stories[1]), 1)
    assert message.startswith("not in the journal: this event (before ")


def test_the_first_line_of_all_deleted_is_located(parted: Runtime, stories: list[UUID]) -> None:
    first = files(parted.settings.state_directory)[0]
    write(first, lines(first)[1:])
    ((instance, seq, message),) = found(parted)
    assert (instance, seq) == (str(stories[0]), 1)
    assert f"(before {first}:1)" in message


def test_a_part_deleted_is_located_and_the_oldest_moved_elsewhere_are_said(
    parted: Runtime, stories: list[UUID], tmp_path: Path
) -> None:
    journal = files(parted.settings.state_directory)
    assert len(journal) >= 4
    gone = [named(line) for line in lines(journal[1])]
    journal[1].rename(tmp_path / journal[1].name)
    gap, missing = found(parted)
    assert gap == (
        str(journal[2]),
        None,
        "gap: part 2 is missing before it; only the oldest parts may be moved elsewhere",
    )
    assert missing[:2] == gone[0]
    assert f"and {len(gone) - 1} events after it" in missing[2]
    assert f"(before {journal[2]}:1)" in missing[2]
    journal[0].rename(tmp_path / journal[0].name)
    assert found(parted) == []
    assert f"the journal before {journal[2].name}: parts up to 2 are elsewhere" in said(parted)


def test_a_line_added_is_located(parted: Runtime, stories: list[UUID]) -> None:
    path = files(parted.settings.state_directory)[0]
    content = lines(path)
    event = json.loads(content[1])
    event["context"]["position"] = json.loads(content[0])["context"]["position"] + 1
    event["context"]["xid"] = json.loads(content[0])["context"]["xid"]
    event["context"]["seq"] = 99
    write(path, [content[0], json.dumps(event) + "\n", *content[1:]])
    assert {(where, seq) for where, seq, _ in found(parted)} == {(f"{path}:2", None), (str(stories[0]), 99)}
    write(path, [content[0], content[0], *content[1:]])
    assert found(parted) == [
        (f"{path}:2", None, "out of order: a line before it has this place in commit order, or a later one")
    ]


def test_two_lines_swapped_are_located(parted: Runtime, stories: list[UUID]) -> None:
    path = files(parted.settings.state_directory)[1]
    first, second, *rest = lines(path)
    write(path, [second, first, *rest])
    problems = found(parted)
    assert [(where, seq) for where, seq, _ in problems] == [named(first), (f"{path}:2", None)]


def test_an_event_moved_in_commit_order_is_located(parted: Runtime, stories: list[UUID], dba: Dba) -> None:
    anchors.anchor(parted)
    move(dba, stories[1])
    messages = [(where, seq, message.split()[0]) for where, seq, message in found(parted)]
    assert (str(stories[1]), 5, "moved:") in messages
    assert {(where, seq) for where, seq, _ in messages} == {(str(stories[1]), 5)}


def test_what_is_not_written_yet_is_said_and_no_problem(parted: Runtime, stories: list[UUID]) -> None:
    applied(Client(parted), stories[0], "block", "unblock")
    assert found(parted) == []
    assert said(parted) == ["the journal: 2 events are not written to it yet"]
    shutil.rmtree(parted.settings.state_directory)
    assert found(parted) == []
    assert said(parted) == [f"the journal: there is none in {parted.settings.state_directory}"]


def test_only_the_parts_that_no_anchor_covers_are_read_by_default(
    parted: Runtime, stories: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    anchors.anchor(parted)
    *parts, active = files(parted.settings.state_directory)
    write(parts[0], lines(parts[0])[1:])
    monkeypatch.setattr(journal_checks, "MARGIN", timedelta(hours=-1))  # as if the anchor were made after that
    verdict = verify(parted)
    assert verdict.ok
    (said,) = verdict.not_compared
    assert said.startswith(f"the journal up to {parts[-1].name}: not changed since ")
    write(active, lines(active)[1:])
    assert active.name == ACTIVE
    assert not verify(parted).ok


def test_a_part_set_aside_while_it_is_read_is_read_once(parted: Runtime, stories: list[UUID]) -> None:
    directory = parted.settings.state_directory
    with ExitStack() as opened:
        before = journal_checks._files(opened, directory)
        (directory / ACTIVE).rename(directory / "transitions.000099.2026-01-01.jsonl")
        verdict = Verdict()
        read = [each.event.seq for each in journal_checks._lines(verdict, before, 0)]
    assert len(read) == 15
    assert verdict.ok


class Stub:
    """A snapshot whose events are given."""

    def __init__(self, events: list[Placed]) -> None:
        self._events = events

    def rows(self, _: str, after: tuple[str, int]) -> Any:
        begun = int(after[0]), after[1]
        return iter([(*each.place, *each[1:]) for each in self._events if each.place > begun])


def placed(number: int) -> Placed:
    return Placed((7, number), UUID(int=number), 1, bytes([number]) * 32)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)))
def test_whatever_only_one_of_them_has_is_a_problem(runtime: Runtime, told: set[int], have: set[int]) -> None:
    verdict = Verdict()
    written = [LogLine(placed(number), f"f:{number}") for number in sorted(told)]
    log = Log("the log", written, upto=(7, 12))
    stub: Any = Stub([placed(number) for number in sorted(have)])
    assert log_comparison.compare(runtime.database, stub, verdict, log) == 0
    lost = {each.instance for each in verdict.problems if each.message.startswith("cut: the log saw event 1")}
    assert lost == {str(UUID(int=number)) for number in told - have}  # the real database has none of them
    lacking = [each for each in verdict.problems if each.message.startswith("not in the log")]
    counted = sum(1 + int([*each.message.split(", and "), "0"][1].split()[0]) for each in lacking)
    assert counted == len(have - told)
    assert {each.instance for each in lacking} <= {str(UUID(int=number)) for number in have - told}


def export(runtime: Runtime) -> Path:
    one = exports.export(runtime)
    assert one is not None
    return one.directory


def test_an_export_deleted_is_located(parted: Runtime, stories: list[UUID]) -> None:
    first = export(parted)
    applied(Client(parted), stories[0], "block")
    export(parted)
    assert found(parted) == []
    first.chmod(0o750)
    shutil.rmtree(first)
    assert [where for where, _, _ in found(parted)] == ["export 1"]
    shutil.rmtree(parted.settings.audit_directory)
    assert [where for where, _, _ in found(parted)] == []
    assert f"2 exports: {parted.settings.audit_directory} is not on this machine" in said(parted)


def test_an_event_that_no_export_has_is_located(
    parted: Runtime, stories: list[UUID], dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(parted)
    anchors.anchor(parted)
    move(dba, stories[1])
    shutil.rmtree(parted.settings.state_directory)
    messages = [(where, seq, message.split(":")[0]) for where, seq, message in found(parted)]
    assert (str(stories[1]), 5, "moved") in messages
    monkeypatch.setattr("interlock.workers.audit.export_checks._is_new", lambda *_: False)
    ((where, message),) = [(each.instance, each.message) for each in verify(parted).problems]
    assert where == "export 1"
    assert message.startswith("has 15 events, where history has 14")


def test_the_cursor_moved_past_an_event_is_located(parted: Runtime, stories: list[UUID], dba: Dba) -> None:
    export(parted)
    applied(Client(parted), stories[0], "block")
    dba.execute(
        "UPDATE relay_cursors c SET xid = t.xid, position = t.position FROM (SELECT xid, position"
        " FROM workflow_transitions ORDER BY xid DESC, position DESC LIMIT 1) t WHERE name = 'export'"
    )
    ((where, _, message),) = found(parted)
    assert where == "cursor export"
    assert "in no export" in message
    applied(Client(parted), stories[0], "unblock")
    export(parted)
    assert ("export 2", "does not begin where export 1 ends") in {
        (where, message) for where, _, message in found(parted)
    }


def test_an_export_removed_with_its_record_and_cursor_is_named_by_an_anchor(
    parted: Runtime, stories: list[UUID], dba: Dba
) -> None:
    one = export(parted)
    applied(Client(parted), stories[0], "block")
    anchors.anchor(parted)
    one.chmod(0o750)
    shutil.rmtree(one)
    with unprotected(dba, "audit_exports", "relay_cursors"):
        dba.execute("DELETE FROM audit_exports")
        dba.execute("UPDATE relay_cursors SET xid = '0', position = 0 WHERE name = 'export'")
    assert found(parted) == [("export 1", None, "anchor 2 names it, and the database has no such export")]


def test_an_export_rewritten_with_its_record_is_not_signed(parted: Runtime, stories: list[UUID], dba: Dba) -> None:
    one = export(parted)
    manifest = one / exports.MANIFEST
    for path in (one, manifest):
        path.chmod(0o750)
    manifest.write_text(manifest.read_text().replace('"events": 15', '"events": 14'))
    with unprotected(dba, "audit_exports"):
        dba.execute("UPDATE audit_exports SET manifest = %s", (write_once.sha256_of(manifest),))
    assert found(parted) == [(str(manifest), None, "changed: its signature is not that of its content")]
