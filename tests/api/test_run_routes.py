"""Plans and runs over HTTP: submitted once by operators, within the folders that they may use; read part by part."""

import asyncio
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from httpx import Response

from interlock.api.run_logs import LogPart
from interlock.workers.access.tokens import find
from interlock.workers.client.client import Client
from interlock.workers.client.operations import acting
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.overrides.tokens import list_tokens, revoke_tokens
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.schedules.creating import create_schedule, submitting
from interlock.workers.settings import Settings
from interlock.workflows.plan.read import read_plan
from tests.calling import Calls, bearing, calls, token
from tests.driving import drain_all
from tests.http_rights import PLAN
from tests.scheduling import SECONDLY, swept
from tests.waiting import eventually

pytestmark = pytest.mark.integration
YAML = {"Content-Type": "application/yaml"}
COMMANDS = "{name: c, workstreams: [{id: w, tasks: [{id: t, command: ['true']}]}]}"


@pytest.fixture
def ann_calls(call: Calls, client: Client) -> Calls:
    """Calls in the name of an operator."""
    call.token = token(client.runtime, "ann", "operator")
    return call


def submitted(call: Calls, plan: str = PLAN, **asked: object) -> Response:
    return call("POST", "/api/runs", content=plan, headers=YAML, params=asked)


def scheduled(client: Client, run_id: str) -> None:
    """Run engine and scheduler until nothing is left to do."""
    while drain_all(client.runtime) + schedule(client.runtime, UUID(run_id)):
        pass


