"""Effects that are HTTP calls: signed as Standard Webhooks says, sent again, and their last answer kept."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workflows import effects
from interlock.workflows.effects import Endpoint
from tests.driving import drain_all, state
from tests.webhooks import Webhook as Receiver

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
NEW, OLD = ("whsec_" + base64.b64encode(each * 32).decode() for each in (b"n", b"o"))


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The directory of this node's secrets."""
    directory = tmp_path / "secrets"
    (directory / "pager").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    for name, secret in (("new", NEW), ("old", OLD)):
        (directory / "pager" / name).write_text(f"{secret}\n")
        (directory / "pager" / name).chmod(0o600)
    return directory


@pytest.fixture
def paging(knowing: Callable[..., Runtime], secrets: Path, world: Receiver, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client that knows `incident`, whose pager is `world`."""
    client = Client(knowing("tests.own_calls", secrets=secrets))
    to(monkeypatch, f"{world.url.replace('json://', 'http://')}page?team=7")
    return client


def to(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Send calls elsewhere than where the environment said when the module was imported."""
    own = effects.declared()["tests_page"]
    assert isinstance(own.act, Endpoint)
    monkeypatch.setitem(effects._DECLARED, "tests_page", replace(own, act=replace(own.act, url=url)))


def paged(client: Client) -> UUID:
    """An incident whose call is due."""
    made: UUID = client.create("incident", "I-1", context={"host": "db1 ✓"}, by="ann")["id"]
    client.fire(made, "page", by="ann", data={"severity": 2})
    drain_all(client.runtime)
    return made


def run(client: Client, ref: UUID) -> dict[str, Any]:
    """Send the call once, as a worker does; the effect's row afterwards."""
    (row,) = client.show(ref)["effects"]
    effect_runner.run(client.runtime, row["id"])
    drain_all(client.runtime)
    (row,) = client.show(ref)["effects"]
    return dict(row)


def test_it_says_ids_states_context_and_metadata_signed_by_each_secret(paging: Client, world: Receiver) -> None:
    incident = paged(paging)
    row = run(paging, incident)
    (got,) = world.received
    body = json.loads(got["body"])
    assert (body["type"], got["content-type"]) == ("incident.tests_page", "application/json")
    said = body["data"]
    assert (said["id"], said["entity_id"], said["project"]) == (str(incident), "I-1", "default")
    assert (said["type"], said["definition_version"], said["version"]) == ("incident", "1.0.0", 1)
    assert (said["from_state"], said["state"], said["trigger"], said["by"]) == ("open", "paging", "page", "ann")
    assert (said["context"], said["metadata"]) == ({"host": "db1 ✓"}, {"severity": 2})
    assert (got["webhook-id"], got["interlock-token"], said["attempt"]) == (str(row["id"]), "1", 1)
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(got["body"], got) == body
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + base64.b64encode(b"x" * 32).decode()).verify(got["body"], got)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(got["body"].replace(b"db1", b"db2"), got)


def test_a_json_answer_is_the_data_of_its_trigger_and_is_kept(paging: Client, world: Receiver) -> None:
    world.body = b'{"paged": "ann", "effect": "forged"}'
    incident = paged(paging)
    row = run(paging, incident)
    assert (row["status"], state(paging, incident)) == ("done", "paged")
    assert row["result"] == {"status": 200, "body": {"paged": "ann", "effect": "forged"}}
    assert paging.history(incident)[-1]["metadata"] == {"paged": "ann", "effect": "tests_page"}


