"""History from before JSON had bounds: it is verified, carried, exported and shown, whatever it holds."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.beat.schedule import SCHEDULE
from interlock.db.audit.rebuild import rebuild
from interlock.workers.audit import exports, log_validation, report_check, reports, signing_keys
from interlock.workers.audit.reports import Wanted
from interlock.workers.audit.verify import verify
from interlock.workers.client.client import Client
from interlock.workers.operations.doctor import examine
from interlock.workers.relay.destinations import destinations
from interlock.workers.relay.journal import files
from interlock.workers.relay.relay import relay
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import catalogue
from interlock.workflows.input.json_text import printed, read
from tests.driving import applied, state, swept
from tests.hostile import JSON, unbound
from tests.stuck import terminal

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


@pytest.fixture
def told(client: Client, project: str, dba: Dba) -> dict[str, UUID]:
    """By what is wrong with its first event, a story; PostgreSQL had kept it."""
    stories = {name: client.create("story", f"S-{name}", project=project)["id"] for name in JSON}
    with unbound(dba):
        for name, story in stories.items():
            client.fire(story, "design_complete", by="mallory", request_id=name)
            with dba.transaction():
                dba.execute(
                    "INSERT INTO workflow_transitions (id, workflow_id, seq, workflow_type, definition_version,"
                    " from_state, to_state, trigger, triggered_by, request_id, authority, login, metadata)"
                    " SELECT %s, workflow_id, 1, 'story', '1.0.0', 'analysis', 'design', trigger, triggered_by,"
                    " request_id, authority, login, jsonb_build_object('a', %s::jsonb)"
                    " FROM trigger_requests WHERE request_id = %s",
                    (event := uuid7(), JSON[name], name),
                )
                dba.execute(
                    "UPDATE trigger_requests SET status = 'applied', finished_at = now(), result = jsonb_build_object("
                    "'event_id', %s::text, 'seq', 1, 'from', 'analysis', 'to', 'design') WHERE request_id = %s",
                    (event, name),
                )
                dba.execute(
                    "UPDATE workflow_instances SET current_state = 'design', version = 1 WHERE id = %s", (story,)
                )
    return stories


def test_it_is_verified_with_its_journal_its_exports_and_a_rebuild(
    runtime: Runtime, client: Client, told: dict[str, UUID]
) -> None:
    for _ in range(2):  # the second goes on behind the deepest line
        relay(runtime.database, destinations(runtime))
        for story in told.values():
            applied(client, story, "start_coding" if state(client, story) == "design" else "submit_pr")
    assert exports.export(runtime)
    verdict = verify(runtime, every_line=True)
    assert verdict.problems == []
    assert verdict.transitions == 3 * len(told)
    assert rebuild(runtime.owned).differences == []
    journal = files(runtime.settings.state_directory)
    (exported,) = (runtime.settings.audit_directory / "exports").iterdir()
    for log in (journal, [exported]):
        *findings, events = log_validation.validate(log, catalogue())
        assert findings == []
        assert events == 2 * len(told) if log is journal else 3 * len(told)


def test_nothing_that_looks_at_it_ends(runtime: Runtime, client: Client, told: dict[str, UUID]) -> None:
    for sweep in SCHEDULE:
        swept(runtime, sweep.name)
    assert not [
        each for each in examine(runtime) if each.check in ("invariants", "relay", "partitions") and each.level != "ok"
    ]
    here = terminal(runtime)
    for story in told.values():
        assert here.ok("show", str(story))["current_state"] == "design"
        (event,) = here.ok("history", str(story))
        assert "unreadable" in event["metadata"]


@pytest.mark.parametrize("name", JSON)
def test_a_log_that_was_tampered_with_is_a_finding_whatever_its_depth(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log.jsonl"
    event = {"timestamp": "2026-01-01T00:00:00Z", "event_type": "story_state_transition", "severity": "info"}
    event |= {"entity_id": "S-1", "from_state": "analysis", "to_state": "design", "hash": "0" * 64}
    line = json.dumps(event)[:-1]
    log.write_text(
        f'{line}, "metadata": {{"reason": {JSON[name]}}}, "reason": 1}}\n'
        f'{line}, "metadata": {{}}, "reason": {JSON[name]}, "context": {JSON[name]}, "severity": {JSON[name]}}}\n'
        + "[" * 200_000 + "\n"
    )  # fmt: skip
    *findings, _ = log_validation.validate([log], catalogue())
    assert {each.line for each in findings if not isinstance(each, int)} == {1, 2, 3}
    assert all(len(each.message) < 400 for each in findings if not isinstance(each, int))


def test_what_is_read_is_printed_as_it_was() -> None:
    for text in JSON.values():
        if "e" not in text:
            assert printed(read(text)) == text.replace('":', '": ')


def test_it_is_reported_and_the_report_proves_itself(runtime: Runtime, told: dict[str, UUID], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    for story in told.values():
        made = reports.make_report(runtime, Wanted(story))
        file.write_text(made.page)
        keys = signing_keys.trusted_keys(runtime.settings.signing_directory)
        assert report_check.check(report_check.text_of(file), keys, catalogue()).findings == ()
        assert len(made.report.moves) == 1