def done(answer: Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_a_plan_is_run_once_under_its_name_and_each_birth_says_by_which_token(ann_calls: Calls, client: Client) -> None:
    run = done(submitted(ann_calls, name="nightly"), 201)
    again = done(submitted(ann_calls, name="nightly"))
    assert (again, len(run["plan_sha256"])) == (run, 64)
    taken = submitted(ann_calls, name="nightly", priority=7)
    assert (taken.status_code, taken.json()["type"]) == (409, "urn:interlock:problem:already-exists")
    scheduled(client, run["id"])
    tree = done(ann_calls("GET", "/api/runs/nightly"))
    assert (tree["state"], tree["created_by"], tree["counts"]["tasks"]) == ("running", "ann", {"queued": 1})
    (workstream,) = tree["workstreams"]
    for each in (run["id"], workstream["id"], workstream["tasks"][0]["id"]):
        assert str(client.show(each)["born_proof"]).startswith("token:")
        assert client.verify(each) == ()
    assert [each["id"] for each in done(ann_calls("GET", "/api/runs?state=running"))["items"]] == [run["id"]]


def test_a_plan_with_faults_is_refused_with_line_and_field(ann_calls: Calls) -> None:
    refused = submitted(ann_calls, "name: x\nworkstreams: [{id: w, taks: []}]")
    assert refused.status_code == 422
    assert "2:" in refused.json()["detail"]
    assert "taks" in refused.json()["detail"]
    braces = ", ".join(f"{{id: t{number}, command: ['true', '{{a}}']}}" for number in range(60))
    assert (
        "INTERLOCK_API_PLAN_FOLDERS"
        in submitted(ann_calls, f"{{name: x, workstreams: [{{id: w, tasks: [{braces}]}}]}}").json()["detail"]
    ), "YAML is no JSON that is nested too deeply"


def test_a_plan_uses_no_path_of_the_server_that_is_not_in_a_folder_for_plans(
    ann_calls: Calls, settings: Settings, tmp_path: Path
) -> None:
    allowed = tmp_path / "plans"
    (allowed / "one").mkdir(parents=True)
    (tmp_path / "plans-2").mkdir()
    (allowed / "away").symlink_to(tmp_path)
    with calls(settings.model_copy(update={"api_plan_folders": (allowed,)})) as call:
        call.token = ann_calls.token
        for folder in ("/", "/etc", tmp_path, tmp_path / "plans-2", allowed / "away", allowed / ".."):
            refused = submitted(call, COMMANDS, directory=str(folder))
            assert refused.status_code == 422, folder
            assert "INTERLOCK_API_PLAN_FOLDERS" in refused.json()["detail"]
        for where in ("/etc", "../../etc"):
            elsewhere = COMMANDS.replace("command:", f"cwd: {where}, command:")
            assert submitted(call, elsewhere, directory=str(allowed / "one")).status_code == 422
        reads = COMMANDS.replace("command:", "reads: [/etc], command:")
        assert submitted(call, reads, directory=str(allowed / "one")).status_code == 422
        patch = "{name: c, workstreams: [{id: w, tasks: [{id: t, patch: {file: etc/passwd}}]}]}"
        assert submitted(call, patch).status_code == 422
        run = done(submitted(call, COMMANDS, directory=str(allowed / "one")), 201)
        assert done(call("GET", f"/api/runs/{run['id']}"))["plan"] == "c"


def test_an_agents_token_submits_nothing_and_is_told_nothing_of_files(ann_calls: Calls, client: Client) -> None:
    refused = ann_calls("POST", "/api/runs", content=COMMANDS, headers=YAML, token=token(client.runtime, "bot"))
    assert refused.status_code == 403
    assert "Who may: " in refused.json()["detail"]


def test_a_canceled_run_is_resumed_in_a_new_one(ann_calls: Calls, client: Client) -> None:
    run = done(submitted(ann_calls, name="first"), 201)
    drain_all(client.runtime)
    early = ann_calls("POST", "/api/runs/first/resume", json={})
    assert (early.status_code, early.json()["type"]) == (409, "urn:interlock:problem:illegal-move")
    bot = token(client.runtime, "bot")
    said = {"reason": "wrong branch", "request_id": "stop"}
    accepted = done(ann_calls("POST", "/api/runs/first/cancel?wait=0", json=said, token=bot), 202)
    drain_all(client.runtime)
    assert done(ann_calls("POST", "/api/runs/first/cancel", json=said, token=bot))["result"]["to"] == "canceled"
    assert accepted["workflow_id"] == run["id"]
    resumed = done(ann_calls("POST", "/api/runs/first/resume", json={"name": "second"}), 201)
    tree = done(ann_calls("GET", f"/api/runs/{resumed['id']}"))
    assert (tree["name"], tree["retry_of"]) == ("second", run["id"])
    assert str(client.show(resumed["id"])["born_proof"]).startswith("token:")


def test_a_failed_workstream_is_done_again_by_an_operators_token_only(ann_calls: Calls, client: Client) -> None:
    plan = PLAN.replace("agent:", "retries: 0, agent:").replace(
        "]}]}", "]}, {id: v, tasks: [{id: u, agent: {instructions: x}}]}]}"
    )
    run = done(submitted(ann_calls, plan, name="both"), 201)
    scheduled(client, run["id"])
    path, why = "/api/runs/both/workstreams/w/retry", {"reason": "it was the network"}
    early = ann_calls("POST", path, json=why)
    assert (early.status_code, early.json()["type"]) == (409, "urn:interlock:problem:illegal-move")
    bot = token(client.runtime, "bot")
    ann_calls("PUT", "/api/agent", json={}, token=bot)
    claim = done(ann_calls("POST", "/api/agent/claims", token=bot))
    ann_calls("POST", "/api/agent/finish", json={"token": claim["token"], "error": "no network"}, token=bot)
    scheduled(client, run["id"])
    path = f"/api/runs/both/workstreams/{claim_workstream(ann_calls, claim)}/retry"
    assert ann_calls("POST", path, json=why, token=bot).status_code == 403
    dry = done(ann_calls("POST", path, json=why | {"dry_run": True}))
    assert (dry["dry_run"], bool(dry["made"])) == (True, True)
    made = done(ann_calls("POST", path, json=why))["made"]
    assert all(str(client.show(each)["born_proof"]).startswith("token:") for each in made.values())


def claim_workstream(call: Calls, claim: dict[str, Any]) -> str:
    tree = done(call("GET", f"/api/runs/{claim['run_id']}"))
    return next(str(each["name"]) for each in tree["workstreams"] if each["id"] == claim["workstream_id"])


def test_logs_are_read_part_by_part_and_waited_for_and_results_listed(ann_calls: Calls, client: Client) -> None:
    scheduled(client, done(submitted(ann_calls, name="logged"), 201)["id"])
    path, bot = "/api/runs/logged/logs?task=w/t", token(client.runtime, "bot")
    nothing = done(ann_calls("GET", path))
    assert (nothing["attempt"], nothing["ended"], nothing["state"]) == (None, False, "queued")
    assert ann_calls("GET", "/api/runs/logged/logs?task=w/x").status_code == 404
    ann_calls("PUT", "/api/agent", json={}, token=bot)
    claim = done(ann_calls("POST", "/api/agent/claims", token=bot))

    def say(text: str) -> Response:
        return ann_calls("POST", "/api/agent/log", json={"token": claim["token"], "text": text}, token=bot)

    say("größer\n")
    first = done(ann_calls("GET", f"{path}&limit=4"))
    second = done(ann_calls("GET", f"{path}&after={first['next']}"))
    assert (first["text"], second["text"], second["ended"]) == ("grö", "ßer\n", False)

    async def both() -> tuple[Response, Response]:
        waiting = ann_calls.client.get(f"{path}&after={second['next']}&wait=30", headers=bearing(ann_calls.token))
        saying = ann_calls.client.post(
            "/api/agent/log", json={"token": claim["token"], "text": "more\n"}, headers=bearing(bot)
        )
        more, _ = await asyncio.gather(waiting, saying)
        return more, _

    more, _ = ann_calls.loop.run(both())
    assert more.json()["text"] == "more\n"
    said = {"token": claim["token"], "output": {"stdout": "wrote it"}, "result": {"tests": 3}}
    ann_calls("POST", "/api/agent/finish", json=said, token=bot)
    drain_all(client.runtime)
    last = done(ann_calls("GET", f"{path}&after={more.json()['next']}&wait=30"))
    assert (last["text"], last["ended"], last["verified"]) == ("", True, True)
    assert (last["reported"], last["trigger"]) == ({"stdout": "wrote it"}, "execution_completed")
    (result,) = done(ann_calls("GET", "/api/runs/logged/results"))["items"]
    assert (result["task"], result["state"], result["result"]) == ("w/t", "completed", {"tests": 3})


def test_what_a_schedule_submits_says_by_which_token_it_was_created(ann_calls: Calls, client: Client) -> None:
    principal = find(client.runtime, ann_calls.token)
    assert principal is not None
    own = cast(Client, acting(client, principal))
    does = submitting(own, read_plan(PLAN), Path("/"), by="ann")
    schedule = create_schedule(own, "often", SECONDLY, does, by="ann")
    eventually(lambda: swept(client), timeout=10)
    drain_all(client.runtime)
    run = done(ann_calls("GET", "/api/runs"))["items"][-1]
    assert (run["plan"], run["state"]) == ("p", "running")
    assert schedule["born_proof"] == f"token:{principal.token_id}"
    assert client.show(run["id"])["born_proof"] == schedule["born_proof"]
    assert client.verify(run["id"]) == ()


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/api/runs/waited/logs?task=w/t&wait=1", {}),
        ("POST", "/api/runs/waited/cancel?wait=1", {"json": {"reason": "a test"}}),
    ],
)
def test_whoever_waits_while_the_token_is_revoked_is_told_nothing(
    ann_calls: Calls, client: Client, method: str, path: str, said: dict[str, Any]
) -> None:
    scheduled(client, done(submitted(ann_calls, name="waited"), 201)["id"])
    bot = token(client.runtime, "bot")

    def revoked_in_use() -> None:
        (row,) = eventually(
            lambda: [each for each in list_tokens(client.runtime) if each["name"] == "bot" and each["last_used_at"]]
        )
        revoke_tokens(client.runtime, str(row["token_id"]), OverrideOrder("ann", "a test"))

    async def both() -> Response:
        waiting = asyncio.create_task(ann_calls.client.request(method, path, headers=bearing(bot), **said))
        await asyncio.to_thread(revoked_in_use)
        return await waiting

    assert ann_calls.loop.run(both()).status_code == 401


def test_those_who_wait_for_logs_look_two_at_a_time(ann_calls: Calls, client: Client, monkeypatch: Any) -> None:
    scheduled(client, done(submitted(ann_calls, name="watched"), 201)["id"])
    at_once, most, look = 0, 0, LogPart._read

    def counted(part: LogPart, runtime: Runtime) -> dict[str, Any]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            return look(part, runtime)
        finally:
            at_once -= 1

    monkeypatch.setattr(LogPart, "_read", counted)
    path, headers = "/api/runs/watched/logs?task=w/t&wait=0.5", bearing(ann_calls.token)

    async def twelve() -> list[Response]:
        return await asyncio.gather(*(ann_calls.client.get(path, headers=headers) for _ in range(12)))

    assert {each.status_code for each in ann_calls.loop.run(twelve())} == {200}
    assert 1 <= most <= 2