@pytest.mark.parametrize(
    "theirs",
    [
        {"operator": "ann", "override": {}},
        {"approval": "given", "votes": 2, "terms": {}, "relinked": []},
        {"spent": {"tokens": -5}},
        {"spent": "much"},
    ],
)
def test_names_of_interlocks_own_in_an_answer_are_no_data_and_no_failure(
    paging: Client, world: Receiver, theirs: dict[str, Any]
) -> None:
    world.body = json.dumps({"paged": "ann", "reason": "they were awake"} | theirs).encode()
    incident = paged(paging)
    row = run(paging, incident)
    assert (row["status"], row["attempts"], state(paging, incident)) == ("done", 1, "paged")
    assert row["result"]["body"].keys() >= theirs.keys(), "the whole answer is kept with the effect"
    event = paging.history(incident)[-1]
    assert event["metadata"] == {"paged": "ann", "reason": "they were awake", "effect": "tests_page"}


def test_what_an_answer_says_was_spent_is_data(paging: Client, world: Receiver) -> None:
    world.body = b'{"spent": {"tokens": 5}}'
    incident = paged(paging)
    run(paging, incident)
    assert paging.history(incident)[-1]["metadata"] == {"spent": {"tokens": 5}, "effect": "tests_page"}


@pytest.mark.parametrize("body", [b"", b"thanks\x1b[2J", b"[1]", b'{"n": 1e999}', b"\xff\xfe"])
def test_any_other_answer_of_success_is_one_without_data(paging: Client, world: Receiver, body: bytes) -> None:
    world.body, world.answer = body, 202
    incident = paged(paging)
    row = run(paging, incident)
    assert (row["status"], row["result"]["status"]) == ("done", 202)
    assert "\x1b" not in str(row["result"]["body"])
    assert paging.history(incident)[-1]["metadata"] == {"effect": "tests_page"}


@pytest.mark.parametrize("answer", [500, 404, 302, 410])
def test_any_other_status_is_sent_again_and_at_last_told_with_the_answer(
    paging: Client, world: Receiver, dba: Dba, answer: int
) -> None:
    world.body, world.answer = b'{"why": "full"}', answer
    incident = paged(paging)
    for attempt in range(1, 4):
        dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")
        row = run(paging, incident)
        assert row["result"] == {"status": answer, "body": {"why": "full"}}
        assert row["attempts"] == attempt
        assert row["error"].endswith(f"answered {answer}")
        assert "team=7" not in row["error"], "a URL may have a secret in it"
    assert {each["webhook-id"] for each in world.received} == {str(row["id"])}
    assert (row["status"], state(paging, incident)) == ("dead", "unheard")
    assert paging.history(incident)[-1]["metadata"]["result"]["body"] == {"why": "full"}


def test_no_answer_keeps_the_last_one(
    paging: Client, world: Receiver, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answer = 503
    incident = paged(paging)
    run(paging, incident)
    to(monkeypatch, "http://127.0.0.1:9/secret-path")
    dba.execute("UPDATE effects SET not_before = now() WHERE status = 'pending'")
    row = run(paging, incident)
    assert row["error"] == "CallNotAccepted: http://127.0.0.1:9 did not answer: ConnectionError"
    assert row["result"]["status"] == 503


def test_an_answer_without_end_is_cut_off(paging: Client, world: Receiver) -> None:
    world.body = b"x" * 100_000
    row = run(paging, paged(paging))
    assert row["error"].endswith("answered 200 with more than 65,536 bytes")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (None, "No such file"),
        ("whsec_!!!", "file:pager/new is no secret of Standard Webhooks: whsec_ and 24 to 64 bytes as base64"),
        ("whsec_c2hvcnQ=", "file:pager/new is no secret of Standard Webhooks"),
        (NEW.removeprefix("whsec_"), "file:pager/new is no secret of Standard Webhooks"),
    ],
)
def test_without_its_secret_nothing_is_sent(
    paging: Client, world: Receiver, secrets: Path, written: str | None, why: str
) -> None:
    (secrets / "pager" / "new").unlink()
    if written:
        (secrets / "pager" / "new").touch(mode=0o600)
        (secrets / "pager" / "new").write_text(written)
    row = run(paging, paged(paging))
    assert (row["status"], world.received) == ("pending", [])
    assert why in row["error"]
